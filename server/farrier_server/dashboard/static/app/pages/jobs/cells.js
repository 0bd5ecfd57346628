// Cells of tables of jobs.

import { html } from "../../lib/html.js";
import { Name } from "../../ui/text.js";

/** A job's name, or its id where it has none, as the way to its page; below it why it failed. */
export function JobLink({ job }) {
  return html`
    <a class="row-link" href=${`/jobs/${encodeURIComponent(job.id)}`}><${Name} text=${job.name || job.id} /></a>
    ${job.error && html`<span class="row-note"><${Name} text=${job.error.detail} /></span>`}
  `;
}
