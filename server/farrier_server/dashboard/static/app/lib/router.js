// Pages are paths. Links are plain anchors: a click on one of this site changes the page in place.

import { useEffect, useState } from "preact/hooks";

const CHANGED = "farrier:navigated";

/** Shows the page at `path`; `replace` keeps no entry in the history. */
export function navigate(path, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  dispatchEvent(new Event(CHANGED));
}

/** The place that is shown: `{path, query}`, a URLSearchParams. */
export function useLocation() {
  const [here, setHere] = useState(read);
  useEffect(() => {
    const changed = () => setHere(read());
    addEventListener("popstate", changed);
    addEventListener(CHANGED, changed);
    document.addEventListener("click", stayInPlace);
    return () => {
      removeEventListener("popstate", changed);
      removeEventListener(CHANGED, changed);
      document.removeEventListener("click", stayInPlace);
    };
  }, []);
  return here;
}

/** Changes the query of the page that is shown; null and "" take a field away. */
export function setQuery(changes, { replace = true } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), { replace });
}

/** The page of `routes`, `[pattern, page]`, that a path is of, with its parameters; or null. */
export function matched(routes, path) {
  for (const [pattern, page] of routes) {
    const params = parametersOf(pattern, path);
    if (params) return { page, params };
  }
  return null;
}

function parametersOf(pattern, path) {
  const expected = pattern.split("/");
  const given = path.replace(/(.)\/$/, "$1").split("/");
  if (expected.length !== given.length) return null;
  const params = {};
  for (const [index, part] of expected.entries()) {
    if (!part.startsWith(":")) {
      if (part !== given[index]) return null;
    } else {
      try {
        params[part.slice(1)] = decodeURIComponent(given[index]);
      } catch {
        return null;
      }
    }
  }
  return params;
}

function read() {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

function stayInPlace(event) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.pathname.startsWith("/v1/") || link.pathname === "/docs" || link.hash) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
  scrollTo(0, 0);
}
