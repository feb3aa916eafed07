// Calls of the daemon. A call needs the cookie, which scripts can't read, and the key, which this origin alone has.

const KEY = "sublet.key";

export class Failure extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message ?? "the daemon's answer is not understood");
    this.status = status;
    this.code = error.code ?? "INTERNAL";
    this.hint = error.hint ?? "";
  }
}

export const session = {
  get key() { return localStorage.getItem(KEY) ?? ""; },
  set key(value) { if (value) localStorage.setItem(KEY, value); else localStorage.removeItem(KEY); },
  ended: () => {}, // what the daemon does not know any more
  elsewhere: () => {}, // another tab has logged in or out, and with it this one
};

addEventListener("storage", (event) => { if (event.key === KEY || event.key === null) session.elsewhere(); });

async function request(method, path, body, signal) {
  const headers = { "X-Sublet-Key": session.key };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", redirect: "error",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, { error: { code: "DAEMON_UNAVAILABLE", message: "the daemon does not answer", hint: "Is it running? sublet status" } });
  }
  if (response.ok) return response;
  const failure = new Failure(response.status, await response.json().catch(() => null));
  if (response.status === 401) session.ended();
  throw failure;
}

export async function get(path, signal) { return (await request("GET", path, undefined, signal)).json(); }
export async function post(path, body = {}) { return (await request("POST", path, body)).json(); }
export async function remove(path) { return (await request("DELETE", path)).json(); }
export async function open(path, signal) { return request("GET", path, undefined, signal); }

export async function logIn(secret) {
  const found = await post("/api/login", { secret });
  session.key = found.key;
}

export async function logOut() {
  try { await post("/api/logout"); } finally { session.key = ""; }
}
