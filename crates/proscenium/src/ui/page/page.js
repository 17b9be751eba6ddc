// The page: reads the state of the proxy again and again, and shows it.

import { connectActions } from "./actions.js";
import { connectSearch, refreshAgent } from "./agents.js";
import { closeSession, openSession, read } from "./api.js";
import { showLost, showState } from "./band.js";
import { byId, h, show } from "./dom.js";
import { showDrawing } from "./drawing.js";
import { appliedElsewhere, showFleet } from "./fleet.js";
import { duration, moment, now, plural, seconds } from "./format.js";
import { connectRows, showPools } from "./pools.js";
import { problemsOf, showProblems } from "./problems.js";
import { showRecent } from "./recent.js";
import { followScreen, showInterval, showPlots, showWork } from "./traffic.js";
import { showBlocks, showRefusals, showRefusedClients, showTrust } from "./trust.js";

const INTERVAL = 2000;
/** Every this many intervals, lists that change slowly are read too. */
const SLOW = 3;
const OFTEN = ["status", "traffic", "history"];
const SELDOM = ["requests", "refusals", "certificates", "blocks", "events"];

/** The last answers, and the time of the last of them. */
const state = { actions: false, answered: null };

async function start() {
  try {
    state.actions = (await openSession()).actions;
  } catch (error) {
    lost(error);
    return;
  }
  connectSearch(state.actions);
  connectActions(() => state.status, changed);
  connectRows(() => showPools(state.status, state.actions));
  followScreen(() => showDrawing(state.status, state.traffic, problemsOf(state)));
  for (let turn = 0; ; turn += 1) {
    // A page that is not visible reads nothing, so that the command can end after an hour.
    while (document.visibilityState === "hidden") {
      await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    }
    if (!(await refresh(turn % SLOW === 0))) return;
    await new Promise((resolve) => setTimeout(resolve, INTERVAL));
  }
}

/** Whether the page goes on. */
async function refresh(everything) {
  // After an outage everything is read.
  const names = everything || state.answered === null || state.lost ? [...OFTEN, ...SELDOM] : OFTEN;
  try {
    const answers = await Promise.all(names.map((name) => read(name).catch(absent)));
    Object.assign(state, Object.fromEntries(names.map((name, index) => [name, answers[index]])));
    byId("content").hidden = false;
    showAll();
  } catch (error) {
    lost(error);
    return error.status !== 401 && error.status !== 0;
  }
  Object.assign(state, { lost: false, answered: Date.now() });
  // Only a search draws this part again.
  for (const button of document.querySelectorAll("#agent [data-action]")) button.disabled = false;
  byId("content").classList.remove("stale");
  connection("good", state.actions ? "live, changes allowed" : "live, read-only");
  return true;
}

/** An older proxy lacks what a newer page asks for. */
function absent(error) {
  if (error.status === 404) return null;
  throw error;
}

function showAll() {
  const { status, traffic, history, actions } = state;
  const problems = problemsOf(state);
  showFacts(status);
  showState(status, problems);
  showProblems(problems.slice(1));
  showDrawing(status, traffic, problems);
  showPools(status, actions);
  showWork(traffic, history);
  showPlots(history);
  showFleet(status.fleet);
  showRecent(state.events);
  showBlocks(state.blocks, status.fleet, actions);
  showRefusals(traffic);
  showRefusedClients(state.refusals);
  showTrust(status, state.certificates);
  showInterval(history);
}

/** Nothing new is known. What was known is greyed, and no change can be requested from it. */
function lost(error) {
  state.lost = true;
  showLost(state.answered, error, state.status?.fleet?.name);
  connection("bad", state.answered === null ? "no answer" : `no answer since ${moment(state.answered)}`);
  byId("content").classList.add("stale");
  for (const button of document.querySelectorAll("[data-action]")) button.disabled = true;
  byId("content").hidden = error.status === 401 || state.answered === null;
  if (error.status === 401) closeSession();
}

/** Shows what a change has caused. It stays until the next one. */
async function changed({ not_persisted: notPersisted, fleet }) {
  const found = [notPersisted && `The change is active, but a restart would undo it: ${notPersisted}`, ...appliedElsewhere(fleet)];
  show("outcome", found.filter(Boolean).map((line) => h("p", {}, line)));
  await refresh(true);
  await refreshAgent(state.actions);
}

function showFacts(status) {
  const facts = [
    ["version", status.version],
    ["generation", status.generation.number],
    ["up for", status.process.started ? duration(now() - seconds(status.process.started)) : "–"],
  ];
  if (status.hand_over) facts.push(["hand-over", `process ${status.hand_over.pid} prepares`]);
  for (const former of status.former_processes ?? []) {
    facts.push([`former process ${former.pid}`, `finishes ${plural(former.in_flight, "request")}`]);
  }
  show("facts", facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function connection(kind, text) {
  const element = byId("connection");
  element.className = `state ${kind}`;
  if (element.textContent !== text) element.textContent = text;
}

start();
