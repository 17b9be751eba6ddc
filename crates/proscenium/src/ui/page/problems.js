// What is wrong now: the alarms of the proxy in their order, then members and queues. What follows from another problem is
// folded below it.

import { h, prose, show, state } from "./dom.js";
import { duration, now, plural, seconds } from "./format.js";

/** Longest wait in a queue, in milliseconds, that is normal. */
const WAIT_MAX = 10000;
/** Share of failed requests in the last minute that is normal: catalogs of single agents fail at any time. Refusals do not count. */
const FAILED_SHARE_MAX = 0.05;
/** Fewer failed requests in a minute are those of single agents. */
const FAILED_MIN = 5;
/** Periods of the recent history in a minute. */
const MINUTE = 6;
const SEVERITIES = { critical: "bad", warning: "warn" };

/** The causes in the order of the proxy's alarms, each with the problems that follow from it. */
export function problemsOf({ status, requests, history }) {
  const all = [...status.alarms.map(ofAlarm), ...ofProcess(status, history), ...status.pools.flatMap(ofPool), ...ofQueues(requests)];
  const keys = new Set(status.alarms.map((alarm) => alarm.key));
  const following = ({ key }) => (key === undefined ? [] :
    all.filter((other) => other.cause === key).flatMap((other) => [other, ...following(other)]));
  return all.filter((problem) => !keys.has(problem.cause)).map((problem) => ({ ...problem, follows: following(problem) }));
}

function ofAlarm(alarm) {
  const { key, severity, since, message, effect, first_step: first, runbook, caused_by: cause } = alarm;
  return { key, severity, since, what: message, effect, first, runbook, cause };
}

function* ofProcess({ phase, alarms }, { recent }) {
  if (phase !== "serving") {
    yield { severity: "warning", what: `the proxy is ${phase}`, first: "Wait, or see the log of the service." };
  }
  const periods = recent.slice(-MINUTE);
  const requests = periods.flatMap((period) => Object.values(period.work)).reduce((sum, work) => sum + work.requests, 0);
  const failed = periods.reduce((sum, { failures }) => sum + (failures?.here ?? 0) + (failures?.member ?? 0) + (failures?.cut ?? 0), 0);
  const isExplained = alarms.some((alarm) => alarm.severity === "critical");
  if (failed >= FAILED_MIN && failed > requests * FAILED_SHARE_MAX && !isExplained) {
    yield {
      severity: "warning",
      what: `${failed} of ${plural(requests, "request")} failed in the last minute`,
      first: "Look for members with failures below; `proscenium top` shows the requests.",
    };
  }
}

function ofPool(pool) {
  return pool.members.flatMap((member) => [...ofMember(pool, member)].map(([what, first, since]) => ({
    severity: "warning",
    what: `member ${member.address} of pool ${pool.name} ${what}`,
    first,
    since,
    cause: `pool-unavailable:${pool.name}`,
  })));
}

function* ofMember(pool, member) {
  if (member.health === "down" && member.administrative_state === "ready") {
    const failure = member.last_probe?.failure;
    yield [`is down${failure ? `: ${failure}` : ""}`,
      "On its host, run `systemctl status puppetserver`; then `proscenium doctor` tests the connection.", member.since];
  }
  if (member.ejected_seconds) {
    yield [`is left out for ${duration(member.ejected_seconds)} because requests failed there`,
      "See its log: its probes pass, but its requests fail."];
  }
  if (member.overloaded) {
    yield [`is overloaded (${member.overloaded.why})`, "Add JRubies or members, or lower `jruby_load_max` of the pool."];
  }
}

function ofQueues(requests) {
  const long = (requests?.queues ?? []).filter((queue) => queue.longest_wait_milliseconds > WAIT_MAX);
  return long.map((queue) => ({
    severity: "warning",
    what: `${plural(queue.waiting, "request")} wait for a member of pool ${queue.pool}, the first for ${duration(queue.longest_wait_milliseconds / 1000)}`,
    first: "Look for members that are down, drained or slow below.",
    cause: `pool-unavailable:${queue.pool}`,
  }));
}

/** The problems after the first, which the band shows. */
export function showProblems(problems) {
  show("problems", problems.map((problem) => h("li", { class: SEVERITIES[problem.severity] },
    h("p", { class: "what" }, state(SEVERITIES[problem.severity], problem.severity), " ", prose(problem.what), since(problem)),
    advice(problem))));
}

export function since(problem) {
  return problem.since ? h("span", { class: "since" }, ` for ${duration(now() - seconds(problem.since))}`) : null;
}

/** What a problem causes, what to do first, and what follows from it. */
export function advice({ effect, first, runbook, follows }) {
  return [
    effect ? h("p", { class: "effect" }, prose(effect)) : null,
    first ? h("p", { class: "first" }, h("strong", {}, "First: "), prose(first)) : null,
    runbook ? h("p", { class: "note" }, "Runbook, in the installed documentation: ", h("code", {}, runbook)) : null,
    follows.length === 0 ? null : h("details", { class: "follows" },
      h("summary", {}, follows.length === 1 ? "1 problem follows from this" : `${follows.length} problems follow from this`),
      h("ul", {}, follows.map((problem) => h("li", {}, prose(problem.what), since(problem))))),
  ];
}
