// The table of jobs, each of which can be picked to be compared.

import { milliseconds, ratio } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { gainOf, latencyOf, progressOf, targetOf } from "../../lib/jobs.js";
import { Table } from "../../ui/table.js";
import { Ago, Name, Share, State } from "../../ui/text.js";
import { JobLink } from "./cells.js";
import { Pick } from "./picked.js";

/** `order` is `{by, descending}`; `picked` is what `usePicked` returns. */
export function JobTable({ jobs, order, onOrder, picked }) {
  const isShared = new Set(jobs.map((job) => job.owner)).size > 1;
  const columns = [
    { key: "pick", label: html`<span class="unseen">Compare</span>`, cell: (job) => html`<${Pick} job=${job} picked=${picked} />` },
    { key: "name", label: "Job", sort: "name", cell: (job) => html`<${JobLink} job=${job} />` },
    { key: "state", label: "State", cell: (job) => html`<${State} state=${job.state} />` },
    { key: "progress", label: "Progress, gain", cell: result },
    { key: "best", label: "Best", sort: "best", isNumber: true, cell: (job) => milliseconds(latencyOf(job) ?? job.best_ms) },
    { key: "target", label: "Target", cell: (job) => html`<${Name} text=${targetOf(job)} />` },
    isShared && { key: "owner", label: "User", cell: (job) => html`<${Name} text=${job.owner} />` },
    { key: "created", label: "Submitted", sort: "created", isNumber: true, cell: (job) => html`<${Ago} at=${job.created} />` },
    { key: "finished", label: "Ended", sort: "finished", isNumber: true, cell: (job) => html`<${Ago} at=${job.finished} />` },
  ];
  return html`<${Table}
    caption="Jobs"
    columns=${columns.filter(Boolean)}
    rows=${jobs}
    rowKey=${(job) => job.id}
    rowClass=${(job) => (picked.ids.includes(job.id) ? "chosen" : "")}
    order=${order}
    onOrder=${onOrder}
  />`;
}

function result(job) {
  if (job.state === "running") {
    const known = progressOf(job);
    return known ? html`<${Share} value=${known.share} text=${known.text} />` : html`<span class="quiet">${job.stage ?? "begins"}</span>`;
  }
  const gain = gainOf(job);
  return gain ? html`<span title="The untuned model's time over the tuned model's">${ratio(gain)} as fast</span>` : "";
}
