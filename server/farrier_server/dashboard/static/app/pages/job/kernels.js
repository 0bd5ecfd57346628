// The kernels of a job: where the time goes, and what tuning brought.

import { useMemo, useState } from "preact/hooks";
import { count, microseconds, percent, ratio } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { setQuery } from "../../lib/router.js";
import { Search } from "../../ui/controls.js";
import { Empty, Loading, Problem } from "../../ui/feedback.js";
import { sorted, Table } from "../../ui/table.js";
import { Name, Share } from "../../ui/text.js";
import { CURVES } from "./curve.js";

const A_PAGE = 25;

/** `found` is of `useKernels`; `order` is `{by, descending}`. */
export function Kernels({ found, chosen, search, by, descending }) {
  const [shown, setShown] = useState(A_PAGE);
  const rows = useMemo(() => {
    const wanted = search.toLowerCase();
    const matching = found.kernels.filter((one) => one.name.toLowerCase().includes(wanted) || one.task.startsWith(wanted));
    return sorted(matching, { by, descending });
  }, [found.kernels, search, by, descending]);
  if (found.isLoading) return html`<${Loading} what="Loading kernels" />`;
  if (!found.kernels.length) return html`<${Problem} error=${found.error} />${!found.error && html`<${NoKernels} />`}`;
  const isSized = found.kernels.some((one) => one.sizesText);
  const columns = isSized ? [...COLUMNS.slice(0, 1), SIZES, ...COLUMNS.slice(1)] : COLUMNS;
  return html`
    <${Problem} error=${found.error} />
    <div class="filters"><${Search} label="Search kernels" value=${search} onChange=${(text) => setQuery({ search: text })} /></div>
    <${Table} caption="Kernels" columns=${columns} rows=${rows.slice(0, shown)} rowKey=${(row) => row.key}
      rowClass=${(row) => (row.task === chosen ? "chosen" : "")} order=${{ by, descending }}
      onOrder=${(order) => setQuery({ sort: order.by, rising: order.descending ? "" : "1" })} empty="No kernel has this in its name." />
    <p class="hint">${count(rows.length)} kernels${found.hasMore ? ", and more than the page can hold" : ""}. * marks a time that the
      analytic model predicts. Trials are of the kernel in the model where it was measured there, otherwise alone; the gain is
      the first trial's time over the best trial's.</p>
    ${rows.length > shown && html`<p class="more"><button type="button" onClick=${() => setShown(shown + A_PAGE)}>Show more</button></p>`}
  `;
}

function NoKernels() {
  return html`<${Empty} title="No kernels are known yet."><p>They are found once the model is partitioned, and forgotten a while after the job's end.</p><//>`;
}

const choose = (row) => (event) => {
  event.preventDefault();
  setQuery({ kernel: row.task }, { replace: false });
  document.getElementById(CURVES)?.scrollIntoView({ block: "nearest" });
};

const PREDICTED = html`<span class="quiet" title="predicted, not measured"> *</span>`;

/** The time of a trial, whose context its title names. */
function Trial({ us, context }) {
  return html`<span title=${us === null ? "" : `measured ${context}`}>${microseconds(us)}</span>`;
}

const SIZES = { key: "sizes", label: "Sizes", sort: "sizesText", cell: (row) => html`<${Name} text=${row.sizesText} empty="all" />` };
const COLUMNS = [
  {
    key: "name",
    label: "Kernel",
    sort: "name",
    isWide: true,
    cell: (row) => html`<button type="button" class="link" onClick=${choose(row)} title="Show its curve, trials and choices"><${Name} text=${row.name} /></button>`,
  },
  { key: "share", label: "Share of time", sort: "share", isNumber: true, cell: (row) => html`<${Share} value=${row.share} text=${percent(row.share)} />` },
  { key: "calls", label: "Calls", sort: "calls", isNumber: true, cell: (row) => count(row.calls) },
  { key: "source", label: "Schedule", sort: "source", cell: (row) => html`<span class="source source-${row.source}">${row.source}</span>` },
  { key: "default", label: "Default, predicted", sort: "default_us", isNumber: true, cell: (row) => html`${microseconds(row.default_us)}${row.default_us !== null && PREDICTED}` },
  { key: "first", label: "First trial", sort: "first", isNumber: true, cell: (row) => html`<${Trial} us=${row.first} context=${row.context} />` },
  { key: "best", label: "Best trial", sort: "best", isNumber: true, cell: (row) => html`<${Trial} us=${row.best} context=${row.context} />` },
  { key: "now", label: "In use", sort: "now_us", isNumber: true, cell: (row) => html`${microseconds(row.now_us)}${!row.isMeasured && PREDICTED}` },
  { key: "gain", label: "Gain", sort: "gain", isNumber: true, cell: (row) => ratio(row.gain) },
  { key: "trials", label: "Trials", sort: "trials", isNumber: true, cell: (row) => count(row.trials) },
  { key: "failed", label: "Failed", sort: "failed", isNumber: true, cell: (row) => (row.failed ? count(row.failed) : html`<span class="quiet">0</span>`) },
];
