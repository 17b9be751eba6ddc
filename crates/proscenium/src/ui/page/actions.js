// Changes, each after a confirmation and with a reason.

import { post } from "./api.js";
import { byId } from "./dom.js";
import { subject } from "./trust.js";

let pending = null;

/** What each button asks for. */
const ACTIONS = {
  drain: ({ pool, member }) => ({
    title: `Drain ${member}?`,
    text: `The member of pool ${pool} finishes its requests and gets no more, also after a restart of the proxy.`,
    verb: "Drain",
    send: (why, force) => post("member", { pool, member, state: "drain", why, force }),
  }),
  ready: ({ pool, member }) => ({
    title: `Put ${member} back into service?`,
    text: `The member of pool ${pool} gets requests again.`,
    verb: "Put into service",
    send: (why) => post("member", { pool, member, state: "ready", why }),
  }),
  block: ({ certname }) => ({
    title: `Block ${certname}?`,
    text: "The proxy refuses every certificate of this name from now on, and closes its connections. The agent cannot run until the block is lifted.",
    verb: "Block",
    send: (why) => post("block", { certname, why }),
  }),
  unblock: ({ subject: blocked }) => ({
    title: `Lift the block of ${subject(JSON.parse(blocked))}?`,
    text: "The proxy accepts its certificates again, unless a CRL revokes them.",
    verb: "Lift the block",
    withoutReason: true,
    send: () => post("unblock", JSON.parse(blocked)),
  }),
};

/** Connects the buttons and the dialog. `done` is called after a change. */
export function connectActions(done) {
  const dialog = byId("dialog");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (button !== null) ask(ACTIONS[button.dataset.action](button.dataset));
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
  byId("dialog-text").textContent = action.text;
  byId("confirm").textContent = action.verb;
  byId("dialog-error").textContent = "";
  byId("dialog-why").hidden = action.withoutReason === true;
  byId("dialog-force").hidden = true;
  byId("why").value = "";
  byId("why").required = action.withoutReason !== true;
  byId("force").checked = false;
  byId("dialog").showModal();
}

async function confirm(done) {
  const why = byId("why").value.trim();
  if (pending.withoutReason !== true && why === "") {
    byId("dialog-error").textContent = "Write a reason.";
    byId("why").focus();
    return;
  }
  byId("confirm").disabled = true;
  try {
    const outcome = await pending.send(why, byId("force").checked);
    byId("dialog").close();
    await done(outcome);
  } catch (error) {
    byId("dialog-error").textContent = error.message;
    byId("dialog-force").hidden = error.status !== 409;
  } finally {
    byId("confirm").disabled = false;
  }
}
