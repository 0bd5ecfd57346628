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

/** The verified model's median latency in ms; null where none was measured, or by an emulator. */
export const latencyOf = (job) => job.report?.verification?.latency_ms?.median ?? null;

/** How many times as fast the tuned model ran as the untuned; null where they were not compared. */
export function gainOf(job) {
  const [untuned, tuned] = [job.report?.untuned_ms?.median, job.report?.tuned_ms?.median];
  return untuned && tuned ? untuned / tuned : null;
}
