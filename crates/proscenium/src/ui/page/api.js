// Requests to the process that serves this page. The secret is in sessionStorage: it survives a reload of the tab and ends
// with the tab. Other addresses cannot read it, and a new tab does not have it; a duplicate of the tab gets a copy.

const STORED = "proscenium";
/** Milliseconds until a request counts as not answered. The proxy answers within a fraction of a second. */
const ANSWER_MAX = 15000;

let secret = null;

/** A request that was refused, with the sentence of the proxy. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/**
 * Exchanges the token of the address for the secret, or continues the session of this tab. The token works once, so it is
 * removed from the address.
 */
export async function openSession() {
  const token = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  if (/^[0-9a-f]{64}$/.test(token)) {
    const session = await send("POST", "/session", token);
    sessionStorage.setItem(STORED, JSON.stringify(session));
  }
  const stored = sessionStorage.getItem(STORED);
  if (stored === null) {
    throw new Refused(401, "Open the address that `proscenium ui` prints: it ends with a token that works once.");
  }
  const session = JSON.parse(stored);
  secret = session.secret;
  return { actions: session.actions };
}

/** Forgets a session that has ended. */
export function closeSession() {
  secret = null;
  sessionStorage.removeItem(STORED);
}

export function read(name) {
  return send("GET", `/api/${name}`);
}

export function post(name, body) {
  return send("POST", `/api/${name}`, JSON.stringify(body));
}

async function send(method, path, body) {
  const headers = secret === null ? {} : { "X-Proscenium-Secret": secret };
  const signal = AbortSignal.timeout(ANSWER_MAX);
  const request = { method, headers, body, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  let response;
  let text;
  try {
    response = await fetch(path, request);
    text = await response.text();
  } catch (error) {
    throw error.name === "TimeoutError"
      ? new Refused(504, "The proxy accepts the request and does not answer it. See the log of the service.")
      : new Refused(0, "The command `proscenium ui` has ended or cannot be reached. Run it again, and open the new address.");
  }
  if (response.ok) {
    return JSON.parse(text);
  }
  let detail = `${response.status} ${response.statusText}`;
  try {
    detail = JSON.parse(text).detail;
  } catch {
    // The status says enough.
  }
  throw new Refused(response.status, detail);
}
