// Pools and their members.

import { h, show, state, table } from "./dom.js";
import { alsoWithdrawn } from "./fleet.js";
import { ago, count, duration, milliseconds, plural, time } from "./format.js";

const COLUMNS = [
  { name: "Member" },
  { name: "Health" },
  { name: "Service" },
  { name: "In flight", class: "number" },
  { name: "JRubies" },
  { name: "Probes" },
];

export function showPools(status, actions) {
  show("pools-body", status.pools.map((pool) => h("div", { class: "pool" },
    table([
      h("span", { class: "pool-name" }, pool.name),
      h("span", { class: "pool-facts" }, [
        `${pool.available} of ${pool.members.length} available`,
        pool.algorithm,
        pool.waiting === 0
          ? "queue empty"
          : `${plural(pool.waiting, "request")} wait, the first for ${milliseconds(pool.longest_wait_milliseconds ?? 0)}`,
        ...Object.entries(pool.queue_refusals).map(([reason, number]) => `${count(number)} ${reason}`),
      ].join(" · ")),
    ],
    actions ? [...COLUMNS, { name: "Action" }] : COLUMNS,
    pool.members.map((member) => ({ cells: cells(pool, member, status.fleet, actions), attributes: { "data-member": member.address } })),
    { class: "members" }))));
}

function cells(pool, member, fleet, actions) {
  const row = [
    [h("strong", {}, member.address), notes(member)],
    health(member),
    service(pool.name, member, fleet),
    [count(member.in_flight), member.tunnels > 0 ? ` (${plural(member.tunnels, "tunnel")})` : ""],
    jrubies(member.jrubies),
    probes(member.recent_probes),
  ];
  if (actions) row.push(button(pool.name, member));
  return row;
}

function notes(member) {
  const found = [];
  if (member.weight !== 1) found.push(`weight ${member.weight}`);
  if (member.backup) found.push("backup");
  if (member.warming) found.push(`warming, ${member.warming.progress_percent} %`);
  if (member.overloaded) found.push(`overloaded: ${member.overloaded.why}`);
  if (member.ejected_seconds) found.push(`left out for ${duration(member.ejected_seconds)}`);
  return found.length === 0 ? null : h("span", { class: "note" }, found.join(", "));
}

function health(member) {
  const kind = { up: "good", down: "bad", unknown: "warn" }[member.health];
  return [state(kind, member.health), member.since ? h("span", { class: "note" }, `for ${duration((Date.now() - Date.parse(member.since)) / 1000)}`) : null];
}

function service(pool, member, fleet) {
  const by = member.administrative;
  const word = { ready: "ready", drain: "draining", maintenance: "maintenance" }[member.administrative_state];
  const elsewhere = by ? alsoWithdrawn(fleet, pool, member.address) : "";
  return [
    state(member.administrative_state === "ready" ? "good" : "warn", word),
    by ? h("span", { class: "note" }, `by ${by.by} ${ago(by.since)}${by.why ? `: ${by.why}` : ""}${by.until ? `, until ${time(by.until)}` : ""}`) : null,
    elsewhere ? h("span", { class: "note" }, elsewhere) : null,
  ];
}

function jrubies(reading) {
  if (!reading) return "–";
  if (reading.problem) return h("span", { class: "note" }, reading.problem);
  const busy = (reading.count ?? 0) - (reading.free ?? 0);
  return [
    h("meter", { min: 0, max: reading.count ?? 1, value: busy, "aria-label": "busy JRubies" }),
    ` ${busy} of ${reading.count ?? "?"} busy`,
    reading.waiting > 0 ? h("span", { class: "note" }, `${plural(reading.waiting, "request")} wait there`) : null,
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
    failed.length > 0 ? h("span", { class: "note" }, `${failed.length} failed`) : null,
  ];
}

function button(pool, member) {
  const [action, word] = member.administrative_state === "ready" ? ["drain", "Drain"] : ["ready", "Ready"];
  return h("button", { type: "button", "data-action": action, "data-pool": pool, "data-member": member.address,
    "aria-label": `${word} ${member.address} of ${pool}` }, word);
}
