// One of the two jobs that are compared.

import { useEffect, useState } from "preact/hooks";
import { useResource } from "../../lib/live.js";
import { html } from "../../lib/html.js";
import { Search } from "../../ui/controls.js";
import { Loading, Problem } from "../../ui/feedback.js";
import { Ago, Id, Name, State } from "../../ui/text.js";
import { useKernels } from "../job/kernels_of.js";
import { isFinal } from "../job/live.js";

const NEWS_MS = 5000;
const LISTED = 12;

/** `{id, job, error, curve, found}` of the job `id`, renewed while it runs; without an id there is none. */
export function useSide(id) {
  const [isOver, setOver] = useState(false);
  const path = id && `/v1/jobs/${encodeURIComponent(id)}`;
  const every = isOver ? 0 : NEWS_MS;
  const answer = useResource(path || null, { every });
  const job = id ? answer.data : null;
  const curve = useResource(job ? `${path}/curve?points=500` : null, { every });
  const found = useKernels(id, { curves: curve.data?.tasks, every, enabled: Boolean(job), renewed: job?.state });
  useEffect(() => setOver(isFinal(job) || answer.error?.status === 404), [job, answer.error]);
  return { id, job, error: id ? answer.error : null, isLoading: Boolean(id) && answer.isLoading, curve: curve.data, found };
}

/** The job of a side, or the search for one. `onChoose(id)` takes another, "" none. */
export function Side({ letter, side, onChoose }) {
  const { id, job, error } = side;
  return html`<section class="panel side" aria-label=${`Job ${letter}`}>
    <h2><span class=${`letter letter-${letter}`}>${letter}</span> ${job ? html`<a href=${`/jobs/${encodeURIComponent(id)}`}><${Name} text=${job.name} /></a>` : `Job ${letter}`}</h2>
    ${id && error && html`<${Problem} error=${error.status === 404 ? gone(id) : error} />`}
    ${id && !job && !error && html`<${Loading} what="Loading the job" />`}
    ${job && html`<p class="side-about"><${State} state=${job.state} /> <${Id} id=${id} length=${24} /> <span class="quiet">by <${Name} text=${job.owner} />, <${Ago} at=${job.created} /></span></p>`}
    ${job && html`<${Problem} error=${job.error} title="It failed." />`}
    ${id ? html`<p><button type="button" onClick=${() => onChoose("")}>Choose another</button></p>` : html`<${Chooser} letter=${letter} onChoose=${onChoose} />`}
  </section>`;
}

function gone(id) {
  return { status: 404, detail: `There is no job ${id}: it was deleted, or its time was over.`, hint: "Choose another." };
}

function Chooser({ letter, onChoose }) {
  const [text, setText] = useState("");
  const found = useResource(`/v1/jobs?${new URLSearchParams({ q: text, limit: LISTED })}`);
  return html`
    <${Search} label=${`Search for job ${letter}: name, id or target`} value=${text} onChange=${setText} />
    <${Problem} error=${found.error} retry=${found.refresh} />
    <ul class="found">${(found.data?.jobs ?? []).map(
      (job) => html`<li key=${job.id}><button type="button" class="found-job" onClick=${() => onChoose(job.id)}>
        <${Name} text=${job.name} /><span class="quiet"><${Ago} at=${job.created} /></span><${State} state=${job.state} /></button></li>`,
    )}</ul>
    ${found.data && !found.data.jobs.length && html`<p class="quiet">${text ? "No job is called so." : "There is no job yet."}</p>`}
  `;
}
