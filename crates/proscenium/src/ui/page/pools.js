// Pools and their members, with the numbers of the last minute.

import { byId, h, show, state, table } from "./dom.js";
import { alsoWithdrawn } from "./fleet.js";
import { ago, count, duration, milliseconds, now, plural, rate, seconds, time } from "./format.js";

const COLUMNS = [
  { name: "Member", class: "member" },
  { name: "State", class: "health" },
  { name: "Requests/s", class: "number load" },
  { name: "p95" },
  { name: "Failures/min" },
  { name: "In flight", class: "number" },
  { name: "Busy JRubies" },
  { name: "Probes" },
];
const HEALTH = { up: "good", down: "bad", unknown: "warn" };

/** Members whose row shows everything on a narrow screen. */
const opened = new Set();

export function showPools(status, actions) {
  const columns = actions ? [...COLUMNS, { name: "Action" }] : COLUMNS;
  show("pools-body", status.pools.map((pool) => {
    const isWell = pool.members.every(isMemberWell) && pool.waiting === 0;
    return h("details", { class: "pool", "data-pool": pool.name, "data-well": isWell, open: !isWell },
      h("summary", {}, h("strong", {}, pool.name), " ", h("span", { class: "note" }, facts(pool).join(" · "))),
      table(null, columns, pool.members.map((member) => ({
        cells: cells(pool, member, status.fleet, actions),
        attributes: { "data-member": member.address, class: opened.has(key(pool, member)) ? "opened" : null },
      })), { class: "members", "aria-label": `Members of pool ${pool.name}` }));
  }));
}

/** Connects the buttons that show the rest of a row on a narrow screen. */
export function connectRows(redraw) {
  byId("pools-body").addEventListener("click", (event) => {
    const row = event.target.closest("[data-more]")?.dataset.more;
    if (row === undefined) return;
    if (!opened.delete(row)) opened.add(row);
    redraw();
  });
}

function key(pool, member) {
  return `${pool.name}/${member.address}`;
}

function isMemberWell(member) {
  return member.health === "up" && member.administrative_state === "ready" && !member.ejected_seconds &&
    !member.overloaded && !member.traffic?.slow && failures(member) === 0;
}

/** Requests per second to all its members, or null if they are not known. */
export function requestsPerSecond(pool) {
  const known = pool.members.filter((member) => member.traffic);
  if (known.length === 0) return null;
  return known.reduce((sum, { traffic }) => sum + traffic.requests * 1000 / Math.max(1, traffic.window_milliseconds), 0);
}

function facts(pool) {
  const requests = requestsPerSecond(pool);
  return [
    `${pool.available} of ${pool.members.length} available`,
    ...(requests === null ? [] : [`${rate(requests)} requests/s`]),
    pool.algorithm,
    pool.waiting === 0
      ? "queue empty"
      : `${plural(pool.waiting, "request")} wait, the first for ${milliseconds(pool.longest_wait_milliseconds ?? 0)}`,
    ...Object.entries(pool.queue_refusals).map(([reason, number]) => `${count(number)} ${reason}`),
  ];
}

function cells(pool, member, fleet, actions) {
  const row = [
    name(pool, member),
    health(pool, member, fleet),
    ...numbers(member),
    [count(member.in_flight), note([
      member.tunnels > 0 && plural(member.tunnels, "tunnel"),
      plural(member.connections, "connection"),
    ])],
    jrubies(member),
    probes(member.recent_probes),
  ];
  if (actions) row.push(button(pool.name, member));
  return row;
}

function name(pool, member) {
  const isOpen = opened.has(key(pool, member));
  return [
    h("button", { type: "button", class: "more", "data-more": key(pool, member), "aria-expanded": String(isOpen),
      "aria-label": `More about ${member.address} of ${pool.name}` }, isOpen ? "–" : "+"),
    h("strong", {}, member.address),
    note([
      member.weight !== 1 && `weight ${member.weight}`,
      member.backup && "backup",
      member.warming && `warming, ${member.warming.progress_percent} %`,
    ]),
  ];
}

/** Health, and whether the member is in service. */
function health(pool, member, fleet) {
  const by = member.administrative;
  const isReady = member.administrative_state === "ready";
  const elsewhere = by ? alsoWithdrawn(fleet, pool.name, member.address) : "";
  return [
    isReady ? null : [state("warn", { drain: "draining", maintenance: "maintenance" }[member.administrative_state]), " "],
    isReady || member.health !== "up" ? state(HEALTH[member.health], member.health) : null,
    member.ejected_seconds ? [" ", state("warn", "left out")] : null,
    member.overloaded ? [" ", state("warn", "overloaded")] : null,
    member.traffic?.slow ? [" ", state("warn", "slow")] : null,
    note([
      member.since && isReady && `for ${duration(now() - seconds(member.since))}`,
      by && `by ${by.by} ${ago(by.since)}${by.why ? `: ${by.why}` : ""}${by.until ? `, until ${time(by.until)}` : ""}`,
      elsewhere,
      member.ejected_seconds && `for another ${duration(member.ejected_seconds)}`,
      member.overloaded?.why,
    ]),
  ];
}

/** Requests, durations and failures of the last minute. */
function numbers(member) {
  const traffic = member.traffic;
  if (!traffic) return ["–", "–", "–"];
  const length = Math.max(1, traffic.window_milliseconds);
  const { catalog, ...others } = traffic.work;
  const first = catalog ? `catalog ${milliseconds(catalog.p95_milliseconds)}` : "";
  const rest = Object.entries(others).map(([work, { p95_milliseconds: p95 }]) => `${work} ${milliseconds(p95)}`).join(", ");
  const perMinute = (number) => rate(number * 60000 / length);
  const causes = Object.entries(traffic.failures).filter(([, number]) => number > 0);
  return [
    [rate(traffic.requests * 1000 / length), note([`${traffic.share_percent} % of pool`])],
    first || rest ? [first, note([rest, traffic.slow && `neighbours ${milliseconds(traffic.slow.median_milliseconds)}`])] : "–",
    causes.length === 0 ? "none" : [h("strong", { class: "bad" }, perMinute(failures(member))),
      note(causes.map(([cause, number]) => `${cause} ${perMinute(number)}`))],
  ];
}

function failures(member) {
  return Object.values(member.traffic?.failures ?? {}).reduce((sum, number) => sum + number, 0);
}

function note(parts) {
  const found = parts.filter(Boolean);
  return found.length === 0 ? null : h("span", { class: "note" }, found.join(", "));
}

function jrubies({ jrubies: reading, health: word }) {
  if (word !== "up") return h("span", { class: "note" }, "unknown");
  if (!reading) return "–";
  if (reading.problem) return h("span", { class: "note" }, reading.problem);
  const busy = (reading.count ?? 0) - (reading.free ?? 0);
  return [
    h("meter", { min: 0, max: reading.count ?? 1, value: busy, "aria-label": "busy JRubies" }),
    ` ${busy} of ${reading.count ?? "?"}`,
    reading.waiting > 0 ? note([`${plural(reading.waiting, "request")} wait there`]) : null,
  ];
}

function probes(results) {
  if (results.length === 0) return "–";
  const failed = results.filter((probe) => probe.failure !== null);
  const last = failed.at(-1);
  const label = `${plural(results.length, "probe")}, ${failed.length} failed${last ? `; the last failure, ${ago(last.at)}: ${last.failure}` : ""}`;
  return [
    h("span", { class: "probes", role: "img", "aria-label": label, title: label },
      results.map((probe) => h("span", { class: probe.failure === null ? "passed" : "failed" }))),
    failed.length > 0 ? note([`${failed.length} failed`]) : null,
  ];
}

function button(pool, member) {
  const [action, word] = member.administrative_state === "ready" ? ["drain", "Drain"] : ["ready", "Ready"];
  return h("button", { type: "button", "data-action": action, "data-pool": pool, "data-member": member.address,
    "aria-label": `${word} ${member.address} of ${pool}` }, word);
}
