// Requests to the REST API. Every answer that is no success becomes an ApiError.

const TIMEOUT_MS = 20_000;

const ROLES = ["user", "operator", "admin"]; // each has the rights of those before it

let csrf = "";
let role = "";
let whenSignedOut = () => {};

/** Why a request failed: the problem+json of the API, or that it could not be reached. */
export class ApiError extends Error {
  constructor({ status = 0, code = "unreachable", title = "", detail = "", hint = "", retryAfter = null }) {
    super(detail || title);
    Object.assign(this, { status, code, title, detail, hint, retryAfter });
  }
}

/** Calls `handler(error)` whenever the session is refused. */
export function onSignedOut(handler) {
  whenSignedOut = handler;
}

export const get = (path, options) => request("GET", path, options);
export const post = (path, body, options) => request("POST", path, { ...options, body });
export const remove = (path, options) => request("DELETE", path, options);

/**
 * The session of the cookie, or null; one that has expired is told as such. It brings the token that
 * each change has to carry.
 */
export async function openSession() {
  try {
    const session = await request("GET", "/v1/session", { quiet: true });
    return session && remember(session);
  } catch (error) {
    if (error.status !== 401) throw error;
    if (error.code === "session-expired") whenSignedOut(error);
    return null;
  }
}

export async function logIn(token) {
  return remember(await request("POST", "/v1/session", { body: { token }, quiet: true }));
}

export async function logOut() {
  await request("DELETE", "/v1/session", { quiet: true });
  csrf = "";
}

/**
 * One request. `body` is sent as JSON, or as it is where it is a Blob; `headers` are added; `quiet`
 * keeps a 401 from ending the session on the page. Returns the JSON, null for 204.
 */
export async function request(method, path, { body, headers = {}, signal, quiet = false } = {}) {
  const sent = { Accept: "application/json", ...headers };
  if (method !== "GET" && csrf) sent["X-CSRF-Token"] = csrf;
  const isRaw = body instanceof Blob;
  if (body !== undefined && !isRaw) sent["Content-Type"] = "application/json";
  const answer = await reached(path, {
    method,
    headers: sent,
    body: body === undefined || isRaw ? body : JSON.stringify(body),
    credentials: "same-origin",
    signal: isRaw ? signal : AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), ...(signal ? [signal] : [])]),
  });
  if (!answer.ok) {
    const error = await problemOf(answer);
    if (error.status === 401 && !quiet) whenSignedOut(error);
    throw error;
  }
  if (answer.status === 204) return null;
  const type = answer.headers.get("Content-Type") ?? "";
  return type.includes("json") ? answer.json() : answer.text();
}

async function reached(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({
      detail: error.name === "TimeoutError" ? "The server does not answer." : "The server cannot be reached.",
      hint: "The page tries again by itself.",
    });
  }
}

async function problemOf(answer) {
  const problem = await answer.json().catch(() => ({}));
  const given = Number(answer.headers.get("Retry-After"));
  return new ApiError({
    status: answer.status,
    code: problem.code ?? `http-${answer.status}`,
    title: problem.title ?? answer.statusText,
    detail: problem.detail ?? `The server answered ${answer.status}.`,
    hint: problem.hint ?? "",
    retryAfter: Number.isFinite(given) && given > 0 ? given : null,
  });
}

/** Whether the reader has the rights of the role `least`. The server holds to it; a page offers what it allows. */
export const isAtLeast = (least) => ROLES.indexOf(role) >= ROLES.indexOf(least);

function remember(session) {
  csrf = session.csrf;
  role = session.role;
  return session;
}
