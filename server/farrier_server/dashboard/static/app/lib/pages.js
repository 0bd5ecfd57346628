// Pages whose modules are fetched when they are first shown, or before that when nothing else is to do.

import { useEffect, useState } from "preact/hooks";
import { Loading, Problem } from "../ui/feedback.js";
import { ApiError } from "./api.js";
import { html } from "./html.js";

const AT_REST_MS = 3000; // where a browser does not tell when it is idle

/** A component that stands for the one that `load()` resolves to; `Page.fetch()` brings its module. */
export function page(load) {
  let Content = null;
  let fetched = null;
  const fetch = () =>
    (fetched ??= load().then(
      (made) => (Content = made),
      (error) => {
        fetched = null;
        throw error;
      },
    ));

  function Page(props) {
    const [error, setError] = useState(null);
    const [, setFetched] = useState(false);
    const isThere = Content !== null; // it may come between this and the effect
    useEffect(() => {
      if (!isThere) fetch().then(() => setFetched(true), setError);
    }, []);
    if (Content) return html`<${Content} ...${props} />`;
    return error ? html`<${Problem} error=${NOT_FETCHED} retry=${() => location.reload()} />` : html`<${Loading} what="Opening" />`;
  }
  Page.fetch = fetch;
  return Page;
}

/** Fetches pages once the browser is idle, so that they are there when the server is not. */
export function fetchAtRest(pages) {
  const fetchAll = () => pages.forEach((one) => one.fetch().catch(() => {})); // it is tried again when it is shown
  if ("requestIdleCallback" in window) requestIdleCallback(fetchAll, { timeout: 2 * AT_REST_MS });
  else setTimeout(fetchAll, AT_REST_MS);
}

const NOT_FETCHED = new ApiError({
  detail: "This page cannot be fetched: the server is away, or it has another version of the dashboard now.",
  hint: "Load it anew.",
});
