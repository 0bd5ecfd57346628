// The tuning records of the farm, and the cost model that is trained on them.

import { count, percent } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { Facts, Figure, Figures } from "../ui/figures.js";
import { PageHead, Section } from "../ui/shell.js";
import { Table } from "../ui/table.js";
import { Ago, Name } from "../ui/text.js";

const ASKED_MS = 10_000;

const COLUMNS = [
  { key: "class", label: "Class", isWide: true, cell: named },
  { key: "records", label: "Records", isNumber: true, cell: (row) => count(row.records) },
  { key: "tasks", label: "Kernels", isNumber: true, cell: (row) => count(row.tasks) },
  { key: "oldest", label: "Oldest", isNumber: true, cell: (row) => html`<${Ago} at=${row.oldest} />` },
  { key: "newest", label: "Newest", isNumber: true, cell: (row) => html`<${Ago} at=${row.newest} />` },
];

function named(row) {
  const place = `/devices?${new URLSearchParams({ q: row.device_class })}`;
  return html`
    ${row.device_class ? html`<a href=${place}><${Name} text=${row.name} /></a>` : html`<${Name} text=${row.name} />`}
    <span class="row-note"><${Name} text=${row.device_class} empty="no class" /></span>
  `;
}

export function Records() {
  const resource = useResource("/v1/records", { every: ASKED_MS });
  return html`
    <${PageHead} title="Records" />
    <${Loaded} resource=${resource} what="Looking at the records">${(data) => html`
      <${Summary} data=${data} />
      <${Section} title="Tuning records"><${Classes} data=${data} /><//>
    `}<//>
    <${Section} title="Cost model"><${CostModel} /><//>
  `;
}

function Summary({ data }) {
  const newest = Math.max(0, ...data.classes.map((row) => row.newest ?? 0));
  const kernels = data.classes.reduce((sum, row) => sum + (row.tasks ?? 0), 0);
  return html`<${Figures} label="Records">
    <${Figure} name="Records" value=${count(data.count)} detail="kept until pruned" />
    <${Figure} name="Device classes" value=${count(data.classes.length)} detail="have records" />
    <${Figure} name="Kernels" value=${count(kernels)} detail="measured" />
    <${Figure} name="Newest" value=${newest ? html`<${Ago} at=${newest} />` : "–"} />
  <//>`;
}

function Classes({ data }) {
  if (!data.count) {
    return html`<${Empty} title="No records yet">
      <p>
        Each job that tunes leaves what it measured: the next job with a kernel of the same kind, on the same class of
        device, begins with it.
      </p>
      <p>What is missing: a job with a budget or trials on a device that is no emulator. <a href="/submit">Submit one</a></p>
    <//>`;
  }
  return html`
    <${Table} caption="Records of each device class" columns=${COLUMNS} rows=${data.classes} rowKey=${(row) => row.device_class} />
    <p class="hint">
      Records hold for the class that they were measured on. A job gives its own at <code>/v1/jobs/ID/records</code>.
    </p>
  `;
}

/** The cost model that jobs begin with, and what the farm's trainer has made of the records. */
function CostModel() {
  const resource = useResource("/v1/cost-model", { every: ASKED_MS });
  return html`<${Loaded} resource=${resource} what="Looking at the cost model">${(state) => html`
    <div class="panel"><${Facts} rows=${costModelFacts(state)} /></div>
    <p class="hint">A job begins with this model and learns from what it measures. <code>farrier trainer</code> trains a version of
      it on the farm's records, which is taken into use if it ranks unseen kernels better.</p>
  `}<//>`;
}

function costModelFacts({ in_use: number, versions, trained, last }) {
  const version = versions.find((one) => one.in_use);
  const ranked = version?.training.figures.trained;
  return [
    ["In use", number ? `version ${number}, trained on the farm's records` : "the one that ships with Farrier"],
    ["Made", version && html`<${Ago} at=${version.created} />`],
    ["Records that taught it", version && count(version.training.records)],
    ["Kernels that taught it", version && count(version.training.tasks)],
    ["Pairs in the right order", ranked && `${percent(ranked.pairs)} of those of ${count(version.training.held_out)} unseen kernels`],
    ["Versions kept", versions.length > 0 && count(versions.length)],
    ["Last training", trained === null ? "none yet" : html`<${Ago} at=${trained} />`],
    ["Its outcome", last && html`<${Name} text=${last.reason} />`],
  ];
}
