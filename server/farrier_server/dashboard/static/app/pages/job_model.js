// The kernels of a job's model: the graph of their calls, their code, their place on the roofline.

import { useMemo } from "preact/hooks";
import { visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { setQuery } from "../lib/router.js";
import { Action } from "../ui/controls.js";
import { Empty, Loaded, Loading, Notice, Problem } from "../ui/feedback.js";
import { PageHead, Section, useTitle } from "../ui/shell.js";
import { Name, State } from "../ui/text.js";
import { Kernel } from "./graph/kernel.js";
import { KernelGraph } from "./graph/kernel_graph.js";
import { KernelTable } from "./graph/kernel_table.js";
import { usePrepared } from "./submit/inspecting.js";

const RENEWED_MS = 5000;
const OVER = new Set(["succeeded", "failed", "cancelled", "dead"]);

/** `?kernel=ID&part=loops&sort=us&search=`: the chosen kernel, what of it is shown, the table's order. */
export function JobModel({ id, query }) {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const job = useResource(path, { every: RENEWED_MS });
  const name = job.data?.name || id;
  useTitle(`Kernels of ${visible(name).slice(0, 80)}`);
  return html`
    <${PageHead} title=${html`<${Name} text=${name} />`} above=${html`Kernels of the <a href=${`/jobs/${encodeURIComponent(id)}`}>job</a>${job.data && html` <${State} state=${job.data.state} />`}`}>
      ${job.data && html`<a class="button" href=${`/models/${job.data.model}?${new URLSearchParams({ file: job.data.name })}`}>The model as it was uploaded</a>`}
    <//>
    <${Loaded} resource=${job} what="Loading the job">${(found) => html`<${OfJob} job=${found} path=${path} query=${query} />`}<//>
  `;
}

function OfJob({ job, path, query }) {
  if (job.state === "succeeded") return html`<${Prepared} job=${job} path=${path} query=${query} />`;
  if (!OVER.has(job.state)) {
    return html`<${Empty} title="The kernels are not final yet."><p>They are shown once the job has succeeded; it is ${job.state}. <a href=${`/jobs/${encodeURIComponent(job.id)}?tab=kernels`}>How each is tuned so far</a>.</p><//>`;
  }
  return html`<${Empty} title=${`The job ${{ failed: "failed", cancelled: "was cancelled", dead: "died" }[job.state]}.`}><p>It left no kernels. <a href=${`/submit?from=${encodeURIComponent(job.id)}`}>Submit it again, with changes</a>.</p><//>`;
}

function Prepared({ job, path, query }) {
  const prepared = usePrepared(`${path}/listing`, { asks: false });
  const { data, error, begin, isLoading } = prepared;
  if (data?.listing) return html`<${Listing} job=${job} path=${path} listing=${data.listing} query=${query} />`;
  if (isLoading && !error) return html`<${Loading} what="Looking for the kernels" />`;
  if (data && ["queued", "running"].includes(data.state)) {
    return html`<p role="status" class="loading"><${State} state=${data.state} /> ${data.state === "running" ? "A worker lists the kernels…" : "Waiting for a worker to list the kernels…"}</p>`;
  }
  const lost = data?.state === "cancelled" ? { title: "", detail: "The listing was cancelled." } : null;
  return html`
    <${Problem} error=${error ?? data?.error ?? lost} />
    <${Empty} title="The kernels of this job have not been listed yet.">
      <p>A worker reads them from the job's tuning: schedules, loops, LLVM and assembly. It takes about as long as a compilation without tuning.</p>
      <p><${Action} tone="main" run=${begin}>Prepare<//></p>
    <//>`;
}

function Listing({ job, path, listing, query }) {
  const { kernels } = listing;
  const index = kernels.findIndex((kernel) => String(kernel.id) === query.get("kernel"));
  const choose = (kernel) => setQuery({ kernel: kernel?.id ?? null });
  const order = { by: query.get("sort") ?? "share", descending: query.get("rising") !== "1" };
  const total = useMemo(() => kernels.reduce((sum, kernel) => sum + (kernel.us ?? 0) * kernel.calls, 0), [kernels]);
  const sizes = Object.entries(listing.sizes ?? {});
  return html`
    ${listing.is_same === false && html`<${Notice} tone="wait"><p>Made anew, these kernels are not the artifact's byte by byte: another version of Farrier has listed them than compiled them.</p><//>`}
    ${(listing.target || sizes.length > 0) && html`<p class="quiet">For <${Name} text=${listing.target} />${sizes.length > 0 && html`, at <${Name} text=${sizes.slice(0, 20).map(([name, size]) => `${name} = ${size}`).join(", ")} />`}</p>`}
    <div class="columns kernels">
      <${Section} title="Graph of kernel calls">
        ${listing.graph.nodes.length > 0
          ? html`<${KernelGraph} listing=${listing} chosen=${index < 0 ? null : kernels[index]} onChoose=${choose} />`
          : html`<${Empty} title="This job has no graph of calls."><p>The table has its kernels.</p><//>`}
      <//>
      <${Section} title="Kernels"><${KernelTable} kernels=${kernels} total=${total} chosen=${kernels[index]} order=${order} search=${query.get("search") ?? ""} onChoose=${choose} /><//>
    </div>
    ${index >= 0
      ? html`<${Kernel} key=${kernels[index].id} job=${job} path=${`${path}/listing/kernels/${encodeURIComponent(kernels[index].id)}`} kernel=${kernels[index]} kernels=${kernels} part=${query.get("part") ?? "schedule"} />`
      : html`<${Empty} title="No kernel is chosen."><p>Choose one in the graph or in the table: its schedule, code and place on the roofline are shown here.</p><//>`}
  `;
}
