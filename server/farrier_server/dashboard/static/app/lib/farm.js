// The farm's events, and what they change of what a page shows.

import { useEffect, useRef, useState } from "preact/hooks";
import { useEvents } from "./live.js";
import { useThrottled } from "./throttle.js";

const REFRESHED_MS = 1000;
const SHARED_MS = 500;

/**
 * Asks `resource` anew after farm events that `concerns(event)`, once a second at most, and where the
 * server comes back. `onEvents(list)` gets all of them; `after` is where the stream begins. A resource
 * that `isShared` is the same answer for all viewers, and up to half a second old: it is asked again
 * then. Returns the state of the link.
 */
export function useFarm(resource, { concerns = () => true, onEvents = () => {}, after = "", isShared = false } = {}) {
  const ask = useThrottled(resource.refresh, isShared ? SHARED_MS : REFRESHED_MS);
  const refresh = () => {
    ask();
    if (isShared) ask();
  };
  const link = useEvents(
    "/v1/events",
    (events) => {
      onEvents(events);
      if (events.some(concerns)) refresh();
    },
    { after },
  );
  const before = useRef(link);
  useEffect(() => {
    // What happened before the stream was open is in the answer alone.
    if (link !== before.current) refresh();
    before.current = link;
  }, [link]);
  return link;
}

/**
 * The states of jobs by the events since `data` was asked for: `[noted(events), current(job)]`. So a
 * change is shown before the next answer has it.
 */
export function useJobStates(data) {
  const [states, setStates] = useState({});
  useEffect(() => setStates((old) => (Object.keys(old).length ? {} : old)), [data]);
  const noted = (events) => {
    const changed = events.filter((event) => event.kind === "job").map((event) => [event.job, event.state]);
    if (changed.length) setStates((old) => ({ ...old, ...Object.fromEntries(changed) }));
  };
  const current = (job) => (states[job.id] && states[job.id] !== job.state ? { ...job, state: states[job.id] } : job);
  return [noted, current];
}
