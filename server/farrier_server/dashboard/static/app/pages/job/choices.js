// What each choice brought, for one kernel: the best and the median of the trials that made it.

import { useMemo } from "preact/hooks";
import { useResource } from "../../lib/live.js";
import { count, microseconds, ratio } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Empty, Loaded, Loading } from "../../ui/feedback.js";
import { Facts } from "../../ui/figures.js";
import { Name } from "../../ui/text.js";
import { decisionsText, knobText } from "./decisions.js";
import { KernelChoice } from "./kernel_choice.js";

const MOST_VALUES = 24; // of a knob
const MOST_TIMES = 3; // the best time: medians beyond stand at the end of the line
const BLOCK = 5; // the width of a best time, of a line of 100
const NEWS_MS = 10_000;

/** `found` is of `useKernels`; without a `chosen` kernel it is the one that takes the most time. */
export function Choices({ job, found, chosen, isLive }) {
  const kernel = useMemo(() => found.kernels.find((one) => one.task === chosen) ?? mostTime(found.kernels), [found.kernels, chosen]);
  const path = kernel && `/v1/jobs/${encodeURIComponent(job)}/tasks/${encodeURIComponent(kernel.task)}/choices`;
  const choices = useResource(path ?? null, { every: isLive ? NEWS_MS : 0 });
  if (!kernel) return found.isLoading ? html`<${Loading} what="Loading kernels" />` : html`<${Empty} title="No kernels are known yet." />`;
  return html`
    <div class="filters"><${KernelChoice} tasks=${found.kernels} chosen=${kernel.task} none="The kernel that takes the most time" /></div>
    <${Winner} kernel=${kernel} />
    <${Loaded} resource=${choices} what="Loading what each choice brought">${(data) =>
      data.knobs.length ? html`<${Knobs} data=${data} decisions=${kernel.decisions} />` : html`<${Untold} />`}<//>
  `;
}

function Untold() {
  return html`<${Empty} title="No trial tells them apart yet."><p>What each choice brings is known once this kernel was measured in this job.</p><//>`;
}

/** The knobs of which several values were tried, on one scale of time; those of one value in a line. */
function Knobs({ data, decisions }) {
  const tried = data.knobs.filter((knob) => knob.values.length > 1);
  const fixed = data.knobs.filter((knob) => knob.values.length === 1).map((knob) => `${knobText(knob.knob)} ${knob.values[0].value}`);
  const values = data.knobs.flatMap((knob) => knob.values).filter((one) => one.best_us !== null);
  const least = Math.min(...values.map((one) => one.best_us));
  const scale = { least, most: Math.min(Math.max(...values.map((one) => one.median_us)), MOST_TIMES * least) };
  return html`
    <p class="hint">Of ${count(data.trials)} trials. Each line goes from ${microseconds(scale.least)}, the best time of all, to ${microseconds(scale.most)}: the
      block is the best time with the value, the mark the median; ● is what won.</p>
    ${fixed.length > 0 && html`<p class="hint">With one value only: ${fixed.join(" · ")}.</p>`}
    <div class="knobs">${tried.map((knob) => html`<${Knob} key=${knob.knob} knob=${knob} scale=${scale} won=${decisions?.[knob.knob]} />`)}</div>
  `;
}

function mostTime(kernels) {
  return kernels.reduce((most, one) => (one.share > (most?.share ?? -1) ? one : most), null);
}

function Winner({ kernel }) {
  const isDefault = decisionsText(kernel.decisions) === decisionsText(kernel.default);
  return html`<div class="panel winner"><${Facts} rows=${[
    ["Kernel", html`<${Name} text=${kernel.name} />`],
    ["Schedule", `${kernel.source}${isDefault ? ", the default's decisions" : ""}`],
    ["Decisions", decisionsText(kernel.decisions)],
    ["Default", isDefault ? "" : decisionsText(kernel.default)],
    ["Time of a call", `${microseconds(kernel.now_us)}${kernel.gain ? `; its trials gained ${ratio(kernel.gain)}` : ""}`],
    ["Rule", `${kernel.rule}, ${count(kernel.space)} schedules`],
  ]} /></div>`;
}

function Knob({ knob, scale, won }) {
  const byValue = [...knob.values].sort((a, b) => a.value - b.value);
  const listed = byValue.length <= MOST_VALUES ? byValue : bestOf(knob.values, won);
  return html`<section class="panel knob">
    <h3>${knobText(knob.knob)}</h3>
    <table>
      <caption class="unseen">${knobText(knob.knob)}: best and median time of each value</caption>
      <thead><tr><th scope="col" class="number">Value</th><th scope="col">Best</th><th scope="col" class="number">Median</th><th scope="col" class="number">Trials</th></tr></thead>
      <tbody>${listed.map((one) => html`<${Value} key=${one.value} one=${one} scale=${scale} hasWon=${one.value === won} />`)}</tbody>
    </table>
    ${listed.length < knob.values.length && html`<p class="hint">The best ${listed.length} of ${knob.values.length} values.</p>`}
  </section>`;
}

function Value({ one, scale, hasWon }) {
  const at = (us) => Math.min(1, (us - scale.least) / (scale.most - scale.least || 1)) * (100 - BLOCK);
  const isTimed = one.best_us !== null;
  return html`<tr class=${hasWon ? "won" : ""}>
    <td class="number">${hasWon && html`<span title="won">●</span>`} ${one.value}</td>
    <td><span class="share knob-bar">
      <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class="share-all" y="4" width="100" height="2" />
        ${isTimed && html`<rect class="knob-spread" x=${at(one.best_us)} y="4" width=${at(one.median_us) - at(one.best_us)} height="2" />`}
        ${isTimed && html`<rect class="share-part" x=${at(one.best_us)} width=${BLOCK} height="10" />`}
        ${isTimed && html`<rect class="knob-median" x=${at(one.median_us) + BLOCK / 2} width="1.5" height="10" />`}
      </svg><span>${isTimed ? microseconds(one.best_us) : "failed"}</span></span></td>
    <td class="number">${microseconds(one.median_us)}</td>
    <td class="number">${count(one.trials)}</td>
  </tr>`;
}

function bestOf(values, won) {
  const rank = (one) => (one.value === won ? -1 : (one.best_us ?? Infinity));
  return [...values].sort((a, b) => rank(a) - rank(b)).slice(0, MOST_VALUES).sort((a, b) => a.value - b.value);
}
