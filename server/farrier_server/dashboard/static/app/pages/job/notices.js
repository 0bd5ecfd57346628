// What a reader has to know of a job before its figures: that it is gone, failed, waits.

import { html } from "../../lib/html.js";
import { Notice, Problem } from "../../ui/feedback.js";
import { Name } from "../../ui/text.js";

/** `reason` is the last that was said of why the job is in the queue. */
export function JobNotices({ job, gone, link, reason }) {
  return html`
    ${gone &&
    html`<${Notice} tone="bad">
      <p><strong>This job is there no more.</strong> Somebody deleted it, or its time was over. What you see is the last that was known of it; the
      figures are not renewed.</p>
      <p><a href="/jobs">All jobs</a></p>
    <//>`}
    ${!gone &&
    link === "broken" &&
    html`<${Notice} tone="wait"><p><strong>The connection to the server is cut.</strong> The figures may be old; the page tries again by itself.</p><//>`}
    ${!gone && job.state === "queued" && html`<${Queued} job=${job} reason=${reason} />`}
    <${Problem} error=${job.error} title=${titleOf(job)} />
  `;
}

function Queued({ job, reason }) {
  return html`<${Notice} tone="wait">
    <p><strong>It waits in the queue.</strong> <span class="wrap">${reason ? `${reason}.` : "A worker takes it when it is its turn."}</span></p>
    ${job.wait_for_device &&
    html`<p>It runs as soon as ${job.device ? html`the device <${Name} text=${job.device} />` : html`a device of the class <${Name} text=${job.device_class} />`} is
      connected; <a href="/devices">devices</a> shows which are. To plug one in, run on that machine:</p>
      <p><code class="wrap">farrier device --broker ${location.hostname}:8441 --token-file device.token${job.device ? ` --name ${job.device}` : ""}</code></p>`}
  <//>`;
}

function titleOf(job) {
  return { dead: "The job is dead.", failed: "The job failed.", cancelled: "The job was cancelled." }[job.state] ?? "";
}

