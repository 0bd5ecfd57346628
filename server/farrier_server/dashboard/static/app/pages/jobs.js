// All jobs: searched, filtered, sorted; every view has its own link.

import { count } from "../lib/format.js";
import { useFarm, useJobStates } from "../lib/farm.js";
import { html } from "../lib/html.js";
import { STATES } from "../lib/jobs.js";
import { useResource } from "../lib/live.js";
import { setQuery } from "../lib/router.js";
import { Choice, Search } from "../ui/controls.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { LiveMark } from "../ui/link.js";
import { PageHead } from "../ui/shell.js";
import { JobTable } from "./jobs/table.js";
import { Picked, usePicked } from "./jobs/picked.js";

const FILTERS = ["q", "state", "owner", "target"];
const ASKED_MS = 5000; // progress is no event of the farm
const PAGE = 50;
const CHOICES = [["", "Any state"], ...STATES.map((state) => [state, state])];

export function Jobs({ query, session }) {
  const resource = useResource(`/v1/jobs?${requested(query)}`, { every: ASKED_MS });
  const [note, current] = useJobStates(resource.data);
  const link = useFarm(resource, { concerns: (event) => event.kind === "job", onEvents: note });
  const picked = usePicked(query);
  const isFiltered = FILTERS.some((name) => query.get(name));
  const order = { by: query.get("sort") || "created", descending: query.get("descending") !== "false" };
  const sort = (next) => setQuery({ sort: next.by, descending: next.descending, after: null });
  return html`
    <${PageHead} title="Jobs">
      <${LiveMark} link=${link} />
      <a class="button button-main" href="/submit">Submit a model</a>
    <//>
    <${Filters} query=${query} session=${session} jobs=${resource.data?.jobs ?? []} />
    <${Picked} picked=${picked} />
    <${Loaded} resource=${resource} what="Looking for jobs">${(data) => list(data)}<//>
  `;

  function list(data) {
    const isPart = data.complete === false;
    const isEmpty = !data.jobs.length;
    if (isEmpty && !isFiltered && !query.get("after")) return html`<${NoneAtAll} />`;
    return html`
      ${isEmpty
        ? html`<${NoneMatch} isPart=${isPart} />`
        : html`<${JobTable} jobs=${data.jobs.map(current)} order=${order} onOrder=${sort} picked=${picked} />`}
      <${Pages} query=${query} next=${data.next} shown=${data.jobs.length} />
      ${isPart && !isEmpty && html`<p class="hint">Only the newest 2 000 jobs were looked at. A state or a user narrows them.</p>`}
    `;
  }
}

function Filters({ query, session, jobs }) {
  const filter = (name) => (value) => setQuery({ [name]: value, after: null });
  const chosen = query.get("owner") ?? "";
  const owners = [...new Set([session.owner, chosen, ...jobs.map((job) => job.owner)])].filter(Boolean).sort();
  const users = [["", "All users"], ...owners.map((owner) => [owner, owner === session.owner ? `${owner} (you)` : owner])];
  const isFiltered = FILTERS.some((name) => query.get(name));
  return html`<div class="filters" role="search" aria-label="Jobs">
    <${Search} label="Search by name, id or target" value=${query.get("q") ?? ""} onChange=${filter("q")} />
    <${Choice} label="State" value=${query.get("state") ?? ""} options=${CHOICES} onChange=${filter("state")} />
    <${Choice} label="User" value=${chosen} options=${users} onChange=${filter("owner")} />
    <${Search} label="Target" value=${query.get("target") ?? ""} onChange=${filter("target")} />
    ${isFiltered && html`<button type="button" onClick=${clear}>Clear</button>`}
  </div>`;
}

const clear = () => setQuery({ q: null, state: null, owner: null, target: null, after: null });

function NoneAtAll() {
  return html`<${Empty} title="No jobs yet">
    <p>A job compiles a model for a target and tunes it on a device. Upload one here, or with <code>farrier submit model.onnx</code>.</p>
    <p><a class="button button-main" href="/submit">Submit a model</a></p>
  <//>`;
}

function NoneMatch({ isPart }) {
  return html`<${Empty} title="No job matches">
    <p>${isPart ? "Only the newest 2 000 jobs were looked at: a state or a user narrows them." : "Deleted jobs are not listed."}</p>
    <p><button type="button" onClick=${clear}>Show all jobs</button></p>
  <//>`;
}

function Pages({ query, next, shown }) {
  const after = query.get("after");
  const to = (place) => () => {
    setQuery({ after: place }, { replace: false });
    scrollTo(0, 0);
  };
  if (!after && !next) return shown > 0 && html`<p class="hint">${shown === 1 ? "One job" : `${count(shown)} jobs`}.</p>`;
  return html`<nav class="pages" aria-label="Pages of jobs">
    <button type="button" disabled=${!after} onClick=${to(null)}>First page</button>
    <button type="button" disabled=${!after} onClick=${() => history.back()}>Back</button>
    <button type="button" disabled=${!next} onClick=${to(next)}>Next page</button>
  </nav>`;
}

/** The query of the API for the query of the page. */
function requested(query) {
  const asked = new URLSearchParams({ limit: String(PAGE) });
  for (const name of [...FILTERS, "sort", "descending", "after"]) {
    if (query.get(name)) asked.set(name, query.get(name));
  }
  if (!asked.has("descending")) asked.set("descending", "true");
  return asked.toString();
}
