// What a page says when something is missing, wrong or under way.

import { html } from "../lib/html.js";
import { Said } from "./text.js";

/** An ApiError, or a problem of a job: what is wrong, and the way out. */
export function Problem({ error, retry, title = "" }) {
  if (!error) return null;
  return html`<div class="notice notice-bad" role="alert">
    <p><strong>${title || titleOf(error)}</strong> <${Said} text=${error.detail ?? error.message} /></p>
    ${error.hint && html`<p><${Said} text=${error.hint} /></p>`}
    ${retry && html`<p><button type="button" onClick=${retry}>Try again</button></p>`}
  </div>`;
}

/** A sentence in a box: `tone` is good, bad, wait or plain. */
export function Notice({ tone = "plain", children }) {
  return html`<div class="notice notice-${tone}" role="status">${children}</div>`;
}

/** Where nothing is to be shown yet: what is missing, and what to do about it. */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}

export function Loading({ what = "Loading" }) {
  return html`<p class="loading" role="status">${what}…</p>`;
}

/**
 * What a resource of `useResource` comes to: `children(data)` once there is data, with the problem
 * above it where the last answer was one.
 */
export function Loaded({ resource, what, children }) {
  const { data, error, isLoading, refresh } = resource;
  return html`
    <${Problem} error=${error} retry=${refresh} />
    ${data ? children(data) : isLoading && !error && html`<${Loading} what=${what} />`}
  `;
}

function titleOf(error) {
  if (error.status === 404) return "Not here.";
  if (error.code === "unreachable") return "No connection.";
  return error.title ? `${error.title}.` : "That went wrong.";
}
