// What a reader wants to know of a job first.

import { count, duration, milliseconds, number, ratio } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { measuredOf } from "../../lib/jobs.js";
import { Figure, Figures } from "../../ui/figures.js";
import { useNow } from "../../ui/text.js";
import { isFinal } from "./live.js";

/** `points` are of the model's curve. */
export function JobFigures({ job, points, isStale }) {
  const now = useNow(isFinal(job) || isStale ? 60_000 : 1000);
  return html`<div class=${isStale ? "stale" : ""}>
    <${Figures} label="The job's figures">
      <${Latency} job=${job} />
      <${Gain} job=${job} points=${points} />
      <${Figure} name="Trials" value=${count(job.trials ?? 0)} detail=${plan(job)} />
      <${Time} job=${job} now=${now} />
      ${!isFinal(job) && job.stage && html`<${Figure} name="Stage" value=${job.stage} detail=${attempts(job)} />`}
      ${job.tasks && html`<${Figure} name="Kernels" value=${count(job.tasks)} detail="distinct" />`}
      <${Correct} job=${job} />
    <//>
  </div>`;
}

function Latency({ job }) {
  const measured = measuredOf(job);
  if (measured) {
    const { ms, source } = measured;
    const spread = `${milliseconds(ms.p10)} to ${milliseconds(ms.p90)}, ${count(ms.runs)} runs of the ${source}`;
    return html`<${Figure} name="Latency" value=${milliseconds(ms.median)} detail=${spread} />`;
  }
  if (!job.best_ms && job.state !== "running") return null;
  return html`<${Figure} name=${isFinal(job) ? "Best latency" : "Best latency so far"} value=${milliseconds(job.best_ms)} detail=${job.best_ms ? "estimated from its kernels" : ""} />`;
}

/** The tuned against the untuned model, raced side by side at the end; before that, how far the estimate fell. */
function Gain({ job, points }) {
  const measured = measuredOf(job);
  if (measured?.gain) {
    const { tuned_ms: tuned, tuned_is_faster: isFaster } = job.report;
    const times = `tuned ${milliseconds(tuned.median)}, untuned ${milliseconds(measured.untuned.median)} in the race`;
    const detail = isFaster ? times : `defaults kept: ${times}`;
    return html`<${Figure} name="Against untuned" value=${ratio(measured.gain)} detail=${detail} tone=${isFaster && measured.gain > 1 ? "good" : ""} />`;
  }
  const [first] = points;
  if (!first || !job.best_ms || isFinal(job) || first.ms <= job.best_ms) return null;
  return html`<${Figure} name="Against the start" value=${ratio(first.ms / job.best_ms)} detail=${`estimated, from ${milliseconds(first.ms)}`} />`;
}

function Time({ job, now }) {
  if (job.state === "queued") return html`<${Figure} name="Waiting" value=${duration(Math.max(0, now - job.created))} tone="wait" />`;
  const spent = job.started && (job.finished ?? now) - job.started;
  if (isFinal(job)) return html`<${Figure} name="Took" value=${duration(spent)} />`;
  const left = job.seconds_left ?? null;
  return html`<${Figure} name="Time left" value=${left === null ? "–" : `≈ ${duration(left < 60 ? Math.ceil(left) : left)}`} detail=${`${duration(Math.floor(Math.max(1, spent)))} so far`} />`;
}

function Correct({ job }) {
  const verified = job.report?.verification;
  if (!verified) return null;
  const who = verified.trusted === false ? ", by an untrusted device alone" : "";
  const detail = `of ${number(verified.tolerance)} allowed${verified.emulated ? ", emulated" : ""}${who}`;
  if (verified.differs) return html`<${Figure} name="Largest error" value=${number(verified.max_error, 2)} detail=${`differs from ${verified.differs.engine}`} tone="bad" />`;
  return html`<${Figure} name="Largest error" value=${number(verified.max_error, 2)} detail=${detail} tone=${who ? "" : "good"} />`;
}

function plan(job) {
  if (job.planned) return `of ${count(job.planned)}`;
  return job.options.budget_s ? `in ${duration(job.options.budget_s)}` : "";
}

const attempts = (job) => (job.attempts > 1 ? `attempt ${job.attempts}` : "");
