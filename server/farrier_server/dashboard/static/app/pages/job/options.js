// The options of a job, as text.

import { count, duration, number } from "../../lib/format.js";

/** `[name, text]` of every option; the text is "" where it says nothing. */
export function optionTexts(job) {
  const options = job.options;
  const shapes = Object.entries(options.shapes ?? {}).map(([name, dims]) => `${name}: ${dims.join(" × ")}`);
  return [
    ["Target", job.target.startsWith("{") ? "a described machine" : job.target],
    ["Device class", job.device_class ?? ""],
    ["Device", job.device ?? ""],
    ["Trials", bound(options.trials, count)],
    ["Time to tune", bound(options.budget_s, duration)],
    ["Threads", options.threads ? String(options.threads) : "one per core"],
    ["Precision", options.precision ?? "f32"],
    ["Verify", options.verify === false ? "no" : "yes"],
    ["Largest error of a layer", number(options.max_layer_error)],
    ["Seed", String(options.seed ?? 0)],
    ["Shapes", shapes.join("; ")],
    ["Hot sizes", (options.hot ?? []).map((sizes) => sizesText(sizes) || "the typical sizes").join("; ") || "none"],
    ["Typical sizes", sizesText(options.typical)],
    ["States", Object.entries(options.states ?? {}).map(([input, output]) => `${input} → ${output}`).join("; ")],
    ["Beside", (job.against ?? []).join(", ")],
    ["Private", job.private ? "yes" : "no"],
    ["Waits for a device", job.wait_for_device ? "yes" : "no"],
    ["Model", job.model],
  ];
}

const bound = (value, format) => (value === null || value === undefined ? "no bound" : format(value));

function sizesText(sizes) {
  return Object.entries(sizes ?? {}).map(([name, size]) => `${name}=${size}`).join(", ");
}
