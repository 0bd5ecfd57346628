// All explorations that the reader may see: comparisons of accelerators by speed and area.

import { count } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { setQuery } from "../lib/router.js";
import { Code } from "../ui/controls.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { PageHead } from "../ui/shell.js";
import { Table } from "../ui/table.js";
import { Ago, Name, Share } from "../ui/text.js";

const ASKED_MS = 5000;
const PAGE = 50;
const COMMAND = "farrier explore dae:small --model model.onnx --vary port.bytes=4,8 --out shapes --server URL";

export function Explorations({ query }) {
  const asked = new URLSearchParams({ limit: String(PAGE), after: query.get("after") ?? "" });
  const resource = useResource(`/v1/explorations?${asked}`, { every: ASKED_MS });
  return html`
    <${PageHead} title="Explorations" />
    <${Loaded} resource=${resource} what="Looking for explorations">${({ explorations, next }) => {
      if (!explorations.length && !query.get("after")) return html`<${NoneAtAll} />`;
      return html`
        <${Table} caption="Explorations" columns=${columns(explorations)} rows=${explorations} rowKey=${(row) => row.id} />
        <${Pages} after=${query.get("after")} next=${next} />
      `;
    }}<//>
  `;
}

function columns(explorations) {
  const isShared = new Set(explorations.map((row) => row.owner)).size > 1;
  return [
    { key: "name", label: "Exploration", isWide: true, cell: named },
    { key: "results", label: "Results", cell: progress },
    { key: "shapes", label: "Shapes", isNumber: true, cell: (row) => count(row.shape_count) },
    { key: "models", label: "Models", isNumber: true, cell: (row) => count(row.model_count) },
    isShared && { key: "owner", label: "User", cell: (row) => html`<${Name} text=${row.owner} />` },
    { key: "created", label: "Started", isNumber: true, cell: (row) => html`<${Ago} at=${row.created} />` },
    { key: "changed", label: "Latest result", isNumber: true, cell: (row) => html`<${Ago} at=${row.changed} />` },
  ].filter(Boolean);
}

function named(row) {
  return html`<a class="row-link" href=${`/explorations/${encodeURIComponent(row.id)}`}><${Name} text=${row.name} /></a>
    ${row.private && html`<span class="row-note">private</span>`}`;
}

function progress(row) {
  const all = row.shape_count * row.model_count;
  return html`<${Share} value=${row.result_count / all} text=${`${count(row.result_count)} of ${count(all)}`} />`;
}

function NoneAtAll() {
  return html`<${Empty} title="No explorations yet">
    <p>An exploration compares shapes of accelerators: the cycles of models against the area. Each model and shape is a job of this farm.</p>
    <${Code} label="Command" text=${COMMAND} />
  <//>`;
}

function Pages({ after, next }) {
  if (!after && !next) return null;
  const to = (place) => () => {
    setQuery({ after: place }, { replace: false });
    scrollTo(0, 0);
  };
  return html`<nav class="pages" aria-label="Pages of explorations">
    <button type="button" disabled=${!after} onClick=${to(null)}>First page</button>
    <button type="button" disabled=${!next} onClick=${to(next)}>Next page</button>
  </nav>`;
}
