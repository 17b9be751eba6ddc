// Rates and durations by kind of work, and the run interval of the agents.

import { byId, fold, h, none, show, table } from "./dom.js";
import { clock, count, milliseconds, now, plural, rate, seconds } from "./format.js";

/** Kinds of work in the order of their colours. */
const WORK = ["catalog", "file", "report", "other"];
/** Kinds of failures in words. */
const FAILURES = { here: "5xx of the proxy", member: "5xx of members", refused: "refused", cut: "cut short" };
const HEAT_LEVELS = 9;
const PLOT_HEIGHT = 190;
/** Seconds of each period. */
const PERIODS = { recent: 900, minutes: 14400 };

const plots = { rate: null, latency: null };
let shown = null;

/** The current values, which are also the legend of the plots. */
export function showWork(traffic, history) {
  const last = history.recent.at(-1);
  const rows = WORK.map((work, index) => {
    const period = last?.work[work];
    return {
      cells: [
        [h("span", { class: `swatch series-${index}` }), work],
        period ? rate(period.requests * 1000 / last.milliseconds) : "0",
        period ? milliseconds(period.mean_milliseconds) : "–",
        period ? milliseconds(period.p95_milliseconds) : "–",
        count(traffic.work[work]?.requests ?? 0),
      ],
      attributes: { "data-work": work },
    };
  });
  const failed = {
    cells: [
      [h("span", { class: "swatch failed" }), "failures"],
      last ? h("strong", { class: failures(last) > 0 ? "bad" : null }, rate(failures(last) * 1000 / last.milliseconds)) : "0",
      "–", "–",
      count(Object.values(traffic.failures ?? {}).reduce((sum, number) => sum + number, 0)),
    ],
    attributes: { "data-work": "failures" },
  };
  show("work", table("Over the last 10 seconds, and since the start",
    [{ name: "Work" }, { name: "Requests/s", class: "number" }, { name: "Mean", class: "number" }, { name: "95 %", class: "number" }, { name: "In all", class: "number" }],
    [...rows, failed], { class: "compact" }), kindsOf(last));
}

function failures(period) {
  return Object.keys(FAILURES).reduce((sum, kind) => sum + (period.failures?.[kind] ?? 0), 0);
}

function kindsOf(period) {
  const kinds = Object.entries(FAILURES).filter(([kind]) => period?.failures?.[kind] > 0);
  return kinds.length === 0 ? null : h("p", { class: "note" }, "Failures: ", kinds.map(([kind, words]) => `${count(period.failures[kind])} ${words}`).join(", "));
}

export function showPlots(history) {
  shown = history;
  const periods = history[byId("period").value];
  const times = periods.map((period) => seconds(period.ended));
  const series = (value) => WORK.map((work) => periods.map((period) => value(period, period.work[work])));
  const perSecond = (period, number) => number * 1000 / Math.max(1, period.milliseconds);
  const failed = periods.map((period) => perSecond(period, failures(period)));
  draw("rate", [times, ...series((period, work) => perSecond(period, work?.requests ?? 0)), failed], (value) => `${rate(value)}/s`);
  draw("latency", [times, ...series((_, work) => work?.p95_milliseconds ?? null)], milliseconds);
}

function draw(name, data, format) {
  const place = byId(`${name}-plot`);
  const width = Math.max(240, place.clientWidth);
  if (plots[name] === null) {
    plots[name] = new uPlot(options(name, width, format), data, place);
  } else {
    plots[name].setSize({ width, height: PLOT_HEIGHT });
    plots[name].setData(data);
  }
}

function options(name, width, format) {
  const style = getComputedStyle(document.documentElement);
  const colour = (variable) => style.getPropertyValue(variable).trim();
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  const read = (plot) => {
    const at = plot.cursor.idx;
    const values = at === null || at === undefined ? [] : plot.series.slice(1).map(({ label }, index) => [label, plot.data[index + 1][at]]);
    byId(`${name}-read`).textContent = values.length === 0 ? "" :
      `${clock(plot.data[0][at])}: ` +
      values.filter(([, value]) => value !== null && value !== undefined).map(([work, value]) => `${work} ${format(value)}`).join(", ");
  };
  return {
    width,
    height: PLOT_HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { range: (plot) => timeRange(plot.data[0]) }, y: { range: (_, __, max) => [0, Math.max(max ?? 0, 1) * 1.1] } },
    axes: [{ ...axis, values: (_, times) => times.map(clock) }, { ...axis, size: 64, values: (_, values) => values.map((value) => (value === null ? "" : format(value))) }],
    series: [{}, ...WORK.map((work, index) => ({
      label: work, stroke: colour(`--series-${index}`), width: 2, points: { show: (plot) => plot.data[0].length < 3 }, spanGaps: false,
    })), ...(name === "rate" ? [{ label: "failures", stroke: colour("--bad"), fill: colour("--failed"), width: 1, points: { show: false } }] : [])],
    hooks: { setCursor: [read] },
  };
}

/** The whole period, also while the proxy has not run for so long. */
function timeRange(times) {
  const end = times.length === 0 ? now() : times[times.length - 1];
  return [end - PERIODS[byId("period").value], end];
}

/** Colours and widths follow the screen. */
export function followScreen(redrawRest) {
  const redraw = () => {
    if (shown !== null) showPlots(shown);
  };
  const restart = () => {
    for (const name of Object.keys(plots)) {
      plots[name]?.destroy();
      plots[name] = null;
    }
    redraw();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restart);
  addEventListener("resize", () => {
    if (shown === null) return;
    redraw();
    redrawRest();
  });
  byId("period").addEventListener("change", restart);
  byId("interval-length").addEventListener("change", () => {
    if (shown !== null) showInterval(shown);
  });
}

/** Catalogs by the minute of the run interval: agents keep their phase, so that a herd is a column. */
export function showInterval(history) {
  const length = Number(byId("interval-length").value);
  const rows = new Map();
  for (const [minute, catalogs] of catalogsByMinute(history)) {
    const begin = Math.floor(minute / length) * length;
    if (!rows.has(begin)) rows.set(begin, new Array(length).fill(null));
    const row = rows.get(begin);
    row[minute - begin] = (row[minute - begin] ?? 0) + catalogs;
  }
  if (rows.size === 0) {
    show("interval-body", none("The proxy has run for less than 10 seconds."));
    return;
  }
  const values = [...rows.values()].flat().filter((value) => value !== null);
  const most = Math.max(...values);
  const ordered = [...rows.entries()].sort(([a], [b]) => a - b);
  const sentence = summary(values, [...rows.values()], length);
  fold("interval", true, sentence);
  show("interval-body",
    h("div", { class: "heat", role: "img", "aria-label": "Catalogs by minute of the run interval; the sentence above names the busiest minute" },
      ordered.map(([begin, row]) => h("div", { class: "heat-row" },
        h("span", { class: "heat-label" }, clock(begin * 60)),
        h("div", { class: `heat-cells of-${length}` }, row.map((value, index) => h("span", {
          class: value === null ? "heat-none" : `heat-${most === 0 ? 0 : Math.ceil(value * HEAT_LEVELS / most)}`,
          title: value === null ? "not recorded" : `${clock((begin + index) * 60)}: ${count(value)} catalogs`,
        })))))),
    h("p", { class: "note" }, `Each row is one interval, each cell one minute; a darker cell has more catalogs. Agents keep their phase, so that a herd is a column.`));
}

function summary(values, rows, length) {
  const all = values.reduce((sum, value) => sum + value, 0);
  if (all === 0) return "No catalog was requested in the recorded time.";
  const byPhase = new Array(length).fill(null);
  for (const row of rows) {
    row.forEach((value, index) => {
      if (value !== null) byPhase[index] = (byPhase[index] ?? 0) + value;
    });
  }
  const recorded = byPhase.filter((value) => value !== null);
  const most = Math.max(...recorded);
  const share = (value) => Math.round(100 * value / all);
  return `${plural(all, "catalog")} in ${plural(values.length, "minute")}. The busiest minute of the interval is ` +
    `minute ${byPhase.indexOf(most) + 1} of ${length}, with ${share(most)} % of them; an even load has ${share(all / recorded.length)} %.`;
}

/** Catalogs by minute since 1970, the current minute included. */
function catalogsByMinute(history) {
  const counts = new Map();
  const last = history.minutes.length === 0 ? 0 : seconds(history.minutes.at(-1).ended);
  const current = history.recent.filter((period) => seconds(period.ended) > last);
  for (const period of [...history.minutes, ...current]) {
    const middle = seconds(period.ended) - period.milliseconds / 2000;
    const minute = Math.floor(middle / 60);
    counts.set(minute, (counts.get(minute) ?? 0) + (period.work.catalog?.requests ?? 0));
  }
  return counts;
}
