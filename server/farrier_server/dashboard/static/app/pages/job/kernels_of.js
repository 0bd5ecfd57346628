// The kernels of a job, all of them where they are not too many for a page.

import { useEffect, useMemo, useState } from "preact/hooks";
import { get } from "../../lib/api.js";

const A_PAGE = 500;
const MOST = 2000;

/**
 * `{kernels, hasMore, error, isLoading}` of the job `id`, asked again every `every` ms where given. A kernel is
 * a task of the API with `key`, which tells those of several hot sizes apart, the time `now_us` of its schedule, and of
 * its trials in one `context` ("alone" or "in the model") `first`, `best` and the `gain` of the best on the first.
 * `renewed` is anything that changes when the job has ended.
 */
export function useKernels(id, { every = 0, enabled = true, renewed = "" }) {
  const [state, setState] = useState({ tasks: [], hasMore: false, error: null, isLoading: true });
  useEffect(() => {
    if (!enabled) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const ask = async () => {
      if (document.visibilityState === "visible" || !every) {
        try {
          setState({ ...(await allOf(id, abort.signal)), error: null, isLoading: false });
        } catch (error) {
          if (abort.signal.aborted) return;
          setState((old) => ({ ...old, error, isLoading: false }));
          if (error.status === 404) return;
        }
      }
      if (every && !abort.signal.aborted) timer = setTimeout(ask, every);
    };
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [id, every, enabled, renewed]);
  const kernels = useMemo(() => state.tasks.map(described), [state.tasks]);
  return { ...state, kernels };
}

async function allOf(id, signal) {
  const tasks = [];
  let first = 0;
  while (first !== null && tasks.length < MOST) {
    const page = await get(`/v1/jobs/${encodeURIComponent(id)}/tasks?first=${first}&limit=${A_PAGE}`, { signal });
    tasks.push(...page.tasks);
    first = page.next;
  }
  return { tasks, hasMore: first !== null };
}

function described(task) {
  const sizes = Object.entries(task.sizes ?? {}).map(([name, size]) => `${name}=${size}`).join(",");
  const now = task.measured_us ?? task.best_us ?? task.best_in_model_us ?? task.predicted_us;
  return {
    ...task,
    sizesText: sizes,
    key: `${task.task}@${sizes}`,
    now_us: now,
    isMeasured: (task.measured_us ?? task.best_us ?? task.best_in_model_us) !== null,
    ...trialsOf(task),
  };
}

/** The first and the best trial of a task, of one context: times alone and in the model do not compare. */
function trialsOf(task) {
  const isInModel = task.best_in_model_us !== null;
  const first = isInModel ? task.first_in_model_us : task.first_us;
  const best = isInModel ? task.best_in_model_us : task.best_us;
  return { context: isInModel ? "in the model" : "alone", first, best, gain: first && best ? first / best : null };
}
