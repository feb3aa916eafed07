// Calls of the daemon. A call needs the cookie, which scripts can't read, and the key, which this origin alone has.

const KEY = "sublet.key";
const LOGIN = "/api/login";

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

addEventListener("storage", (event) => {
  if (event.key !== KEY && event.key !== null) return;
  if (!session.key) over();
  session.elsewhere();
});

// What is under way ends with the login that it was asked by: the daemon would refuse it.
let login = new AbortController();
function over() {
  login.abort();
  login = new AbortController();
}

async function request(method, path, { body, signal, key = session.key } = {}) {
  const asked = login.signal;
  if (!key && path !== LOGIN) throw loggedOut();
  const headers = { "X-Sublet-Key": key };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal: signal ? AbortSignal.any([signal, asked]) : asked,
      body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", redirect: "error",
    });
  } catch (error) {
    throw broken(error, signal, asked);
  }
  if (response.ok) return [response, asked];
  const failure = new Failure(response.status, await response.json().catch(() => null));
  if (response.status === 401 && path !== LOGIN && !asked.aborted) { over(); session.ended(); }
  throw failure;
}

function loggedOut() { return new Failure(401, { error: { code: "TOKEN_INVALID", message: "nobody is logged in", hint: "Run `sublet web` in a terminal." } }); }

// Why there is no whole answer: its view was left, the login is over, or the daemon is gone.
function broken(error, signal, asked) {
  if (signal?.aborted) return error;
  if (asked.aborted) return loggedOut();
  return new Failure(0, { error: { code: "DAEMON_UNAVAILABLE", message: "the daemon does not answer", hint: "Is it running? sublet status" } });
}

async function answer(method, path, given = {}) {
  const [response, asked] = await request(method, path, given);
  try { return await response.json(); } catch (error) { throw broken(error, given.signal, asked); }
}

export async function get(path, signal) { return answer("GET", path, { signal }); }
export async function post(path, body = {}) { return answer("POST", path, { body }); }
export async function remove(path) { return answer("DELETE", path); }
export async function open(path, signal) { return (await request("GET", path, { signal }))[0]; }

export async function logIn(secret) {
  const found = await post(LOGIN, { secret });
  over();
  session.key = found.key;
}

export async function logOut() {
  const key = session.key;
  session.key = "";
  over();
  await answer("POST", "/api/logout", { body: {}, key });
}
