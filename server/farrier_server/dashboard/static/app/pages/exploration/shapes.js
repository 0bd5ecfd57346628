// The shapes of an exploration: what they are, and their descriptions as files.

import { count, number } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Table } from "../../ui/table.js";
import { Name } from "../../ui/text.js";

const KIB = 1024;

export function Shapes({ exploration }) {
  const path = `/v1/explorations/${encodeURIComponent(exploration.id)}/description`;
  const rows = exploration.shapes.map((shape, index) => ({ ...shape.description, number: index + 1, name: shape.name, part: shape.part }));
  const columns = [
    { key: "number", label: "No.", isNumber: true, cell: (row) => row.number },
    { key: "name", label: "Shape", isWide: true, cell: (row) => html`<${Name} text=${row.name} />` },
    { key: "matrix", label: "Matrix", cell: ({ matrix }) => `${matrix.batch} × ${matrix.inner} × ${matrix.outer}` },
    { key: "memory", label: "KiB of inputs, weights, sums", cell: ({ memory }) => [memory.input, memory.weight, memory.sum].map((bytes) => number(bytes / KIB, 6)).join(", ") },
    { key: "port", label: "Bytes a cycle", isNumber: true, cell: (row) => count(row.port.bytes) },
    { key: "lanes", label: "Lanes", isNumber: true, cell: (row) => count(row.vector.lanes) },
    { key: "mhz", label: "MHz described", isNumber: true, cell: (row) => count(row.mhz) },
    rows.some((row) => row.part !== null) && { key: "part", label: "Placed on", cell: placed },
    { key: "file", label: "Description", cell: (row) => html`<a href=${`${path}?${new URLSearchParams({ shape: row.name })}`} download aria-label=${`Download the description of shape ${row.number}`}>Download</a>` },
  ].filter(Boolean);
  return html`<${Table} caption="Shapes" columns=${columns} rows=${rows} rowKey=${(row) => row.name} />
    <p class="hint">A description is for <code>--target</code>, <code>farrier hardware</code> and an agent's <code>--simulate</code>.</p>`;
}

function placed({ part }) {
  if (part === null) return "–";
  return part ? html`<${Name} text=${part} />` : "fits no ECP5";
}
