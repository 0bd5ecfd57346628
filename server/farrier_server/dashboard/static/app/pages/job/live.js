// A job as it goes on: what the API says of it, and what its events add to that.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useEvents, useResource } from "../../lib/live.js";

const FINAL = new Set(["succeeded", "failed", "cancelled", "dead"]);
const CHANGES = new Set(["state", "version-added", "rolled-back"]); // events after which the job is read again
const JOB_MS = 10_000;
const CURVE_MS = 5000;
const MOST_NEWS = 4000; // points since the last answer of /curve; there are so many only while it fails

export const isFinal = (job) => FINAL.has(job?.state);

/**
 * `{job, error, isLoading, refresh, link, gone, curve, said}` of the job `id`. `link` is the state of its
 * event stream, "over" for a job that has ended; `gone` is the ApiError once the job is there no more,
 * and `job` is then the last that was known. `said` grows with every event that is in the log.
 */
export function useLiveJob(id) {
  const [isOver, setOver] = useState(false);
  const [gone, setGone] = useState(null);
  const [news, setNews] = useState({ of: null, fields: {} });
  const [since, setSince] = useState([]);
  const [said, setSaid] = useState(0);

  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const answer = useResource(gone ? null : path, { every: isOver ? 0 : JOB_MS });
  const curve = useResource(gone ? null : `${path}/curve?points=500`, { every: isOver ? 0 : CURVE_MS });
  const known = useRef({ job: null, curve: null });
  if (answer.data) known.current.job = answer.data;
  if (curve.data) known.current.curve = curve.data;
  const { job, curve: drawn } = known.current;

  useEffect(() => setOver(isFinal(job)), [job]);
  useEffect(() => {
    if (answer.error?.status === 404) setGone(answer.error);
  }, [answer.error]);

  const onEvents = (events) => {
    const fields = {};
    const points = [];
    let isChanged = false;
    let isSaid = false;
    for (const event of events) {
      if (event.kind === "trials-measured") {
        for (const name of ["planned", "best_ms", "seconds_left"]) fields[name] = event[name];
        fields.trials = event.trial ?? event.trials;
        points.push({ trial: fields.trials, seconds: secondsOf(event, job), ms: event.best_ms });
      } else {
        isSaid = true;
      }
      if (event.kind === "stage-started") fields.stage = event.stage;
      if (event.kind === "tasks-found") fields.tasks = event.tasks;
      if (CHANGES.has(event.kind)) isChanged = true;
    }
    setNews((old) => ({ of: job, fields: { ...(old.of === job ? old.fields : {}), ...fields } }));
    if (points.length) setSince((old) => added(old, points, drawn?.trials ?? 0));
    if (isSaid) setSaid((count) => count + 1);
    if (isChanged) answer.refresh();
  };
  const isFollowed = Boolean(job && drawn && !gone && !isFinal(job));
  const stream = useEvents(`${path}/events`, onEvents, {
    after: drawn?.event ?? "",
    enabled: isFollowed,
    onRefused: (error) => error.status === 404 && setGone(error),
  });
  const shown = useMemo(() => job && { ...job, ...(news.of === job ? news.fields : {}) }, [job, news]);
  const points = useMemo(() => (drawn ? joined(drawn, since) : []), [drawn, since]);
  return {
    job: shown,
    error: gone ? null : answer.error,
    isLoading: answer.isLoading,
    refresh: answer.refresh,
    link: isFinal(job) ? "over" : isFollowed ? stream : "connecting",
    gone: gone && { ...gone, wasKnown: Boolean(job) },
    curve: { points, tasks: drawn?.tasks ?? NONE, error: curve.error, isKnown: Boolean(drawn) },
    said,
  };
}

const NONE = [];

/** Seconds from the job's start to an event: an event's id begins with its moment, in milliseconds. */
function secondsOf(event, job) {
  const at = Number.parseInt(event.id, 10) / 1000;
  return job?.started && at ? Math.max(0, at - job.started) : null;
}

/** The points that came since the answer that goes to `trials`, and no more than can be drawn. */
function added(old, points, trials) {
  const kept = [...old, ...points].filter((point) => point.trial > trials);
  return kept.length > MOST_NEWS ? kept.filter((_, index) => index % 2 || index === kept.length - 1) : kept;
}

/** The server's curve, and the points that came since; where the time stays, only the end of it. */
export function joined(curve, since = NONE) {
  const points = [...curve.points];
  let end = null;
  for (const point of since) {
    if (point.trial <= curve.trials || point.ms === null) continue;
    if (point.ms !== points.at(-1)?.ms) points.push(point);
    end = point;
  }
  const last = points.at(-1);
  if (last && end && end !== last) points.push(end);
  else if (last && last.trial < curve.trials) points.push({ ...last, trial: curve.trials, seconds: null });
  return points;
}
