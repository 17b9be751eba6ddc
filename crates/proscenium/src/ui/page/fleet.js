// The proxies of the fleet, in what they differ, and where else a change applies.

import { fold, h, show, state, table } from "./dom.js";
import { ago, plural, time } from "./format.js";

const COLUMNS = [
  { name: "Proxy" },
  { name: "Version" },
  { name: "Phase", class: "word" },
  { name: "Ready" },
  { name: "Heard", class: "word" },
  { name: "Alarms" },
  { name: "Out of service" },
  { name: "Differs" },
];

/** Shows the section, and what else is about a fleet. Without `[fleet]` all of it is hidden. */
export function showFleet(fleet) {
  for (const part of document.querySelectorAll("[data-fleet]")) part.hidden = !fleet;
  if (!fleet) return;
  const isWell = !fleet.unreached && fleet.differences.length === 0 && fleet.proxies.every((proxy) => !proxy.unready);
  fold("fleet", isWell, isWell ? `${plural(fleet.proxies.length, "proxy", "proxies")}, all ready and alike` : "see what is marked");
  show("fleet-body",
    h("p", {}, `Store of the fleet ${fleet.site} (${fleet.endpoints.join(", ")}): `, store(fleet)),
    fleet.turn ? h("p", {}, `${fleet.turn.proxy} has the turn since ${time(fleet.turn.since)}: ${fleet.turn.command} (${fleet.turn.by})`) : null,
    table(fleet.differences.length === 0 ? "Registered proxies; no differences" : `Registered proxies; ${plural(fleet.differences.length, "difference")}`,
      COLUMNS, fleet.proxies.map((proxy) => ({ cells: cells(fleet, proxy), attributes: { "data-proxy": proxy.name } }))),
    fleet.refused.map((refused) => h("p", { class: "note" }, `Ignored: ${refused.key}: ${refused.why}`)));
}

function store({ connected, unreached }) {
  if (unreached) {
    return [state("bad", "not reached"), ` since ${time(unreached.since)}: ${unreached.why}. The proxies below are those of that time.`];
  }
  return connected ? state("good", "reached") : state("warn", "connecting");
}

function cells(fleet, proxy) {
  const isOwn = proxy.name === fleet.name;
  return [
    [h("strong", {}, proxy.name), isOwn ? h("span", { class: "note" }, "this proxy") : null],
    proxy.version,
    proxy.phase,
    h("span", { class: proxy.unready ? false : "word" }, state(proxy.unready ? "warn" : "good", proxy.unready ?? "ready")),
    isOwn ? "–" : ago(proxy.heard_at),
    proxy.alarms.length === 0 ? "none" : isOwn ? `${proxy.alarms.length}, see above` : lines(proxy.alarms),
    [
      lines(proxy.withdrawn.map(({ pool, member, in_flight }) => `${member} of ${pool}, ${in_flight} in flight`)),
      lines([...proxy.withheld].map((place) => `still uses ${place}, which another proxy has drained`)),
    ],
    lines(differing(fleet, proxy.name)),
  ];
}

function lines(texts) {
  return texts.map((text) => h("span", { class: "line" }, text));
}

/** What differs on a proxy from more than half of all, or from each other proxy. */
function differing({ differences, proxies }, name) {
  return differences.flatMap(({ what, values }) => {
    const all = Object.entries(values);
    const own = all.find(([, names]) => names.includes(name));
    // Only clocks that are wrong are listed.
    const common = what === "clock" ? undefined : all.find(([, names]) => names.length * 2 > proxies.length);
    if (own === undefined || own === common) return [];
    return `${what}: ${own[0] || "none"}${common ? `, most have ${common[0] || "none"}` : ""}`;
  });
}

/** Where else a member that is out of service here gets nothing new. */
export function alsoWithdrawn(fleet, pool, address) {
  const where = new Map([["also on", []], ["not on", []], ["still used by", []]]);
  for (const proxy of fleet?.proxies ?? []) {
    if (proxy.name === fleet.name) continue;
    const isWithheld = proxy.withheld.includes(`${pool}/${address}`);
    const isWithdrawn = proxy.withdrawn.some((member) => member.pool === pool && member.member === address);
    where.get(isWithheld ? "still used by" : isWithdrawn ? "also on" : "not on").push(proxy.name);
  }
  return [...where].filter(([, names]) => names.length > 0).map(([what, names]) => `${what} ${names.join(", ")}`).join("; ");
}

/** Whether all proxies have the records of this one. */
export function sameRecords(fleet) {
  if (!fleet) return "";
  const values = fleet.differences.find((difference) => difference.what === "records")?.values ?? {};
  const others = Object.values(values).filter((names) => !names.includes(fleet.name)).flat();
  return others.length === 0 ? "; the same on all proxies" : `; not the same on ${others.join(", ")}`;
}

/** Where else a change applies, as the proxy answers it. */
export function appliedElsewhere(outcome) {
  if (!outcome) return [];
  const names = outcome.proxies.map((proxy) => proxy.name).join(", ") || "the other proxies";
  if (outcome.not_sent) return [`The change was not sent to the fleet: ${outcome.not_sent}; make it on ${names} too.`];
  return outcome.proxies.map(({ name, withheld, applied_after_milliseconds: took }) =>
    took === null ? `${name}: not applied yet` :
    withheld.length > 0 ? `${name}: still uses ${withheld.join(", ")}, because no other member of the pool is available there` :
    `${name}: applied after ${took} ms`);
}
