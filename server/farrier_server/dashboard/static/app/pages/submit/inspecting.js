// The inspection of an uploaded model: asked for once, then looked at until it is there.

import { useEffect, useState } from "preact/hooks";
import { post } from "../../lib/api.js";
import { useResource } from "../../lib/live.js";

const POLL_MS = 1000;
const OVER = new Set(["succeeded", "failed", "dead", "cancelled"]);

/**
 * The resource of what `POST path` prepares and `GET path` answers, `{state, job, error, …}`; with
 * `asks` it is asked for where it is not there. `begin()` asks for it (again).
 */
export function usePrepared(path, { asks = true } = {}) {
  const [begun, setBegun] = useState(asks ? null : path); // the path that may be looked at
  const [failure, setFailure] = useState(null);
  const [isOver, setOver] = useState(false);
  const { data, error, isLoading, refresh } = useResource(begun === path ? path : null, { every: isOver ? 0 : POLL_MS });

  const begin = async () => {
    setFailure(null);
    try {
      await post(path);
    } catch (problem) {
      setFailure(problem);
      return;
    }
    setOver(false);
    setBegun(path);
    refresh();
  };
  useEffect(() => {
    if (path && asks) begin();
  }, [path]);
  useEffect(() => setOver(Boolean(data && (!data.state || OVER.has(data.state)))), [data]);
  return { data, error: failure ?? error, isLoading, begin };
}
