// Changes, each after a confirmation and with a reason.

import { post } from "./api.js";
import { byId, h, show } from "./dom.js";
import { plural } from "./format.js";
import { subject } from "./trust.js";

let pending = null;

/** What each button asks for. */
const ACTIONS = {
  drain: ({ pool, member }, status) => ({
    title: `Drain ${member}?`,
    text: [
      `The member of pool ${pool} finishes its requests and gets no more, also after a restart of the proxy.`,
      ...drained(status.pools.find((each) => each.name === pool), member),
    ],
    verb: "Drain",
    hasEnd: true,
    send: ({ why, until, force }) => post("member", { pool, member, state: "drain", why, until, force }),
  }),
  ready: ({ pool, member }) => ({
    title: `Put ${member} back into service?`,
    text: [`The member of pool ${pool} gets requests again.`],
    verb: "Put into service",
    send: ({ why }) => post("member", { pool, member, state: "ready", why }),
  }),
  block: ({ certname }) => ({
    title: `Block ${certname}?`,
    text: ["The proxy refuses every certificate of this name from now on, and closes its connections. The agent cannot run until the block is lifted."],
    verb: "Block",
    send: ({ why }) => post("block", { certname, why }),
  }),
  unblock: ({ subject: blocked }) => ({
    title: `Lift the block of ${subject(JSON.parse(blocked))}?`,
    text: ["The proxy accepts its certificates again, unless a CRL revokes them."],
    verb: "Lift the block",
    withoutReason: true,
    send: () => post("unblock", JSON.parse(blocked)),
  }),
};

/** What a drain would end, and what would be left. */
function drained(pool, address) {
  const member = pool?.members.find((each) => each.address === address);
  if (member === undefined) return [];
  const stays = pool.members.filter((each) => each !== member && each.health === "up" &&
    each.administrative_state === "ready" && !each.ejected_seconds && isInService(each.agent_check));
  const running = [plural(member.in_flight - member.tunnels, "request"), member.tunnels > 0 && plural(member.tunnels, "tunnel")];
  return [
    `In flight there now: ${running.filter(Boolean).join(" and ")}.`,
    stays.length === 0
      ? `No other member of pool ${pool.name} is available: requests to it would get 503.`
      : `Available in pool ${pool.name} after it: ${stays.length} of ${pool.members.length} members (${stays.map((each) => each.address).join(", ")}).`,
  ];
}

/** Whether an agent check, if there is one, keeps its member in service. */
function isInService(check) {
  return !check || (!check.down && check.state === "ready");
}

/** Connects the buttons and the dialog. `status` returns the last status; `done` is called after a change. */
export function connectActions(status, done) {
  const dialog = byId("dialog");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (button !== null) ask(ACTIONS[button.dataset.action](button.dataset, status()));
  });
  byId("cancel").addEventListener("click", () => dialog.close());
  byId("action").addEventListener("submit", (event) => {
    event.preventDefault();
    confirm(done);
  });
}

function ask(action) {
  pending = action;
  byId("dialog-title").textContent = action.title;
  show("dialog-text", action.text.map((line) => h("p", {}, line)));
  byId("confirm").textContent = action.verb;
  byId("dialog-error").textContent = "";
  byId("dialog-why").hidden = action.withoutReason === true;
  byId("dialog-until").hidden = action.hasEnd !== true;
  byId("dialog-force").hidden = true;
  byId("why").value = "";
  byId("why").required = action.withoutReason !== true;
  byId("until").value = "";
  byId("force").checked = false;
  byId("dialog").showModal();
}

async function confirm(done) {
  const [why, until] = ["why", "until"].map((id) => byId(id).value.trim());
  if (pending.withoutReason !== true && why === "") {
    byId("dialog-error").textContent = "Write a reason.";
    byId("why").focus();
    return;
  }
  byId("confirm").disabled = true;
  try {
    const outcome = await pending.send({ why, until: until || null, force: byId("force").checked });
    byId("dialog").close();
    await done(outcome);
  } catch (error) {
    byId("dialog-error").textContent = error.message;
    byId("dialog-force").hidden = error.status !== 409;
  } finally {
    byId("confirm").disabled = false;
  }
}
