// What a reader has to know of a job before its figures: that it is gone, failed, waits.

import { html } from "../../lib/html.js";
import { Code } from "../../ui/controls.js";
import { Notice, Problem } from "../../ui/feedback.js";
import { Name, Said } from "../../ui/text.js";
import { PlugIn, startCommand, useBroker } from "../devices/plug_in.js";

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
  const asked = job.device ? html`the device <${Name} text=${job.device} />` : html`a device of the class <${Name} text=${job.device_class} />`;
  return html`<${Notice} tone="wait">
    <p><strong>It waits in the queue.</strong> <${Said} text=${reason ? `${capitalized(reason)}.` : "A worker takes it when it is its turn."} /></p>
    ${job.wait_for_device &&
    html`<p>It runs as soon as ${asked} is connected. <a href="/devices">Devices</a> shows which are.</p>
      <details><summary>How to plug one in</summary>${job.device ? html`<${Again} />` : html`<${PlugIn} />`}</details>`}
  <//>`;
}

/** How to start the agent of a device that the farm knows by name. */
function Again() {
  const broker = useBroker();
  return html`<${Code} label="Command for the device" text=${startCommand({ broker })} />`;
}

const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function titleOf(job) {
  return { dead: "The job is dead.", failed: "The job failed.", cancelled: "The job was cancelled." }[job.state] ?? "";
}

