// The report of a job: what was verified, where the time went, what it weighs, how to submit it again.

import { bytes, count, duration, milliseconds, number, percent, ratio, visible } from "../../lib/format.js";
import { commandLine, python } from "../../lib/commands.js";
import { html } from "../../lib/html.js";
import { Code } from "../../ui/controls.js";
import { Empty } from "../../ui/feedback.js";
import { Facts } from "../../ui/figures.js";
import { Section } from "../../ui/shell.js";
import { Table } from "../../ui/table.js";
import { Name, Share } from "../../ui/text.js";
import { optionTexts } from "./options.js";
import { Versions } from "./versions.js";

export function Report({ job, gone, onError, onChanged }) {
  const report = job.report;
  return html`
    ${!report && html`<${Empty} title="There is no report yet."><p>It is made with the artifact, and again with each version of it.</p><//>`}
    ${job.versions.length > 0 && html`<${Versions} job=${job} gone=${gone} onError=${onError} onChanged=${onChanged} />`}
    ${report &&
    html`<div class="columns">
      <${Section} title="Verification"><${Verification} verified=${report.verification} /><//>
      <${Section} title="Latency"><${Latency} report=${report} /><//>
    </div>
    ${report.against?.length > 0 && html`<${Section} title="Beside other engines"><${Against} rows=${report.against} /><//>`}
    <div class="columns">
      <${Section} title="Where the tuning's time went"><${Spent} tuning=${report.tuning} /><//>
      <${Section} title="Where the compilation's time went"><${Stages} seconds=${report.seconds} /><//>
      <${Section} title="Size and memory"><${Sizes} report=${report} /><//>
    </div>`}
    <${Section} title="Options"><div class="panel"><${Facts} rows=${optionTexts(job).map(([name, text]) => [name, text && html`<bdi>${visible(text)}</bdi>`])} /></div><//>
    <${Section} title="The same job elsewhere">
      <h3 class="above-code">On the command line</h3>
      <${Code} label="Command line" text=${commandLine(requestOf(job))} />
      <h3 class="above-code">In Python</h3>
      <${Code} label="Python" text=${python(requestOf(job))} />
    <//>
  `;
}

/** The body of POST /v1/jobs that submits the same; a machine that was described is asked for by its class. */
export function requestOf(job) {
  const isPlain = job.target !== "host" && !job.target.startsWith("{");
  const target = isPlain || !job.device_class ? job.target : `class:${job.device_class}`;
  return { model: job.model, name: job.name, options: { ...job.options, target }, wait_for_device: job.wait_for_device, against: job.against, private: job.private };
}

function Verification({ verified }) {
  if (!verified) return html`<p class="quiet">It was not verified.</p>`;
  return html`<div class="panel"><${Facts} rows=${[
    ["Largest error", `${number(verified.max_error)} of the output's range`],
    ["Allowed", number(verified.tolerance)],
    ["Not verified", verified.differs ? html`it differs from ${verified.differs.engine}, first at <bdi>${visible(verified.differs.node || "no node that is known")}</bdi>` : ""],
    ["Reference", html`<${Name} text=${verified.reference} />`],
    ["Device", html`<a href=${`/devices/${encodeURIComponent(verified.device)}`}><${Name} text=${verified.device} /></a>`],
    ["Confirmed by", verified.confirmed_by ? html`<a href=${`/devices/${encodeURIComponent(verified.confirmed_by)}`}><${Name} text=${verified.confirmed_by} /></a>` : ""],
    ["Trusted", verified.trusted === false ? "no: verified by an untrusted device alone" : ""],
    ["Sandbox", verified.sandbox],
    ["Emulated", verified.emulated ? "yes: its times are the emulator's and are not told" : ""],
  ]} /></div>`;
}

function Latency({ report }) {
  const rows = [
    ["Verified", report.verification?.latency_ms],
    ["Tuned, in the race", report.tuned_ms],
    ["Untuned, in the race", report.untuned_ms],
  ].filter(([, one]) => one);
  if (!rows.length) return html`<p class="quiet">No time was measured.</p>`;
  const won = report.tuned_is_faster;
  return html`<${Table} caption="Latency" columns=${LATENCIES} rows=${rows} rowKey=${([name]) => name} />
    ${won !== null && won !== undefined && html`<p class="hint">${won ? "The tuned schedules are in the artifact." : "Tuning brought nothing for the whole model: the artifact has the defaults."}</p>`}`;
}

const LATENCIES = [
  { key: "name", label: "", cell: ([name]) => name },
  { key: "median", label: "Median", isNumber: true, cell: ([, one]) => milliseconds(one.median) },
  { key: "p10", label: "p10", isNumber: true, cell: ([, one]) => milliseconds(one.p10) },
  { key: "p90", label: "p90", isNumber: true, cell: ([, one]) => milliseconds(one.p90) },
  { key: "runs", label: "Runs", isNumber: true, cell: ([, one]) => count(one.runs) },
];

/** What other engines took, in turns with the artifact. */
function Against({ rows }) {
  return html`<${Table} caption="Engines" columns=${ENGINES} rows=${rows} rowKey=${(row) => row.engine} />`;
}

const spread = (one) => (one ? html`${milliseconds(one.median)} <span class="quiet">(${milliseconds(one.p10)} to ${milliseconds(one.p90)})</span>` : "–");

/** Farrier's time over the engine's, in words. */
function speedText(value, engine) {
  if (!value) return "–";
  return value <= 1 ? `Farrier ${ratio(1 / value)} as fast` : `${engine} ${ratio(value)} as fast`;
}

export const ENGINES = [
  { key: "engine", label: "Engine", cell: (row) => html`<${Name} text=${[row.engine, row.version].filter(Boolean).join(" ")} />` },
  { key: "ms", label: "Its latency", isNumber: true, cell: (row) => spread(row.ms) },
  { key: "ours", label: "Farrier's", isNumber: true, cell: (row) => spread(row.ours_ms) },
  { key: "ratio", label: "Which is faster", cell: (row) => speedText(row.ratio, row.engine) },
  { key: "error", label: "Its largest error", isNumber: true, cell: (row) => number(row.max_error) },
  { key: "device", label: "Device", cell: (row) => html`<${Name} text=${row.device} empty="–" />` },
  { key: "note", label: "Note", isWide: true, cell: (row) => html`<${Name} text=${row.note} empty="–" />` },
];

function Spent({ tuning }) {
  const phases = Object.entries(tuning?.seconds ?? {}).filter(([, kinds]) => kinds.all);
  if (!phases.length) return html`<p class="quiet">Nothing was tuned.</p>`;
  const all = phases.reduce((sum, [, kinds]) => sum + kinds.all, 0);
  const detail = (kinds) => Object.entries(kinds).filter(([kind]) => kind !== "all").map(([kind, seconds]) => `${kind} ${duration(seconds)}`).join(", ");
  const rows = phases.map(([name, kinds]) => ({ name, seconds: kinds.all, share: kinds.all / all, detail: detail(kinds) }));
  return html`<${Table} caption="Time by phase" columns=${[...TIMES, { key: "of", label: "Of it", isWide: true, cell: (row) => html`<span class="wide-text">${row.detail}</span>` }]} rows=${rows} rowKey=${(row) => row.name} />
    ${tuning.budget_s && html`<p class="hint">Of ${duration(tuning.budget_s)} that were given.</p>`}`;
}

function Stages({ seconds }) {
  const known = Object.entries(seconds ?? {});
  if (!known.length) return html`<p class="quiet">It is not told.</p>`;
  const all = known.reduce((sum, [, one]) => sum + one, 0);
  const rows = known.map(([name, one]) => ({ name, seconds: one, share: all ? one / all : 0 }));
  return html`<${Table} caption="Time by stage" columns=${TIMES} rows=${rows} rowKey=${(row) => row.name} />`;
}

const TIMES = [
  { key: "name", label: "", cell: (row) => row.name },
  { key: "seconds", label: "Time", isNumber: true, cell: (row) => duration(row.seconds) },
  { key: "share", label: "Share", isNumber: true, cell: (row) => html`<${Share} value=${row.share} text=${percent(row.share)} />` },
];

function Sizes({ report }) {
  const { memory, size } = report;
  if (!memory || !size) return html`<p class="quiet">It is not told.</p>`;
  return html`<div class="panel"><${Facts} rows=${[
    ["Weights of the model", bytes(size.weights_bytes)],
    ["Weights, packed", bytes(size.params_bytes)],
    ["Of these, Winograd's", size.winograd_bytes ? bytes(size.winograd_bytes) : ""],
    ["Library", bytes(size.library_bytes)],
    ["Workspace", bytes(memory.workspace_bytes)],
    ["Least workspace", bytes(memory.lower_bound_bytes)],
  ]} /></div>`;
}
