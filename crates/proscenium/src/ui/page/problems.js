// What is wrong now, the most urgent first, each with the first step.

import { h, none, prose, show, state } from "./dom.js";
import { ago, duration, plural } from "./format.js";

/** The first step for each kind of alarm. */
const FIRST = {
  "pool-unavailable": "See the probes of its members below. On a member's host, run `systemctl status puppetserver`; if you drained the last member, put it back into service.",
  "queue-full": "Look for members that are down or slow below. If all are well, add members or raise their limits.",
  "agents-refused": "Provide a current CRL: run `proscenium crl fetch`, or copy the CA's CRL to this host. `proscenium crl show` has the details.",
  "trust": "Run `proscenium crl show`, and renew the CA or CRL that it names before agents are refused.",
  "crl-fetch": "Check the pool ca below, then run `proscenium crl fetch`.",
  "crl-shrunk": "Find out why the CA's CRL lacks revocations, for example a restored backup. Accept it with `proscenium crl accept` only if that is intended.",
  "crl-unusable": "Run `proscenium crl show` for the reason.",
  "ca-copy": "Check the pool ca below.",
  "materials-refused": "Correct the file that the message names, or restore it. `proscenium check` tests the files.",
  "reload-refused": "Correct the file that the message names, or restore it; `proscenium check` shows every problem. Then run `proscenium reload`.",
  "restart-pending": "Run the command that the message names at a quiet time, or restore the former values or program.",
  "materials-watch": "Changes are noticed later. Raise the limits of inotify, or ignore this.",
  "renewal-off": "Check the CA server: the message says what is wrong with its renewals. Then run `proscenium reload`.",
  "renewals-refused": "Let agents renew: add the proxy to `infra_inventory.txt` on the CA server, and set `renewal = true` in `[ca]`.",
  "agents-expiring": "Run `proscenium certificates` for the list, and renew these certificates before they expire.",
  "ca-expiring": "Renew the CA with the same key, and distribute it to every host: `guides/ca-expiry.md` has the steps.",
  "certificate-expiring": "Renew the certificate on this host: `puppet ssl bootstrap` or your own tool.",
  "certificate-invalid": "Agents refuse this certificate. Replace it now; `proscenium doctor` shows which file.",
  "state-directory": "Make the state directory writable for the service's account, or blocks and drains are lost at a restart.",
  "member-states": "Drain again the members that were out of service before the restart.",
  "clock-offset": "Check the clock of this host first: `timedatectl`.",
  "certname-of-two-cas": "Two hosts may have one certname. `proscenium who NAME` shows the issuer; `proscenium block --serial N --issuer CA` blocks one of them.",
  "jruby-count": "Check whether the member is a Puppet Server.",
  "dns-answer": "Check the DNS server and the name: `dig NAME`.",
  "descriptors": "Raise the limit that the message names, then restart the proxy if it is a limit of the process.",
  "fleet-unreachable": "Run each drain and block on every proxy until the store is back: `operating/fleet.md`.",
  "fleet-record": "Compare the key files of all proxies. If they are equal, another client writes to the store.",
  "fleet-store-older": "Check whether etcd was restored from a backup. The proxies put back what it lacks.",
  "fleet-no-space": "Compact and defragment etcd, then run `etcdctl alarm disarm`.",
  "fleet-clock": "Check the clock of this host: `timedatectl`.",
  "fleet-last-member": "Make another member of the pool available, or repeat the drain with `--force`.",
  "fleet-differs": "See the fleet below, and apply the same configuration to all proxies.",
  "passthrough-member": "Remove the address from DNS or from the pool that passes connections through.",
};

export function problemsOf(status, requests) {
  const found = status.alarms.filter((alarm) => !alarm.caused_by).map((alarm) => ({
    severity: alarm.severity === "critical" ? "error" : "warning",
    what: alarm.message,
    since: alarm.since,
    first: FIRST[alarm.key.split(":")[0]] ?? "Run `proscenium status` and see the log.",
    follows: status.alarms.filter((other) => other.caused_by === alarm.key),
  }));
  if (status.phase !== "serving") {
    found.push({ severity: "error", what: `the proxy is ${status.phase}`, first: "Wait, or see the log of the service." });
  }
  for (const pool of status.pools) found.push(...ofPool(pool));
  for (const queue of requests?.queues ?? []) {
    if ((queue.longest_wait_milliseconds ?? 0) > 10000) {
      found.push({
        severity: "warning",
        what: `${plural(queue.waiting, "request")} wait for a member of pool ${queue.pool}, the first for ${duration(queue.longest_wait_milliseconds / 1000)}`,
        first: "Look for members that are down, drained or slow below.",
      });
    }
  }
  const rank = (problem) => (problem.severity === "error" ? 0 : 1);
  return found.sort((a, b) => rank(a) - rank(b) || String(a.since ?? "").localeCompare(String(b.since ?? "")));
}

function* ofPool(pool) {
  for (const member of pool.members) {
    const name = `member ${member.address} of pool ${pool.name}`;
    if (member.health === "down" && member.administrative_state === "ready") {
      const failure = member.last_probe?.failure;
      yield {
        severity: "warning",
        what: `${name} is down${failure ? `: ${failure}` : ""}`,
        since: member.since,
        first: "On its host, run `systemctl status puppetserver`; then `proscenium doctor` tests the connection.",
      };
    }
    if (member.ejected_seconds) {
      yield {
        severity: "warning",
        what: `${name} is left out for ${duration(member.ejected_seconds)} because requests failed there`,
        first: "See its log: its probes pass, but its requests fail.",
      };
    }
    if (member.overloaded) {
      yield {
        severity: "warning",
        what: `${name} is overloaded (${member.overloaded.why})`,
        first: "Add JRubies or members, or lower `jruby_load_max` of the pool.",
      };
    }
  }
}

export function showProblems(status, requests) {
  const problems = problemsOf(status, requests);
  if (problems.length === 0) {
    show("problems-body", none("Nothing. No alarm is active, and every member that is in service is up."));
  } else {
    show("problems-body", h("ol", { class: "problems" }, problems.map((problem, index) => h("li", { class: problem.severity },
      h("p", { class: "what" }, state(problem.severity === "error" ? "bad" : "warn", problem.severity), " ", problem.what,
        problem.since ? h("span", { class: "since" }, ` since ${ago(problem.since)}`.replace(" ago", "")) : null),
      h("p", { class: "first" }, h("strong", {}, index === 0 ? "Do this first: " : "Then: "), prose(problem.first)),
      problem.follows?.length
        ? h("details", {}, h("summary", {}, `${plural(problem.follows.length, "alarm")} would end with a right clock`),
          h("ul", {}, problem.follows.map((alarm) => h("li", {}, alarm.message))))
        : null))));
  }
  document.title = problems.length === 0 ? "Proscenium" : `(${problems.length}) Proscenium`;
}
