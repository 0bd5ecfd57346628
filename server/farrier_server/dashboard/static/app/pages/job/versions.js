// The versions of a job's artifact: what each came to, which is in use, and the way back.

import { UNKNOWN, bytes, milliseconds, ratio } from "../../lib/format.js";
import { post } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { Action } from "../../ui/controls.js";
import { Section } from "../../ui/shell.js";
import { Table } from "../../ui/table.js";
import { Ago } from "../../ui/text.js";

/** Of a job that is `gone` the table alone; `onError` shows why one could not be put into use; `onChanged` reads the job again. */
export function Versions({ job, gone, onError, onChanged }) {
  const path = `/v1/jobs/${encodeURIComponent(job.id)}`;
  const use = async (version) => {
    await post(`${path}/rollback`, { to: version.number });
    onChanged();
  };
  const columns = [
    { key: "number", label: "Version", isNumber: true, cell: (one) => one.number },
    { key: "use", label: "State", cell: (one) => stateOf(job, one) },
    { key: "run", label: "Run", isNumber: true, cell: (one) => milliseconds(one.median_ms) },
    { key: "untuned", label: "Untuned beside it", isNumber: true, cell: (one) => milliseconds(one.untuned_ms) },
    { key: "gain", label: "Gain", isNumber: true, cell: (one) => (one.median_ms && one.untuned_ms ? ratio(one.untuned_ms / one.median_ms) : UNKNOWN) },
    { key: "bytes", label: "Size", isNumber: true, cell: (one) => bytes(one.bytes) },
    { key: "created", label: "Added", isNumber: true, cell: (one) => html`<${Ago} at=${one.created} />` },
    !gone && { key: "actions", label: html`<span class="unseen">Actions</span>`, cell: (one) => html`
      <a href=${`${path}/artifact?version=${one.number}`} download>Download<span class="unseen"> version ${one.number}</span></a>
      ${one.number !== job.version && job.may_change && html` <${Action} run=${() => use(one)} onError=${onError} title=${`Have version ${one.number} be the artifact, and stay it`}>Use<span class="unseen"> version ${one.number}</span><//>`}` },
  ].filter(Boolean);
  return html`<${Section} title="Versions">
    <${Table} caption="Versions" columns=${columns} rows=${[...job.versions].reverse()} rowKey=${(one) => one.number} />
    <p class="hint">${job.version_is_kept
      ? `Version ${job.version} stays in use, whatever comes: somebody chose it.`
      : "A faster version is put into use as it comes. Using one by hand keeps it."}</p>
  <//>`;
}

function stateOf(job, version) {
  if (version.number !== job.version) return version.number === 1 ? html`<span class="quiet">untuned</span>` : "";
  return html`<strong>${job.version_is_kept ? "kept in use" : "in use"}</strong>${version.number === 1 && html`<span class="quiet">, untuned</span>`}`;
}
