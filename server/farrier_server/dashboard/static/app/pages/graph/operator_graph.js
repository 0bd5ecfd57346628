// The graph of an ONNX model, as its file has it.

import { useMemo } from "preact/hooks";
import { count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Notice } from "../../ui/feedback.js";
import { Facts } from "../../ui/figures.js";
import { Section } from "../../ui/shell.js";
import { Name } from "../../ui/text.js";
import { drawable, GraphCanvas } from "./canvas.js";

/** `chosen` is the id of a node, as text, or null. */
export function OperatorGraph({ inspection, chosen, onChoose }) {
  const { nodes, edges, left_out: leftOut } = inspection.graph;
  const lacking = useMemo(() => new Set(inspection.operators.filter((one) => !one.supported).map((one) => (one.domain ? `${one.domain}:${one.op}` : one.op))), [inspection]);
  const isLacking = (node) => node.op !== "" && lacking.has(node.op);
  const graph = useMemo(() => {
    const places = new Map(nodes.map((node, index) => [node.id, index]));
    const shown = nodes.map((node) => ({ title: `${isLacking(node) ? "✕ " : ""}${node.op || node.kind || "tensor"}`, detail: node.name, isWrong: isLacking(node) }));
    return drawable(shown, edges.map(([from, to]) => [places.get(from), places.get(to)]).filter(([from, to]) => from !== undefined && to !== undefined));
  }, [inspection]);
  const index = nodes.findIndex((node) => String(node.id) === chosen);
  const marked = useMemo(() => (index < 0 ? [] : [index]), [index]);
  const node = nodes[index];
  return html`<${Section} title="Graph">
    ${leftOut > 0 && html`<${Notice} tone="wait"><p>The graph shows the model's first ${count(nodes.length)} nodes; ${count(leftOut)} more are left out.</p><//>`}
    <${GraphCanvas} graph=${graph} chosen=${marked} onChoose=${(place) => onChoose(nodes[place].id)} label=${`Graph of the model: ${nodes.length} nodes, ${edges.length} edges`}>
      ${lacking.size > 0 && html`<p class="legend"><svg viewBox="0 0 24 14" aria-hidden="true"><rect class="swatch-bad" x="1" y="1" width="22" height="12" /></svg> ✕ Farrier has no such operator</p>`}
      <div aria-live="polite">${node && html`<div class="panel"><${Facts} rows=${[
        ["Operator", html`<${Name} text=${node.op || node.kind} />`],
        ["Name", node.name && html`<${Name} text=${node.name} />`],
        ["Makes", node.outputs.length > 0 && node.outputs.map((name, at) => html`${at > 0 && ", "}<${Name} key=${at} text=${name} />`)],
        ["Compiles", node.op && isLacking(node) && "no: Farrier has no such operator"],
      ]} /></div>`}</div>
    <//>
  <//>`;
}
