// The jobs that run, and those that ended last.

import { duration, milliseconds, ratio } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { gainOf, latencyOf, progressOf, targetOf } from "../../lib/jobs.js";
import { Empty } from "../../ui/feedback.js";
import { Table } from "../../ui/table.js";
import { Ago, Name, Share, State } from "../../ui/text.js";
import { JobLink } from "../jobs/cells.js";

const RUNNING = [
  { key: "name", label: "Job", isWide: true, cell: (job) => html`<${JobLink} job=${job} />` },
  { key: "state", label: "State", cell: (job) => html`<${State} state=${job.state} />` },
  { key: "stage", label: "Stage", cell: (job) => job.stage ?? html`<span class="quiet">begins</span>` },
  { key: "progress", label: "Progress", cell: progress },
  { key: "best", label: "Best so far", isNumber: true, cell: (job) => milliseconds(job.best_ms) },
  { key: "left", label: "Time left", isNumber: true, cell: (job) => duration(job.seconds_left) },
  { key: "target", label: "Target", cell: (job) => html`<${Name} text=${job.device ?? targetOf(job)} />` },
  { key: "owner", label: "User", cell: (job) => html`<${Name} text=${job.owner} />` },
];

const FINISHED = [
  { key: "name", label: "Job", isWide: true, cell: (job) => html`<${JobLink} job=${job} />` },
  { key: "state", label: "State", cell: (job) => html`<${State} state=${job.state} />` },
  { key: "latency", label: "Latency", isNumber: true, cell: (job) => milliseconds(latencyOf(job)) },
  { key: "gain", label: "Speed-up", isNumber: true, cell: (job) => ratio(gainOf(job)) },
  { key: "took", label: "Took", isNumber: true, cell: (job) => duration(job.started && job.finished ? job.finished - job.started : null) },
  { key: "owner", label: "User", cell: (job) => html`<${Name} text=${job.owner} />` },
  { key: "ended", label: "Ended", isNumber: true, cell: (job) => html`<${Ago} at=${job.finished} />` },
];

export function Running({ jobs }) {
  if (!jobs.length) {
    return html`<${Empty} title="No job runs"><p><a href="/submit">Submit a model</a>, and it is shown here as it is tuned.</p><//>`;
  }
  return html`<${Table} caption="Jobs that run" columns=${RUNNING} rows=${jobs} rowKey=${(job) => job.id} />`;
}

export function Finished({ jobs }) {
  if (!jobs.length) return html`<${Empty} title="No job has ended yet" />`;
  return html`<${Table} caption="Jobs that ended last" columns=${FINISHED} rows=${jobs} rowKey=${(job) => job.id} />`;
}

function progress(job) {
  const known = progressOf(job);
  return known ? html`<${Share} value=${known.share} text=${known.text} />` : html`<span class="quiet">–</span>`;
}
