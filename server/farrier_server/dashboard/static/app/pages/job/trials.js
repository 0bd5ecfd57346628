// The trials of a job, page by page, as the API filters and sorts them.

import { useEffect, useMemo, useState } from "preact/hooks";
import { useResource } from "../../lib/live.js";
import { count, microseconds } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { setQuery } from "../../lib/router.js";
import { Choice } from "../../ui/controls.js";
import { Loaded } from "../../ui/feedback.js";
import { Table } from "../../ui/table.js";
import { Ago, Name } from "../../ui/text.js";
import { decisionsText } from "./decisions.js";
import { KernelChoice } from "./kernel_choice.js";

const A_PAGE = 50;
const NEWS_MS = 5000;
const ORDERS = [["newest", "Newest first"], ["oldest", "Oldest first"], ["fastest", "Fastest first"]];
const STATUSES = [["", "Every outcome"], ...["ok", "wrong", "crashed", "timeout", "rejected"].map((one) => [one, one])];
const CONTEXTS = [["", "Alone and in the model"], ["alone", "Alone"], ["model", "In the model"]];

/** `isLive` while the job runs: the first page of the newest is then renewed. */
export function Trials({ job, tasks, kernel, status, context, order, isLive }) {
  const [before, setBefore] = useState([]); // cursors of the pages before this one
  const [after, setAfter] = useState("");
  const filters = new URLSearchParams({ task: kernel, status, context, order, limit: A_PAGE }).toString();
  useEffect(() => {
    setBefore([]);
    setAfter("");
  }, [filters]);
  const isRenewed = isLive && !after && order !== "oldest";
  const path = `/v1/jobs/${encodeURIComponent(job)}/trials?${filters}${after ? `&after=${encodeURIComponent(after)}` : ""}`;
  const page = useResource(path, { every: isRenewed ? NEWS_MS : 0 });
  const names = useMemo(() => new Map(tasks.map((task) => [task.task, task.name])), [tasks]);
  const columns = useMemo(() => columnsWith(names), [names]);
  const next = page.data?.next ?? "";
  const forward = () => {
    setBefore([...before, after]);
    setAfter(next);
  };
  const back = () => {
    setAfter(before.at(-1));
    setBefore(before.slice(0, -1));
  };
  return html`
    <div class="filters">
      <${KernelChoice} tasks=${tasks} chosen=${kernel} none="Every kernel" />
      <${Choice} label="Outcome" value=${status} options=${STATUSES} onChange=${(value) => setQuery({ status: value })} />
      <${Choice} label="Context" value=${context} options=${CONTEXTS} onChange=${(value) => setQuery({ context: value })} />
      <${Choice} label="Order" value=${order} options=${ORDERS} onChange=${(value) => setQuery({ order: value === "newest" ? "" : value })} />
    </div>
    <${Loaded} resource=${page} what="Loading trials">${(data) => html`
      <${Table} caption="Trials" columns=${columns} rows=${data.trials} rowKey=${(row) => row.id}
        empty=${next ? "None on this page; there are more." : "No trial is like that. Those of an emulated device are not kept."} />`}<//>
    ${(before.length > 0 || next) &&
    html`<p class="more pages"><button type="button" disabled=${!before.length} onClick=${back}>Before</button>
      <span class="quiet">page ${count(before.length + 1)}</span>
      <button type="button" disabled=${!next || page.isLoading} onClick=${forward}>Next</button></p>`}
  `;
}

function columnsWith(names) {
  return [
    { key: "when", label: "When", cell: (row) => html`<${Ago} at=${row.created} />` },
    { key: "kernel", label: "Kernel", cell: (row) => html`<${Name} text=${names.get(row.task) ?? row.task} />` },
    { key: "context", label: "Context", cell: (row) => (row.context === "alone" ? "alone" : "in the model") },
    { key: "status", label: "Outcome", cell: (row) => html`<span class=${row.status === "ok" ? "" : "trial-bad"}>${row.status}</span>` },
    { key: "us", label: "Time", isNumber: true, cell: (row) => microseconds(row.us) },
    { key: "decisions", label: "Decisions", isWide: true, cell: (row) => html`<span class="decisions">${decisionsText(row.decisions) || "none"}</span>` },
    { key: "device", label: "Device", cell: (row) => html`<${Name} text=${row.device} empty="–" />` },
  ];
}
