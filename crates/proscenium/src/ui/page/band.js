// The first box: one sentence that says how the proxy is. The title and the icon of the tab follow it.

import { byId, h, prose, show } from "./dom.js";
import { moment, plural, rate } from "./format.js";
import { advice, since } from "./problems.js";

/** The mark of each state on the icon: its shape differs too. */
const MARKS = {
  good: '<circle cx="23" cy="23" r="8" fill="#1a9850" stroke="#fff" stroke-width="2"/>',
  warn: '<path d="M23 13l9 18H14z" fill="#f5a623" stroke="#fff" stroke-width="2"/>',
  bad: '<path d="M14 14h17v17H14z" fill="#d7261e" stroke="#fff" stroke-width="2"/>',
};

/** The proxy answers. */
export function showState(status, problems) {
  const [first] = problems;
  const numbers = [...rates(status), status.alarms.length === 0 ? "no alarms" : plural(status.alarms.length, "alarm")];
  const of = status.fleet?.name;
  if (first === undefined) {
    band("good", "Serving", of, ["."], [h("p", { class: "numbers" }, `${numbers.join(", ")}.`)]);
    return;
  }
  const [kind, word] = first.severity === "critical" ? ["bad", "Critical"] : ["warn", "Degraded"];
  band(kind, word, of, [": ", prose(first.what), "."], [
    h("p", { class: "numbers" }, `${numbers.join(", ")}.`, since(first) ? [" This problem has lasted", since(first), "."] : null),
    advice(first),
  ]);
}

/** The proxy does not answer, or this page cannot ask it. `answered` is the time of the last answer, or null. */
export function showLost(answered, error, of) {
  const at = answered === null ? null : moment(answered);
  const sentence = error.status === 401 ? ["This page is closed", "."] :
    error.status === undefined ? ["This page cannot show the answer of the proxy", "."] :
    error.status === 0 ? ["This page cannot ask the proxy", at ? ` since ${at}.` : "."] :
    at ? ["The proxy has not answered", ` since ${at}.`] : ["The proxy does not answer", "."];
  band("bad", sentence[0], of, [sentence[1]], [
    h("p", { class: "first" }, h("strong", {}, "First: "), prose(error.message)),
    at && error.status !== 401 ? h("p", { class: "note" }, `What is below was true at ${at}, and may be wrong now.`) : null,
  ], error.status === 401 ? "Closed" : "No answer");
}

function rates({ rates: recent }) {
  if (!recent) return [];
  const perSecond = (number) => number * 1000 / Math.max(1, recent.milliseconds);
  return [`${rate(perSecond(recent.requests))} requests/s`,
    recent.failures === 0 ? "no failures" : `${plural(recent.failures, "failure")} in the last minute`];
}

function band(kind, word, of, rest, body, short = word) {
  byId("band").className = kind;
  show("band-state", h("span", { class: `state ${kind}` }, word), rest);
  show("band-body", body);
  document.title = [short, of, "Proscenium"].filter(Boolean).join(" – ");
  const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="6" fill="#1f3a5f"/>` +
    `<path d="M7 25V10a9 5 0 0 1 18 0v15h-4V13a5 3 0 0 0-10 0v12z" fill="#fff"/>${MARKS[kind]}</svg>`;
  const link = byId("icon");
  const href = `data:image/svg+xml,${encodeURIComponent(icon)}`;
  if (link.href !== href) link.href = href;
  link.dataset.state = kind;
}
