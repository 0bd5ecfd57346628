// The results of a model, a row for each shape.

import { useState } from "preact/hooks";
import { count, milliseconds, number, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Table, sorted } from "../../ui/table.js";
import { Name, State } from "../../ui/text.js";
import { AREAS, shownArea } from "./facts.js";

/** `pointed` is the shape that the reader points at in the chart; `current(job)` has the newest state of a job. */
export function Results({ model, rows, pointed, current }) {
  const [order, setOrder] = useState({ by: "cycles", descending: false });
  return html`<${Table} caption=${`Results of ${model}`} columns=${columns(rows, current)} rows=${sorted(rows, order)} rowKey=${(row) => row.shape}
    rowClass=${(row) => (row.shape === pointed ? "chosen" : "")} order=${order} onOrder=${setOrder} />`;
}

function columns(rows, current) {
  const areas = AREAS.filter(([name]) => rows.some((row) => row.area[name] !== undefined));
  const isPlaced = rows.some((row) => row.mhz !== null);
  return [
    { key: "number", label: "No.", isNumber: true, sort: "number", cell: (row) => row.number },
    { key: "shape", label: "Shape", sort: "shape", cell: shape },
    { key: "state", label: "Job", cell: (row) => html`<${Job} row=${row} current=${current} />` },
    { key: "cycles", label: "Cycles", isNumber: true, sort: "cycles", cell: (row) => count(row.cycles) },
    { key: "device_ms", label: "Time", isNumber: true, sort: "device_ms", cell: (row) => milliseconds(row.device_ms) },
    { key: "latency_ms", label: "With host", isNumber: true, sort: "latency_ms", cell: (row) => milliseconds(row.latency_ms) },
    { key: "share", label: "Multiply-adds", isNumber: true, sort: "share", cell: (row) => percent(row.share, 3) },
    ...areas.map(([name, label]) => ({ key: name, label, isNumber: true, sort: name, cell: (row) => areaText(name, row.area[name]) })),
    isPlaced && { key: "mhz", label: "MHz", isNumber: true, sort: "mhz", cell: (row) => number(row.mhz) },
    isPlaced && { key: "placed_ms", label: "Time placed", isNumber: true, sort: "placed_ms", cell: (row) => milliseconds(row.placed_ms) },
    { key: "front", label: "Front", cell: (row) => (row.on_front ? html`<${State} state="on the front" tone="good" />` : "") },
  ].filter(Boolean);
}

const areaText = (name, value) => (name === "scratchpad_bytes" ? number(shownArea(name, value), 6) : count(value));

function shape(row) {
  const reason = row.kernels === 0 ? `nothing runs there: ${row.reason}` : "";
  return html`<${Name} text=${row.shape} />${reason && html`<span class="row-note"><${Name} text=${reason} /></span>`}`;
}

function Job({ row, current }) {
  if (!row.job) return html`<span class="quiet">${row.cycles === null ? "not submitted" : "–"}</span>`;
  const { state } = current({ id: row.job, state: row.state });
  return html`<a href=${`/jobs/${encodeURIComponent(row.job)}`} aria-label=${`${state}: the job of shape ${row.number}`}><${State} state=${state} /></a>`;
}
