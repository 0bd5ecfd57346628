// The kernels of two jobs, those of the same task beside each other.

import { useMemo, useState } from "preact/hooks";
import { count, microseconds, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { setQuery } from "../../lib/router.js";
import { Search } from "../../ui/controls.js";
import { Empty, Problem } from "../../ui/feedback.js";
import { sorted, Table } from "../../ui/table.js";
import { Name } from "../../ui/text.js";
import { fasterText } from "./figures.js";

const A_PAGE = 50;

/** `a` and `b` are of `useKernels`. */
export function KernelPairs({ a, b, isComparable, search, by, descending }) {
  const [shown, setShown] = useState(A_PAGE);
  const pairs = useMemo(() => matched(a.kernels, b.kernels), [a.kernels, b.kernels]);
  const rows = useMemo(() => {
    const wanted = search.toLowerCase();
    return sorted(pairs.filter((pair) => pair.name.toLowerCase().includes(wanted)), { by, descending });
  }, [pairs, search, by, descending]);
  const errors = html`<${Problem} error=${a.error} /><${Problem} error=${b.error} />`;
  if (!pairs.length) return html`${errors}<${Empty} title="No kernels are known."><p>They are found once a model is partitioned, and forgotten a while after the job's end.</p><//>`;
  const both = pairs.filter((pair) => pair.a && pair.b).length;
  return html`
    ${errors}
    <div class="filters"><${Search} label="Search kernels" value=${search} onChange=${(text) => setQuery({ search: text })} /></div>
    <${Table} caption="Kernels of both jobs" columns=${isComparable ? COLUMNS : COLUMNS.filter((column) => column.key !== "ratio")} rows=${rows.slice(0, shown)}
      rowKey=${(row) => row.key} order=${{ by, descending }} onOrder=${(order) => setQuery({ sort: order.by, rising: order.descending ? "" : "1" })}
      empty="No kernel has this in its name." />
    <p class="hint">${count(both)} kernels are of both jobs, ${count(pairs.length - both)} of one. Times are of one call; * is predicted and not measured.</p>
    ${rows.length > shown && html`<p class="more"><button type="button" onClick=${() => setShown(shown + A_PAGE)}>Show more</button></p>`}
  `;
}

function matched(ours, theirs) {
  const others = new Map(theirs.map((kernel) => [kernel.key, kernel]));
  const own = new Set(ours.map((kernel) => kernel.key));
  const pairs = ours.map((kernel) => pairOf(kernel, others.get(kernel.key)));
  return [...pairs, ...theirs.filter((kernel) => !own.has(kernel.key)).map((kernel) => pairOf(undefined, kernel))];
}

function pairOf(a, b) {
  const one = a ?? b;
  return {
    key: one.key,
    name: one.name,
    a,
    b,
    a_us: a?.now_us ?? null,
    b_us: b?.now_us ?? null,
    a_share: a?.share ?? null,
    b_share: b?.share ?? null,
    share: Math.max(a?.share ?? 0, b?.share ?? 0),
    ratio: a?.now_us && b?.now_us ? a.now_us / b.now_us : null,
  };
}

const time = (kernel) => (kernel ? html`${microseconds(kernel.now_us)}${!kernel.isMeasured && html`<span class="quiet" title="predicted, not measured"> *</span>`}` : html`<span class="quiet">not there</span>`);
const COLUMNS = [
  { key: "name", label: "Kernel", sort: "name", isWide: true, cell: (row) => html`<${Name} text=${row.name} />` },
  { key: "a_share", label: "Share in A", sort: "share", isNumber: true, cell: (row) => percent(row.a_share) },
  { key: "b_share", label: "Share in B", sort: "b_share", isNumber: true, cell: (row) => percent(row.b_share) },
  { key: "a", label: "A", sort: "a_us", isNumber: true, cell: (row) => time(row.a) },
  { key: "b", label: "B", sort: "b_us", isNumber: true, cell: (row) => time(row.b) },
  { key: "ratio", label: "Which is faster", sort: "ratio", cell: (row) => fasterText(row.a_us, row.b_us) },
  { key: "a_source", label: "Schedule in A", cell: (row) => row.a?.source ?? "" },
  { key: "b_source", label: "Schedule in B", cell: (row) => row.b?.source ?? "" },
];
