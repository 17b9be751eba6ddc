// A drawing of where requests go: agents, the proxy, and the pools behind it.

import { byId, s, show } from "./dom.js";
import { count, rate } from "./format.js";
import { requestsPerSecond } from "./pools.js";

const BOX = { width: 236, height: 62 };
const GAP = 14;
/** Below this width, the boxes are below each other. */
const NARROW = 900;
const NAME_MAX = 20;

export function showDrawing(status, traffic, problems) {
  const width = Math.max(280, byId("drawing").clientWidth);
  const failed = status.rates && status.rates.failures > 0;
  const agents = {
    title: "Agents", lines: [`${count(status.listeners.reduce((sum, listener) => sum + listener.connections, 0))} connections`],
  };
  const proxy = {
    title: "Proxy", kind: problems.length === 0 ? "good" : problems[0].severity === "critical" ? "bad" : "warn",
    lines: [`${count(traffic.in_flight)} in flight`, traffic.waiting > 0 ? `${count(traffic.waiting)} waiting` : "none waiting"],
    label: status.rates ? perSecond(status.rates.requests, status.rates.milliseconds) : "",
    incoming: failed ? "warn" : "good",
    failures: failed ? `${perSecond(status.rates.failures, status.rates.milliseconds)} fail` : "",
  };
  const pools = status.pools.map(ofPool);
  const draw = width < NARROW ? narrow : wide;
  show("drawing", draw(width, agents, proxy, pools, sentence(agents, proxy, pools)));
}

function ofPool(pool) {
  const ready = pool.members.length;
  const kind = pool.available === 0 ? "bad" : pool.available < ready ? "warn" : "good";
  const requests = requestsPerSecond(pool);
  return {
    title: pool.name, kind,
    lines: [pool.available === 0 ? `none of ${ready} available` : `${pool.available} of ${ready} available`,
      `${count(pool.members.reduce((sum, member) => sum + member.in_flight, 0))} in flight`],
    label: requests === null ? "" : `${rate(requests)}/s`,
  };
}

function perSecond(number, length) {
  return `${rate(number * 1000 / Math.max(1, length))}/s`;
}

/** The drawing in words. */
function sentence(agents, proxy, pools) {
  const each = pools.map((pool) => `${pool.label ? `${pool.label} to ` : ""}pool ${pool.title}, ${pool.lines[0]}`);
  return `Agents have ${agents.lines[0]} and send ${proxy.label || "requests"} to the proxy${proxy.failures ? `, of which ${proxy.failures}` : ""}. ` +
    `The proxy sends ${each.join("; ")}.`;
}

function wide(width, agents, proxy, pools, label) {
  const height = Math.max(1, pools.length) * (BOX.height + GAP) - GAP + 2;
  const middle = height / 2;
  const lefts = [1, (width - BOX.width) / 2, width - BOX.width - 1];
  const bend = lefts[2] - 110;
  const parts = [
    box(agents, lefts[0], middle - BOX.height / 2, BOX.width),
    ...arrow([lefts[0] + BOX.width, middle], [lefts[1], middle], proxy.incoming),
    text(proxy.label, (lefts[0] + BOX.width + lefts[1]) / 2, middle - 8, "middle", "rate"),
    text(proxy.failures, (lefts[0] + BOX.width + lefts[1]) / 2, middle + 18, "middle", "rate bad"),
    box(proxy, lefts[1], middle - BOX.height / 2, BOX.width),
    s("path", { class: "arrow", d: `M${lefts[1] + BOX.width} ${middle}H${bend}M${bend} ${1 + BOX.height / 2}V${height - 1 - BOX.height / 2}` }),
  ];
  pools.forEach((pool, index) => {
    const top = 1 + index * (BOX.height + GAP);
    const y = top + BOX.height / 2;
    parts.push(...arrow([bend, y], [lefts[2], y], pool.kind),
      text(pool.label, (bend + lefts[2]) / 2, y - 8, "middle", "rate"), box(pool, lefts[2], top, BOX.width));
  });
  return s("svg", { role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` }, parts);
}

function narrow(width, agents, proxy, pools, label) {
  const step = BOX.height + 34;
  const indent = 84;
  const height = step + BOX.height + pools.length * (BOX.height + GAP) + 1;
  const below = step + BOX.height;
  const parts = [
    box(agents, 1, 1, width - 2),
    ...arrow([24, BOX.height + 1], [24, step], proxy.incoming),
    text([proxy.label, proxy.failures].filter(Boolean).join(", "), 40, BOX.height + 22, "start", "rate"),
    box(proxy, 1, step, width - 2),
    s("path", { class: "arrow", d: `M24 ${below}V${height - BOX.height / 2}` }),
  ];
  pools.forEach((pool, index) => {
    const top = below + 14 + index * (BOX.height + GAP);
    const y = top + BOX.height / 2;
    parts.push(...arrow([24, y], [indent, y], pool.kind),
      text(pool.label, 50, y - 8, "middle", "rate"), box(pool, indent, top, width - indent - 1));
  });
  return s("svg", { role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` }, parts);
}

function box({ title, kind, lines }, x, y, width) {
  const isLong = title.length > NAME_MAX;
  return s("g", { class: `box ${kind ?? ""}` },
    isLong ? s("title", {}, title) : null,
    s("rect", { x, y, width, height: BOX.height, rx: 6 }),
    kind ? mark(kind, x + 18, y + 20) : null,
    text(isLong ? `${title.slice(0, NAME_MAX - 1)}…` : title, x + (kind ? 32 : 14), y + 25, "start", "name"),
    text(lines.join(" · "), x + 14, y + 48, "start", "about"));
}

/** The shape of a state, as in the rest of the page. */
function mark(kind, x, y) {
  const shapes = {
    good: () => s("circle", { cx: x, cy: y, r: 5, class: "mark" }),
    warn: () => s("path", { d: `M${x} ${y - 6}l6 11h-12z`, class: "mark" }),
    bad: () => s("rect", { x: x - 5, y: y - 5, width: 10, height: 10, class: "mark" }),
  };
  return shapes[kind]();
}

/** A line with a head at its end. It is dashed if nothing can pass. */
function arrow([fromX, fromY], [x, y], kind) {
  const head = fromY === y ? `M${x} ${y}l-9 -5v10z` : `M${x} ${y}l-5 -9h10z`;
  return [
    s("path", { d: `M${fromX} ${fromY}L${x} ${y}`, class: `arrow ${kind}`, "stroke-dasharray": kind === "bad" ? "5 5" : null }),
    s("path", { d: head, class: `head ${kind}` }),
  ];
}

function text(content, x, y, anchor, kind) {
  return content ? s("text", { x, y, "text-anchor": anchor, class: kind }, content) : null;
}
