// Requests to the process that serves this page. The secret is in the memory of this page only.

let secret = null;

/** A request that was refused, with the sentence of the proxy. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Exchanges the token of the address for the secret. The token works once, so it is removed from the address. */
export async function openSession() {
  const token = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  if (!/^[0-9a-f]{64}$/.test(token)) {
    throw new Refused(401, "Open the address that `proscenium ui` prints: it ends with a token that works once. " +
      "A page that was reloaded needs a new one; press Enter in the terminal of `proscenium ui`.");
  }
  const session = await send("POST", "/session", token);
  secret = session.secret;
  return { actions: session.actions };
}

export function read(name) {
  return send("GET", `/api/${name}`);
}

export function post(name, body) {
  return send("POST", `/api/${name}`, JSON.stringify(body));
}

async function send(method, path, body) {
  const headers = secret === null ? {} : { "X-Proscenium-Secret": secret };
  const request = { method, headers, body, cache: "no-store", credentials: "omit", redirect: "error" };
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new Refused(0, "The command `proscenium ui` has ended or cannot be reached. Run it again, and open the new address.");
  }
  const text = await response.text();
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
