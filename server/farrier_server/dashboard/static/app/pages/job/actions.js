// What a reader may do with a job.

import { useState } from "preact/hooks";
import { post, remove } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { navigate } from "../../lib/router.js";
import { Action, Confirm } from "../../ui/controls.js";
import { Name } from "../../ui/text.js";
import { isFinal } from "./live.js";

/** The buttons of a job's head. `onError` shows why one failed; `onChanged` reads the job again. */
export function JobActions({ job, onError, onChanged }) {
  const [asked, setAsked] = useState("");
  const path = `/v1/jobs/${encodeURIComponent(job.id)}`;
  const answer = (run) => async (isYes) => {
    setAsked("");
    if (!isYes) return;
    try {
      await run();
      onError(null);
    } catch (error) {
      onError(error);
    }
  };
  const cancel = answer(async () => {
    await post(`${path}/cancel`);
    onChanged();
  });
  const forget = answer(async () => {
    await remove(path);
    navigate("/jobs");
  });
  return html`
    ${job.may_read && html`
      ${job.artifact && html`<a class="button button-main" href=${`${path}/artifact`} download>Download</a>`}
      <a class="button" href=${`/jobs/${encodeURIComponent(job.id)}/model`}>Model and kernels</a>
      <a class="button" href=${`/compare?jobs=${encodeURIComponent(job.id)}`}>Compare</a>
      <a class="button" href=${`/submit?from=${encodeURIComponent(job.id)}`}>Resubmit with changes</a>
    `}
    ${!isFinal(job) && job.may_cancel && html`<${Action} run=${() => setAsked("cancel")}>Cancel job<//>`}
    ${job.may_change && html`<${Action} tone="bad" run=${() => setAsked("delete")}>Delete<//>`}
    ${asked === "cancel" &&
    html`<${Confirm} title="Cancel this job?" yes="Cancel the job" onAnswer=${cancel}>
      <p>It stops, and makes no artifact. What it measured stays with the farm: submitted again, it goes on from there.</p>
    <//>`}
    ${asked === "delete" &&
    html`<${Confirm} title="Delete this job?" yes="Delete the job" onAnswer=${forget}>
      <p><${Name} text=${job.name} /> is forgotten with its curve, its log and its artifact. This cannot be undone.</p>
      ${!isFinal(job) && html`<p>It has not ended: it is cancelled, too.</p>`}
    <//>`}
  `;
}
