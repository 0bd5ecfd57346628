// A job, live.

import { useMemo, useState } from "preact/hooks";
import { visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { setQuery } from "../lib/router.js";
import { Tabs } from "../ui/controls.js";
import { Loading, Notice, Problem } from "../ui/feedback.js";
import { Facts } from "../ui/figures.js";
import { PageHead } from "../ui/shell.js";
import { Ago, Id, Name, Said, State } from "../ui/text.js";
import { JobActions } from "./job/actions.js";
import { Choices } from "./job/choices.js";
import { Curves } from "./job/curve.js";
import { JobFigures } from "./job/figures.js";
import { Kernels } from "./job/kernels.js";
import { useKernels } from "./job/kernels_of.js";
import { isFinal, useLiveJob } from "./job/live.js";
import { Log, reasonIn, useLog } from "./job/log.js";
import { JobNotices } from "./job/notices.js";
import { Report } from "./job/report.js";
import { Trials } from "./job/trials.js";

const TABS = [["kernels", "Kernels"], ["trials", "Trials"], ["choices", "Choices"], ["log", "Log"], ["report", "Report"]];
const KERNELS_MS = 5000;

export function Job({ id, query }) {
  const live = useLiveJob(id);
  const { job, gone, link } = live;
  const isOver = isFinal(job) || Boolean(gone);
  const isClosed = Boolean(job && !job.may_read);
  const isShown = Boolean(job) && !gone && !isClosed;
  const found = useKernels(id, { every: isOver ? 0 : KERNELS_MS, enabled: isShown, renewed: `${job?.state} ${job?.attempts}` });
  const log = useLog(id, `${live.said} ${job?.state}`, isShown);
  const [failure, setFailure] = useState(null);
  const kernel = query.get("kernel") ?? "";
  const axis = query.get("axis") ?? "";
  const charts = useMemo(() => html`<${Curves} curve=${live.curve} kernel=${kernel} axis=${axis} isOver=${isOver} />`,
    [live.curve.points, live.curve.tasks, live.curve.isKnown, live.curve.error, kernel, axis, isOver]);

  if (!job) return html`<${NoJob} id=${id} gone=${gone} live=${live} />`;
  if (isClosed) return html`<${Closed} job=${job} gone=${gone} failure=${failure} onError=${setFailure} onChanged=${live.refresh} />`;
  const isStale = Boolean(gone) || link === "broken";
  return html`
    <${PageHead} title=${html`<${Name} text=${job.name} empty="A job without a name" />`} tab=${visible(job.name || "Job").slice(0, 100)}
      above=${html`<a href="/jobs">Jobs</a> / <${Id} id=${job.id} length=${24} />`}>
      ${!gone && html`<${JobActions} job=${job} onError=${setFailure} onChanged=${live.refresh} />`}
    <//>
    <${About} job=${job} gone=${gone} link=${link} />
    <${Problem} error=${failure} />
    <${JobNotices} job=${job} gone=${gone} link=${link} reason=${reasonIn(log.lines)} />
    ${!gone && live.error && link !== "broken" && html`<${Problem} error=${live.error} retry=${live.refresh} />`}
    <${Warnings} lines=${log.lines} />
    <${JobFigures} job=${job} points=${live.curve.points} isStale=${isStale} />
    ${charts}
    <${Panels} job=${job} found=${found} log=${log} query=${query} kernel=${kernel} isOver=${isOver} gone=${gone} onError=${setFailure} onChanged=${live.refresh} />
  `;
}

/** A job of another user, of which the reader sees how it stands. */
function Closed({ job, gone, failure, onError, onChanged }) {
  return html`
    <${PageHead} title=${html`<${Name} text=${job.name} empty="A job without a name" />`} tab=${visible(job.name || "Job").slice(0, 100)}
      above=${html`<a href="/jobs">Jobs</a> / <${Id} id=${job.id} length=${24} />`}>
      ${!gone && html`<${JobActions} job=${job} onError=${onError} onChanged=${onChanged} />`}
    <//>
    <${About} job=${job} gone=${gone} link="over" />
    <${Problem} error=${failure} />
    <${Notice} tone="wait">
      <p><strong>This job is ${job.private ? "private to" : "a job of"} <${Name} text=${job.owner} />.</strong> You see how it stands.
        What it measured and made is ${job.private ? "its owner's alone" : "for its owner, their group and admins"}.</p>
    <//>
    <${JobFigures} job=${job} points=${[]} isStale=${Boolean(gone)} />
  `;
}

function NoJob({ id, gone, live }) {
  if (gone) {
    return html`<${PageHead} title="No such job" above=${html`<a href="/jobs">Jobs</a> / <${Id} id=${id} length=${24} />`} />
      <${Problem} error=${{ status: 404, detail: `There is no job ${id}: it was deleted, or its time was over.`, hint: "The list of jobs has those that are known." }} />`;
  }
  return html`<${PageHead} title="Job" above=${html`<a href="/jobs">Jobs</a> / <${Id} id=${id} length=${24} />`} />
    ${live.error ? html`<${Problem} error=${live.error} retry=${live.refresh} />` : html`<${Loading} what="Loading the job" />`}`;
}

/** State, owner, target and times, in a line. */
function About({ job, gone, link }) {
  const target = job.target.startsWith("{") ? "a described machine" : job.target;
  return html`<div class="about" aria-live="polite">
    <span>${gone ? html`<${State} state="gone" tone="off" />` : html`<${State} state=${job.state} />`}</span>
    ${!gone && link === "live" && html`<span class="quiet">live</span>`}
    <span>by <${Name} text=${job.owner} />${job.private && ", private"}</span>
    <span title="target">for <${Name} text=${target} /></span>
    ${job.device ? html`<span>on <a href=${`/devices/${encodeURIComponent(job.device)}`}><${Name} text=${job.device} /></a></span>` : null}
    ${!job.device && job.device_class && html`<span>on the class <${Name} text=${job.device_class} /></span>`}
    <span>submitted <${Ago} at=${job.created} /></span>
    ${job.finished && html`<span>ended <${Ago} at=${job.finished} /></span>`}
  </div>`;
}

const MOST_WARNINGS = 3;

/** The newest warnings; the log has all. */
function Warnings({ lines }) {
  const warned = useMemo(() => lines.filter((line) => line.kind === "warned"), [lines]);
  if (!warned.length) return null;
  return html`<div class="notice notice-wait" role="status">
    ${warned.slice(-MOST_WARNINGS).map((line) => html`<p key=${line.id}><${Said} text=${line.text} /></p>`)}
    ${warned.length > MOST_WARNINGS && html`<p class="hint">${warned.length - MOST_WARNINGS} more warnings are in the log.</p>`}
  </div>`;
}

function Panels({ job, found, log, query, kernel, isOver, gone, onError, onChanged }) {
  const asked = query.get("tab") ?? "";
  const tab = TABS.some(([id]) => id === asked) ? asked : "kernels";
  const order = query.get("order") ?? "newest";
  const text = query.toString();
  const panel = useMemo(() => {
    const by = query.get("sort") ?? "share";
    const descending = query.get("rising") !== "1";
    if (tab === "trials") {
      return html`<${Trials} job=${job.id} tasks=${found.kernels} kernel=${kernel} status=${query.get("status") ?? ""}
        context=${query.get("context") ?? ""} order=${order} isLive=${!isOver} />`;
    }
    if (tab === "choices") return html`<${Choices} job=${job.id} found=${found} chosen=${kernel} isLive=${!isOver} />`;
    if (tab === "log") return html`<${Log} log=${log} job=${job} />`;
    if (tab === "report") return html`<${Report} job=${job} gone=${gone} onError=${onError} onChanged=${onChanged} />`;
    return html`<${Kernels} found=${found} chosen=${kernel} search=${query.get("search") ?? ""} by=${by} descending=${descending} />`;
  }, [tab, text, isOver, gone, found.kernels, found.error, found.isLoading, log, job.state, job.report, job.version, job.version_is_kept, job.versions.length]);
  return html`
    <${Tabs} label="Parts of the job" tabs=${TABS} chosen=${tab} onChoose=${(one) => setQuery({ tab: one === "kernels" ? "" : one })} />
    <div role="tabpanel" aria-label=${TABS.find(([id]) => id === tab)[1]}>${panel}</div>
  `;
}
