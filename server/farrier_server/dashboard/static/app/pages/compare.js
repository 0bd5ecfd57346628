// Two jobs side by side.

import { useMemo } from "preact/hooks";
import { count, milliseconds, stopwatch } from "../lib/format.js";
import { html } from "../lib/html.js";
import { setQuery } from "../lib/router.js";
import { Chart } from "../ui/chart.js";
import { Choice } from "../ui/controls.js";
import { Empty, Notice } from "../ui/feedback.js";
import { PageHead, Section } from "../ui/shell.js";
import { Engines, Figures, Options } from "./compare/figures.js";
import { KernelPairs } from "./compare/kernels.js";
import { Side, useSide } from "./compare/side.js";
import { isFinal, joined } from "./job/live.js";

export function Compare({ query }) {
  const [first = "", second = ""] = (query.get("jobs") ?? "").split(",");
  const a = useSide(first);
  const b = useSide(second);
  const choose = (one, other) => setQuery({ jobs: one || other ? `${one},${other}` : "" }, { replace: false });
  return html`
    <${PageHead} title="Compare" above=${html`<a href="/jobs">Jobs</a>`}>
      ${first && second && html`<button type="button" onClick=${() => choose(second, first)}>Swap A and B</button>`}
    <//>
    <div class="columns sides">
      <${Side} letter="A" side=${a} onChoose=${(id) => choose(id, second)} />
      <${Side} letter="B" side=${b} onChoose=${(id) => choose(first, id)} />
    </div>
    ${a.job && b.job
      ? html`<${Both} a=${a} b=${b} query=${query} />`
      : html`<${Empty} title=${first && second ? "Nothing to compare yet." : "Choose two jobs."}>
          <p>Their options, latency, kernels and curves are then shown side by side.</p><//>`}
  `;
}

function Both({ a, b, query }) {
  const isComparable = a.job.device_class === b.job.device_class && !emulated(a.job) && !emulated(b.job);
  const axis = query.get("axis") === "seconds" ? "seconds" : "trials";
  const aside = html`<${Choice} label="Axis" value=${axis} options=${AXES} onChange=${(value) => setQuery({ axis: value === "trials" ? "" : value })} />`;
  return html`
    <${Notes} a=${a.job} b=${b.job} isComparable=${isComparable} />
    <${Section} title="Figures"><${Figures} a=${a.job} b=${b.job} isComparable=${isComparable} /><//>
    ${(a.job.report?.against?.length || b.job.report?.against?.length) > 0 && html`<${Section} title="Beside other engines"><${Engines} a=${a.job} b=${b.job} /><//>`}
    <${Section} title="Best latency, estimated" aside=${aside}><${Curves} a=${a.curve} b=${b.curve} axis=${axis} /><//>
    <${Section} title="Options"><${Options} a=${a.job} b=${b.job} /><//>
    <${Section} title="Kernels">
      <${KernelPairs} a=${a.found} b=${b.found} isComparable=${isComparable} search=${query.get("search") ?? ""}
        by=${query.get("sort") ?? "share"} descending=${query.get("rising") !== "1"} />
    <//>
  `;
}

const AXES = [["trials", "over trials"], ["seconds", "over seconds"]];
const emulated = (job) => Boolean(job.report?.verification?.emulated);

function Notes({ a, b, isComparable }) {
  const notes = [];
  if (a.id === b.id) notes.push("A and B are the same job.");
  if (a.device_class !== b.device_class) {
    notes.push(`They are for devices of different classes (${a.device_class ?? "not known"} and ${b.device_class ?? "not known"}): their times cannot be compared.`);
  } else if (!isComparable) {
    notes.push("At least one ran on an emulated device: its times say nothing about the machine.");
  } else if (measuredOn(a) && measuredOn(b) && measuredOn(a) !== measuredOn(b)) {
    notes.push(`They were verified on different devices of one class (${measuredOn(a)} and ${measuredOn(b)}): small differences may be the devices'.`);
  }
  if (a.id !== b.id && a.model !== b.model) notes.push("They are of different models: only kernels of the same task are matched.");
  for (const [letter, job] of [["A", a], ["B", b]]) {
    if (!isFinal(job)) notes.push(`${letter} has not ended: its figures change.`);
    else if (!job.report) notes.push(`${letter} has ${job.state}: it has no report.`);
  }
  if (!notes.length) return null;
  return html`<${Notice} tone="wait">${notes.map((note) => html`<p key=${note} class="wrap">${note}</p>`)}<//>`;
}

const measuredOn = (job) => job.report?.verification?.device;

function Curves({ a, b, axis }) {
  const x = axis === "seconds" ? TIME : TRIALS;
  const data = useMemo(() => merged(a ? joined(a) : [], b ? joined(b) : [], x.field), [a, b, x.field]);
  if (!data[0].length) return html`<${Empty} title="Neither has a curve."><p>A curve begins with the first trials, and is forgotten a while after the job's end.</p><//>`;
  const summary = `Best latency of both jobs over ${x.label}, to ${x.format(data[0].at(-1))}`;
  return html`<${Chart} data=${data} series=${SERIES} x=${x} y=${Y} summary=${summary} />`;
}

const TRIALS = { label: "trials", field: "trial", format: (value) => count(value) };
const TIME = { label: "time since the start, min:s", field: "seconds", format: (value) => stopwatch(value) };
const Y = { label: "", format: (value) => milliseconds(value, 5) };
const SERIES = [
  { label: "A", format: milliseconds, isStepped: true, colour: "--series-1" },
  { label: "B", format: milliseconds, isStepped: true, colour: "--series-2" },
];

/** The points of both over one axis; a curve has nothing where only the other has a point. */
function merged(ours, theirs, field) {
  const at = new Map();
  const known = (point) => point[field] !== null;
  for (const point of ours.filter(known)) at.set(point[field], [point.ms, at.get(point[field])?.[1] ?? null]);
  for (const point of theirs.filter(known)) at.set(point[field], [at.get(point[field])?.[0] ?? null, point.ms]);
  const xs = [...at.keys()].sort((one, other) => one - other);
  return [xs, xs.map((value) => at.get(value)[0]), xs.map((value) => at.get(value)[1])];
}
