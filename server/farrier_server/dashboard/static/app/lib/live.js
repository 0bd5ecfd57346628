// Event streams that come back by themselves, and resources that are kept fresh.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get } from "./api.js";

const GATHERED_MS = 200; // events reach the page together, so a burst is one rendering
const RETRY_MS = [1000, 2000, 5000, 10_000];
const KINDS = [
  "state", "stage-started", "stage-finished", "sizes-settled", "tasks-found", "tuning-started",
  "trials-measured", "variants-compared", "time-spent", "verified", "raced", "version-added", "rolled-back",
  "warned", "job", "device", "warning",
];

/**
 * Follows the event stream at `path` from the event `after` on, whatever breaks it.
 * `onEvents(list)` gets events `{id, kind, …}` some at a time; `onLink(link, error)` gets "live",
 * "broken" (it is tried again) or "refused" (with the ApiError: the job is gone, the session over).
 * Returns a function that stops.
 */
export function follow(path, { after = "", onEvents, onLink = () => {} }) {
  let source = null;
  let timer = 0;
  let flush = 0;
  let failures = 0;
  let gathered = [];
  let last = after;
  let isOver = false;

  const hand = () => {
    flush = 0;
    const events = gathered;
    gathered = [];
    if (events.length) onEvents(events);
  };
  const take = (message) => {
    last = message.lastEventId || last;
    const event = { id: last, ...JSON.parse(message.data) };
    gathered.push(event);
    flush ||= setTimeout(hand, GATHERED_MS);
    if (event.kind === "state" && FINAL.has(event.state)) stop({ keep: true });
  };
  const open = () => {
    source = new EventSource(last ? `${path}?after=${encodeURIComponent(last)}` : path);
    source.onopen = () => {
      failures = 0;
      onLink("live");
    };
    source.onerror = retry;
    for (const kind of KINDS) source.addEventListener(kind, take);
  };
  // An EventSource does not tell why it failed: the page asks, and waits a while longer each time.
  const retry = async () => {
    source.close();
    if (isOver) return;
    onLink("broken");
    const refused = await reasonFor(path);
    if (isOver) return;
    if (refused) {
      stop({ keep: true });
      onLink("refused", refused);
      return;
    }
    timer = setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  };
  const stop = ({ keep = false } = {}) => {
    isOver = true;
    source?.close();
    clearTimeout(timer);
    if (!keep) clearTimeout(flush);
  };
  open();
  return stop;
}

const FINAL = new Set(["succeeded", "failed", "cancelled", "dead"]);

/** The error that says why a stream is not given, or null where the server is merely away. */
async function reasonFor(path) {
  const resource = path === "/v1/events" ? "/v1/session" : path.replace(/\/events$/, "");
  try {
    await get(resource);
  } catch (error) {
    if (error.status === 401 || error.status === 404) return error;
  }
  return null;
}

/** The events of `path` while the component is shown. Returns "connecting" or the link's state. */
export function useEvents(path, onEvents, { after = "", enabled = true, onRefused = () => {} } = {}) {
  const [link, setLink] = useState("connecting");
  const latest = useRef({});
  latest.current = { onEvents, onRefused };
  useEffect(() => {
    if (!enabled || !path) return undefined;
    return follow(path, {
      after,
      onEvents: (events) => latest.current.onEvents(events),
      onLink: (state, error) => {
        setLink(state);
        if (state === "refused") latest.current.onRefused(error);
      },
    });
  }, [path, enabled]); // `after` is where it begins, not a reason to begin anew
  return link;
}

/** Whether an answer says what is shown already: then nothing is rendered. */
function isSame(old, path, data) {
  return old.path === path && !old.error && JSON.stringify(old.data) === JSON.stringify(data);
}

const REFUSED = new Set([400, 401, 403, 404, 422]); // asked again, the answer is the same

/**
 * What `path` answers: `{data, error, isLoading, refresh}`. It is asked again every `every` ms, if
 * given, while the page is visible, and where the server was away; an error leaves the data of the
 * last answer in place. A request that is refused is asked again by `refresh` alone.
 */
export function useResource(path, { every = 0 } = {}) {
  const [state, setState] = useState({ path, data: null, error: null, isLoading: true });
  const [asked, setAsked] = useState(0);
  const refresh = useCallback(() => setAsked((count) => count + 1), []);
  useEffect(() => {
    if (!path) return undefined;
    const abort = new AbortController();
    let timer = 0;
    let isRefused = false;
    const ask = async () => {
      const wait = failedRecently.current ? Math.max(every, 3000) : every;
      if (document.visibilityState === "visible" || !every) {
        try {
          const data = await get(path, { signal: abort.signal });
          failedRecently.current = false;
          setState((old) => (isSame(old, path, data) ? old : { path, data, error: null, isLoading: false }));
        } catch (error) {
          if (abort.signal.aborted) return;
          failedRecently.current = true;
          isRefused = REFUSED.has(error.status);
          setState((old) => ({ path, data: old.path === path ? old.data : null, error, isLoading: false }));
        }
      }
      const isAway = failedRecently.current;
      if (!abort.signal.aborted && !isRefused && (every || isAway)) timer = setTimeout(ask, wait || 3000);
    };
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, every, asked]);
  const failedRecently = useRef(false);
  return { ...(state.path === path ? state : { data: null, error: null, isLoading: true }), refresh };
}
