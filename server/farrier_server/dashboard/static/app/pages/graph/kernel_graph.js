// The graph of kernel calls, coloured by what share of the time each kernel takes.

import { useMemo } from "preact/hooks";
import { count, microseconds, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Notice } from "../../ui/feedback.js";
import { drawable, GraphCanvas } from "./canvas.js";

// The least share of each level but the first.
const BOUNDS = [0.01, 0.03, 0.1, 0.2];
const TEXTS = ["below 1 %", "1 to 3 %", "3 to 10 %", "10 to 20 %", "20 % and more"];

/** `chosen` is a kernel or null; `onChoose(kernel)` is told of another one. */
export function KernelGraph({ listing, chosen, onChoose }) {
  const { nodes, edges, left_out: leftOut = 0 } = listing.graph;
  const kernels = useMemo(() => new Map(listing.kernels.map((kernel) => [kernel.id, kernel])), [listing]);
  const graph = useMemo(() => {
    const places = new Map(nodes.map((node, index) => [node.id, index]));
    const pairs = edges.map(([from, to]) => [places.get(from), places.get(to)]);
    return drawable(nodes.map((node) => shownOf(node, kernels.get(node.kernel))), pairs.filter(([from, to]) => from !== undefined && to !== undefined));
  }, [listing]);
  const marked = useMemo(() => (chosen ? nodes.flatMap((node, index) => (node.kernel === chosen.id ? [index] : [])) : []), [listing, chosen]);
  const choose = (place) => {
    const kernel = kernels.get(nodes[place].kernel);
    if (kernel) onChoose(kernel);
  };
  return html`
    ${leftOut > 0 && html`<${Notice} tone="wait"><p>The graph shows the first ${count(nodes.length)} calls; ${count(leftOut)} more are left out.</p><//>`}
    <${GraphCanvas} graph=${graph} chosen=${marked} onChoose=${choose} label=${`Graph of ${nodes.length} kernel calls with ${edges.length} edges. The table of kernels has the same figures.`}>
      <${Legend} kernels=${listing.kernels} />
    <//>`;
}

function shownOf(node, kernel) {
  const shape = node.shape?.length ? `[${node.shape.join(", ")}]` : "";
  if (!kernel) return { title: node.name || node.op, detail: [node.op, shape].filter(Boolean).join(" "), level: -1 };
  return { title: kernel.name || node.op, detail: `${percent(kernel.share)} · ${microseconds(kernel.us)}`, more: `${node.name} ${shape}`, level: levelOf(kernel.share) };
}

function Legend({ kernels }) {
  const counts = useMemo(() => kernels.reduce((all, kernel) => all.with(levelOf(kernel.share), all[levelOf(kernel.share)] + 1), TEXTS.map(() => 0)), [kernels]);
  return html`<p class="legend">
    <span>Share of the time:</span>
    ${TEXTS.map((text, level) => html`<span key=${level}><${Swatch} level=${level} />${text} (${counts[level]})</span>`)}
    <span><svg viewBox="0 0 30 18" aria-hidden="true"><rect class="swatch swatch-plain" x="1" y="1" width="28" height="16" /></svg>no kernel</span>
  </p>`;
}

/** A node as the graph draws it: the darker and the more strokes, the greater its share. */
export function Swatch({ level }) {
  return html`<svg viewBox="0 0 30 18" aria-hidden="true"><rect class="swatch level-${level}" x="1" y="1" width="28" height="16" />
    ${Array.from({ length: level + 1 }, (_, stroke) => html`<rect key=${stroke} class="swatch-stroke" x=${5 + stroke * 4.5} y="5" width="2.4" height="8" />`)}</svg>`;
}

export function levelOf(share) {
  return BOUNDS.filter((bound) => (share ?? 0) >= bound).length;
}
