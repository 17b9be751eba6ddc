// The page: reads the state of the proxy again and again, and shows it.

import { connectActions } from "./actions.js";
import { connectSearch, refreshAgent } from "./agents.js";
import { openSession, read } from "./api.js";
import { byId, h, show } from "./dom.js";
import { appliedElsewhere, showFleet } from "./fleet.js";
import { count, duration, now, seconds } from "./format.js";
import { showPools } from "./pools.js";
import { showProblems } from "./problems.js";
import { followScreen, showInterval, showPlots, showWork } from "./traffic.js";
import { showBlocks, showCertificates, showCrls, showRefusals, showRefusedClients } from "./trust.js";

const INTERVAL = 2000;
/** Every this many intervals, lists that change slowly are read too. */
const SLOW = 3;

const state = { actions: false, turn: 0, status: null, traffic: null, history: null, requests: null, expiring: null };

async function start() {
  try {
    state.actions = (await openSession()).actions;
  } catch (error) {
    close(error.message);
    return;
  }
  byId("content").hidden = false;
  connectSearch(state.actions);
  connectActions(changed);
  followScreen();
  for (;;) {
    // A page that is not visible reads nothing, so that the command can end after an hour.
    if (document.visibilityState === "hidden") {
      await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
      continue;
    }
    if (!(await refresh(state.turn % SLOW === 0))) return;
    state.turn += 1;
    await new Promise((resolve) => setTimeout(resolve, INTERVAL));
  }
}

/** Whether the page goes on. */
async function refresh(everything) {
  try {
    const names = ["status", "traffic", "history", ...(everything ? ["requests", "refusals", "certificates", "blocks"] : [])];
    const [status, traffic, history, requests, refusals, expiring, blocks] = await Promise.all(names.map(read));
    Object.assign(state, { status, traffic, history, requests: requests ?? state.requests, expiring: expiring ?? state.expiring });
    showFacts();
    showProblems(status, state.requests);
    showPools(status, state.actions);
    showFleet(status.fleet);
    showWork(traffic, history);
    showPlots(history);
    showInterval(history);
    showRefusals(traffic);
    showCrls(status);
    showCertificates(status, state.expiring);
    if (refusals !== undefined) showRefusedClients(refusals);
    if (blocks !== undefined) showBlocks(blocks, status.fleet, state.actions);
    connection("good", state.actions ? "live, changes allowed" : "live, read-only");
    return true;
  } catch (error) {
    if (error.status === 401 || error.status === 0) {
      close(error.message);
      return false;
    }
    connection("bad", error.message);
    return true;
  }
}

/** Shows what a change has caused. It stays until the next one. */
async function changed({ not_persisted: notPersisted, fleet }) {
  const found = [notPersisted && `The change is active, but a restart would undo it: ${notPersisted}`, ...appliedElsewhere(fleet)];
  show("outcome", found.filter(Boolean).map((line) => h("p", {}, line)));
  await refresh(true);
  await refreshAgent(state.actions);
}

function showFacts() {
  const { status, traffic } = state;
  const facts = [
    ["version", status.version],
    ["phase", status.phase],
    ["generation", status.generation.number],
    ["up for", status.process.started ? duration(now() - seconds(status.process.started)) : "–"],
    ["in flight", count(traffic.in_flight)],
    ["waiting", count(traffic.waiting)],
    ["connections", count(status.listeners.reduce((sum, listener) => sum + listener.connections, 0))],
  ];
  if (status.hand_over) facts.push(["hand-over", `process ${status.hand_over.pid} prepares`]);
  for (const former of status.former_processes ?? []) {
    facts.push([`former process ${former.pid}`, `finishes ${former.in_flight} requests`]);
  }
  show("facts", facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function connection(kind, text) {
  const element = byId("connection");
  element.className = `state ${kind}`;
  if (element.textContent !== text) element.textContent = text;
}

function close(why) {
  connection("bad", "closed");
  byId("content").hidden = true;
  byId("closed").hidden = false;
  byId("closed-why").textContent = why.replaceAll("`", "");
}

start();
