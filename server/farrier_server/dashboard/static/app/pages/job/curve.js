// How the best time fell: of the model, and of one kernel.

import { useMemo } from "preact/hooks";
import { count, microseconds, milliseconds, stopwatch } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { setQuery } from "../../lib/router.js";
import { Chart } from "../../ui/chart.js";
import { Choice } from "../../ui/controls.js";
import { Empty, Problem } from "../../ui/feedback.js";
import { Section } from "../../ui/shell.js";
import { Name } from "../../ui/text.js";
import { KernelChoice } from "./kernel_choice.js";

export const CURVES = "curves"; // the id of where they are

const AXES = [["trials", "over trials"], ["seconds", "over seconds"]];
const X = {
  trials: { label: "trials", field: "trial", format: (value) => count(value) },
  seconds: { label: "time since the start, min:s", field: "seconds", format: (value) => stopwatch(value) },
};

/** `curve` is that of a live job, which `isOver` or not; `kernel` the key of the task that is chosen, "" for none. */
export function Curves({ curve, kernel, axis, isOver }) {
  const task = curve.tasks.find((one) => one.task === kernel);
  const x = X[axis] ?? X.trials;
  const aside = html`<div class="filters curve-filters">
    <${Choice} label="Axis" value=${x === X.seconds ? "seconds" : "trials"} options=${AXES} onChange=${(value) => setQuery({ axis: value === "trials" ? "" : value })} />
    <${KernelChoice} tasks=${curve.tasks} chosen=${kernel} none="The model alone" />
  </div>`;
  return html`<${Section} title="Best latency" aside=${curve.points.length > 0 && aside}>
    ${!curve.isKnown && html`<${Problem} error=${curve.error} />`}
    <div id=${CURVES} class=${kernel ? "columns" : ""}>
      <${Curve} points=${curve.points} x=${x} label="Model, estimated" field="ms" format=${milliseconds}
        empty=${isOver ? "There were no trials." : "Nothing is measured yet."} isOver=${isOver} />
      ${kernel && html`<div>${task ? html`<p class="curve-name"><${Name} text=${task.name} /></p>` : null}
        <${Curve} points=${task?.points ?? NONE} x=${x} label="Kernel, one call" field="us" format=${microseconds} colour="--series-2"
          empty=${isOver ? "No trial of this kernel alone." : "No trial of this kernel alone yet."} isOver=${isOver} /></div>`}
    </div>
    ${curve.points.length > 0 && html`<p class="hint">The model's is an estimate: the sum of the best times of its kernels. One that is not measured yet counts as predicted, so it may rise.</p>`}
  <//>`;
}

const NONE = [];
const TICK_DIGITS = 5; // a curve falls by little in the end

function Curve({ points, x, label, field, format, colour = "--series-1", empty, isOver }) {
  const data = useMemo(() => columns(points, x.field, field), [points, x.field, field]);
  if (!data[0].length) return html`<${Empty} title=${empty}><p>${isOver ? "It ended before any, or its schedules are known from earlier jobs, or the defaults." : "The curve begins with the first trials."}</p><//>`;
  const summary = `${label} over ${x.label}: from ${format(data[1][0])} to ${format(data[1].at(-1))} after ${x.format(data[0].at(-1))}`;
  return html`<${Chart} data=${data} series=${[{ label, format, isStepped: true, colour }]} x=${x} y=${{ label: "", format: (value) => format(value, TICK_DIGITS) }} summary=${summary} />`;
}

function columns(points, x, y) {
  const known = points.filter((point) => point[x] !== null);
  return [known.map((point) => point[x]), known.map((point) => point[y])];
}
