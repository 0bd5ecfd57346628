// What a worker found in an uploaded model.

import { bytes, count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Empty, Loading, Notice, Problem } from "../../ui/feedback.js";
import { Facts } from "../../ui/figures.js";
import { Section } from "../../ui/shell.js";
import { Table } from "../../ui/table.js";
import { Name, State } from "../../ui/text.js";

const MOST_ROWS = 200;

/** `prepared` is what `usePrepared` gives; `children(inspection)` is shown once there is one. */
export function Inspected({ prepared, children }) {
  const { data, error, begin } = prepared;
  if (error) return html`<${Problem} error=${error} retry=${begin} />`;
  if (!data) return html`<${Loading} what="Asking for the inspection" />`;
  if (data.inspection) return children(data.inspection);
  if (data.error) return html`<${Problem} error=${data.error} title="The model could not be inspected." retry=${begin} />`;
  if (["cancelled", "failed", "dead"].includes(data.state)) {
    return html`<${Empty} title=${`The inspection was ${data.state === "cancelled" ? "cancelled" : "lost"}.`}><p><button type="button" onClick=${begin}>Inspect again</button></p><//>`;
  }
  return html`<p role="status" class="loading"><${State} state=${data.state ?? "queued"} /> ${data.state === "running" ? "A worker reads the model…" : "Waiting for a worker to read the model…"}</p>`;
}

/** Whether nothing of the file could be read. */
export function isNoModel({ opset, operators, problems }) {
  return !opset && !operators.length && problems.length > 0;
}

/** In a few lines: whether it compiles, and what is open. */
export function Verdict({ inspection }) {
  const { problems, operators } = inspection;
  const isReadable = !isNoModel(inspection);
  const missing = operators.filter((one) => !one.supported);
  const isPartial = problems.length > 0 && problems.every((one) => one.code === "branch-left-out");
  return html`
    ${problems.length === 0 && html`<${Notice} tone="good"><p><strong>Farrier compiles this model.</strong></p><//>`}
    ${!isReadable && html`<${Notice} tone="bad"><p><strong>This file is no model that Farrier reads.</strong> A job of it would fail.</p><//>`}
    ${isReadable && problems.length > 0 && html`<${Notice} tone=${isPartial ? "wait" : "bad"}>
      <p><strong>${isPartial ? "Farrier compiles this model, except for branches:" : "Farrier does not compile this model as it is:"}</strong></p>
    <//>`}
    ${problems.length > 0 && html`<${ProblemList} problems=${problems} />`}
    ${missing.length > 0 && html`<p>Operators that Farrier lacks: ${missing.slice(0, 20).map((one, index) => html`${index > 0 && ", "}<${Name} key=${index} text=${titleOf(one)} /> (${count(one.count)})`)}${missing.length > 20 && ", …"}</p>`}
  `;
}

function ProblemList({ problems }) {
  return html`<ul class="problems">
    ${problems.slice(0, 20).map((one, index) => html`<li key=${index}><p class="wrap"><bdi>${one.detail}</bdi></p>${one.hint && html`<p class="hint wrap"><bdi>${one.hint}</bdi></p>`}</li>`)}
    ${problems.length > 20 && html`<li>and ${problems.length - 20} more</li>`}
  </ul>`;
}

/** Facts of the model as a whole. */
export function ModelFacts({ inspection, more = [] }) {
  return html`<${Facts} rows=${[
    ["Written by", inspection.producer && html`<${Name} text=${inspection.producer} />`],
    ["Format", inspection.format],
    ["Opset", inspection.opset || null],
    ["Parameters", inspection.operators.length > 0 && `${count(inspection.parameters.count)} tensors, ${bytes(inspection.parameters.bytes)}`],
    ["Operators", inspection.operators.length > 0 && `${count(inspection.operators.reduce((sum, one) => sum + one.count, 0))} nodes of ${inspection.operators.length} operators`],
    ...more,
  ]} />`;
}

/** Inputs or outputs. */
export function Tensors({ caption, tensors }) {
  return html`<${Table} caption=${caption} rows=${tensors.slice(0, MOST_ROWS)} rowKey=${(one) => one.name} empty="None." columns=${[
    { key: "name", label: "Name", isWide: true, cell: (one) => html`<${Name} text=${one.name} />` },
    { key: "dtype", label: "Type", cell: (one) => html`<code>${one.dtype}</code>` },
    { key: "dims", label: "Shape", isWide: true, cell: (one) => html`<${Name} text=${dimsText(one.dims)} />` },
  ]} />`;
}

export function OpenDims({ dims }) {
  return html`<${Table} caption="Open dimensions" rows=${dims.slice(0, MOST_ROWS)} rowKey=${(one) => one.name} empty="None: every size is fixed." columns=${[
    { key: "name", label: "Dimension", isWide: true, cell: (one) => html`<${Name} text=${one.name} />` },
    { key: "low", label: "From", isNumber: true, cell: (one) => count(one.low) },
    { key: "high", label: "To", isNumber: true, cell: (one) => count(one.high) },
    { key: "typical", label: "Typically", isNumber: true, cell: (one) => count(one.typical) },
  ]} />`;
}

export function Operators({ operators }) {
  return html`<${Section} title="Operators">
    <${Table} caption="Operators" rows=${operators.slice(0, MOST_ROWS)} rowKey=${titleOf} empty="None." columns=${[
      { key: "op", label: "Operator", isWide: true, cell: (one) => html`<${Name} text=${titleOf(one)} />` },
      { key: "count", label: "Nodes", isNumber: true, cell: (one) => count(one.count) },
      { key: "supported", label: "Compiles", cell: (one) => html`<${State} state=${one.supported ? "yes" : "no"} tone=${one.supported ? "good" : "bad"} />` },
      { key: "reason", label: "Why not", isWide: true, cell: (one) => one.reason && html`<${Name} text=${one.reason} />` },
    ]} />
  <//>`;
}

/** `[batch, 3, ?, ?]`; of an unknown rank, so. */
function dimsText(dims) {
  return dims ? `[${dims.join(", ")}]` : "any rank";
}

const titleOf = (one) => (one.domain ? `${one.domain}:${one.op}` : one.op);
