// What a job's fields come to.

import { count, percent } from "./format.js";

export const STATES = ["queued", "running", "succeeded", "failed", "cancelled", "dead"];

/** How far a running job is: `{share, text}`, or null where nobody knows. */
export function progressOf(job) {
  if (job.planned && job.trials !== null) return { share: job.trials / job.planned, text: `${count(job.trials)} of ${count(job.planned)}` };
  const budget = job.options?.budget_s;
  if (budget && job.seconds_left !== null) {
    const share = Math.min(1, Math.max(0, 1 - job.seconds_left / budget));
    return { share, text: percent(share) };
  }
  return null;
}

/** What a job is compiled for, as it was named; of a machine's description, its processor. */
export function targetOf({ target }) {
  if (!target.startsWith("{")) return target;
  try {
    const { cpu, cores, arch } = JSON.parse(target);
    return `${cpu || arch}, ${cores === 1 ? "1 core" : `${cores} cores`}`;
  } catch {
    return target;
  }
}

/**
 * The times of the job's artifact, or null: `{ms, untuned, gain, source}`. All of them come from one measurement, which
 * `source` names: the race of the tuned with the untuned model where there was one, otherwise the verification. `ms` is
 * the distribution `{median, p10, p90, runs}` of the model that the artifact holds. `untuned`, a distribution too, and
 * `gain`, the time of the untuned over that of the tuned model, are null without a race.
 */
export function measuredOf(job) {
  const { untuned_ms: untuned, tuned_ms: tuned, tuned_is_faster: isFaster, verification } = job.report ?? {};
  if (untuned && tuned) {
    return { ms: isFaster ? tuned : untuned, untuned, gain: untuned.median / tuned.median, source: "race" };
  }
  const verified = verification?.latency_ms;
  return verified ? { ms: verified, untuned: null, gain: null, source: "verification" } : null;
}

/** The median latency of the job's artifact in ms; null if nobody measured it, or only an emulator did. */
export const latencyOf = (job) => measuredOf(job)?.ms.median ?? null;

/** The time of the untuned model over that of the tuned one; null if they were not compared. */
export const gainOf = (job) => measuredOf(job)?.gain ?? null;
