// How often something is done at most.

import { useCallback, useEffect, useRef } from "preact/hooks";

/** A function that calls `action` at once, and again `every` ms later at the soonest; calls between become one. */
export function useThrottled(action, every = 1000) {
  const latest = useRef(action);
  latest.current = action;
  const timer = useRef(0);
  const last = useRef(-Infinity);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current) return;
    const act = () => {
      timer.current = 0;
      last.current = performance.now();
      latest.current();
    };
    const wait = last.current + every - performance.now();
    if (wait <= 0) act();
    else timer.current = setTimeout(act, wait);
  }, [every]);
}
