// The search for an agent, what the proxy knows about it, and its last runs.

import { post } from "./api.js";
import { byId, h, none, show, state, table } from "./dom.js";
import { ago, count, milliseconds, plural, time, until } from "./format.js";

let open = null;

/** Connects the form. `failed` shows why a search did not work. */
export function connectSearch(actions) {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search(byId("certname").value.trim(), actions);
  });
  byId("matches").addEventListener("click", (event) => {
    const name = event.target.closest("[data-agent]")?.dataset.agent;
    if (name !== undefined) showAgent(name, actions);
  });
}

async function search(wanted, actions) {
  show("agent");
  open = null;
  if (wanted === "") {
    show("matches", none("Write a certname or a part of it."));
    return;
  }
  try {
    const found = await post("agents", { certname: wanted });
    const exact = found.agents.find((agent) => agent.certname === wanted);
    if (exact !== undefined || found.agents.length === 0) {
      show("matches", found.agents.length === 0 ? none(`No agent with this name was seen since the start, among ${plural(found.seen, "agent")}.`) : null);
      await showAgent(exact?.certname ?? wanted, actions);
      return;
    }
    show("matches",
      h("p", {}, `${plural(found.matches, "agent")} of ${count(found.seen)}${found.matches > found.agents.length ? `, the first ${found.agents.length}` : ""}:`),
      h("ul", { class: "matches" }, found.agents.map((agent) => h("li", {},
        h("button", { type: "button", "data-agent": agent.certname }, agent.certname),
        ` seen ${ago(agent.at)} from ${agent.client}`, agent.refused ? [" ", state("bad", agent.refused)] : null))));
  } catch (error) {
    show("matches", h("p", { class: "error" }, error.message));
  }
}

/** Shows the agent that is open again, after a change. */
export async function refreshAgent(actions) {
  if (open !== null) await showAgent(open, actions);
}

async function showAgent(certname, actions) {
  open = certname;
  try {
    const [who, recorded] = await Promise.all([post("who", { certname }), post("runs", { certname })]);
    if (open !== certname) return;
    show("agent", h("article", { "data-certname": certname, "aria-labelledby": "agent-name" },
      h("div", { class: "head" },
        h("h3", { id: "agent-name" }, certname),
        actions ? h("button", { type: "button", "data-action": "block", "data-certname": certname }, "Block") : null),
      facts(who),
      refusals(who.refusals),
      h("h4", {}, "Last runs"),
      runs(recorded, who.seen?.requests ?? [])));
  } catch (error) {
    show("agent", h("p", { class: "error" }, error.message));
  }
}

function facts(who) {
  const rows = [
    ["Verdict", who.verdict === null ? "not decided without a connection" : state(who.verdict === "SUCCESS" ? "good" : "bad", who.verdict)],
    who.refusal && ["Answer", who.refusal],
    ["Seen", who.seen ? `${ago(who.seen.at)} from ${who.seen.client}` : "not since the start"],
    who.certificate && ["Certificate", `serial ${who.certificate.serial} of ${who.certificate.issuer}, expires ${until(who.certificate.not_after)}`],
    ...who.blocks.map((block) => ["Blocked", `by ${block.by} ${ago(block.since)}: ${block.why}`]),
    ...who.crls.filter((crl) => crl.revoked).map((crl) => ["Revoked", `by ${crl.issuer}${crl.revoked_at ? ` at ${time(crl.revoked_at)}` : ""}`]),
  ];
  return h("dl", { class: "facts" }, rows.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function refusals(list) {
  if (list.length === 0) return null;
  return table("Refusals of this name", [{ name: "Reason" }, { name: "Times", class: "number" }, { name: "Last" }, { name: "From" }],
    list.slice(0, 5).map((refusal) => ({ cells: [h("code", {}, refusal.reason), count(refusal.count), ago(refusal.last_at), refusal.client] })));
}

function runs(recorded, remembered) {
  if (recorded.runs.length === 0) {
    const why = recorded.problem ? `The access log is not available here: ${recorded.problem}.` : `${recorded.log} has no request of this agent.`;
    return [
      h("p", { class: "note" }, why),
      remembered.length === 0 ? null : table("The last requests in the memory of the proxy",
        [{ name: "At" }, { name: "Request" }, { name: "Status", class: "number" }],
        remembered.map((request) => ({ cells: [time(request.at), h("code", {}, request.line), [request.status ?? "–", request.reason ? ` (${request.reason})` : ""]] }))),
    ];
  }
  const log = h("p", { class: "note" }, `From ${recorded.log}.`);
  return [log, ...[...recorded.runs].reverse().map((run, index) => h("details", { open: index === 0 },
    h("summary", {}, `${time(run.began)}: ${plural(run.requests.length, "request")} in ${milliseconds(run.seconds * 1000)}`,
      run.requests.some((request) => request.status >= 400) ? [" ", state("bad", "with errors")] : null),
    table("Requests of the run", [{ name: "Offset", class: "number" }, { name: "Took", class: "number" }, { name: "Status", class: "number" }, { name: "At" }, { name: "Request" }],
      run.requests.map((request) => ({
        cells: [
          `+${milliseconds(request.offset * 1000)}`,
          milliseconds(request.seconds * 1000),
          request.status,
          request.member,
          [h("code", {}, request.request), request.reason ? ` (${request.reason})` : ""],
        ],
      })))))];
}
