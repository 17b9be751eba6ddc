// What happened last: alarms, members, reloads, operators.

import { byId, show, state, table } from "./dom.js";
import { moment } from "./format.js";

/** Shows the last events, the latest first. A proxy without a history has no such box. */
export function showRecent(history) {
  byId("recent").hidden = history === null;
  if (history === null) return;
  const events = [...history.events].reverse();
  show("recent-sum", events.length === 0 ? "nothing was recorded" : `${moment(events[0].at)}: ${events[0].message}`);
  show("recent-body", table(null, [{ name: "At" }, { name: "What" }, { name: "Subject" }, { name: "Event" }, { name: "By" }],
    events.map((event) => ({
      cells: [moment(event.at), kind(event), event.subject || "–", event.message, event.by ?? "–"],
      attributes: { "data-event": event.kind },
    })), { "aria-label": "The last events, the latest first" }));
}

function kind({ kind: name, severity }) {
  const words = name.replaceAll("-", " ");
  return severity ? [state(severity === "critical" ? "bad" : "warn", severity), ` ${words}`] : words;
}
