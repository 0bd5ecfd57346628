// All kernels of a job, with their figures: the way to them that needs no graph.

import { useMemo, useState } from "preact/hooks";
import { count, microseconds, number, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { setQuery } from "../../lib/router.js";
import { Search } from "../../ui/controls.js";
import { sorted, Table } from "../../ui/table.js";
import { Name } from "../../ui/text.js";
import { levelOf, Swatch } from "./kernel_graph.js";

const PAGE = 50;

/** `total` is the time of all calls in µs; `order` is `{by, descending}`. */
export function KernelTable({ kernels, total, chosen, order, search, onChoose }) {
  const [shown, setShown] = useState(PAGE);
  const rows = useMemo(() => {
    const text = search.toLowerCase();
    const known = kernels.map((kernel) => ({ ...kernel, whole: kernel, gflops: kernel.roofline?.achieved_gflops ?? null }));
    return sorted(text ? known.filter((row) => `${row.name} ${row.rule}`.toLowerCase().includes(text)) : known, order);
  }, [kernels, search, order.by, order.descending]);
  const columns = [
    { key: "name", label: "Kernel", sort: "name", cell: (row) => html`<button type="button" class="link" aria-pressed=${row.whole === chosen} onClick=${() => onChoose(row.whole)}><${Name} text=${row.name} /></button>` },
    { key: "share", label: "Share", sort: "share", isNumber: true, cell: (row) => html`<span class="share-cell"><${Swatch} level=${levelOf(row.share)} />${percent(row.share)}</span>` },
    { key: "us", label: "A call", sort: "us", isNumber: true, cell: (row) => microseconds(row.us) },
    { key: "calls", label: "Calls", sort: "calls", isNumber: true, cell: (row) => count(row.calls) },
    { key: "gflops", label: "GFLOP/s", sort: "gflops", isNumber: true, cell: (row) => number(row.gflops) },
    { key: "rule", label: "Rule", sort: "rule", cell: (row) => html`<${Name} text=${row.rule} empty="–" />` },
    { key: "source", label: "Schedule", sort: "source", cell: (row) => row.source || "–" },
  ];
  return html`
    <div class="filters"><${Search} label="Search kernels" value=${search} onChange=${(text) => setQuery({ search: text })} /></div>
    <${Table} caption="Kernels" columns=${columns} rows=${rows.slice(0, shown)} rowKey=${(row) => row.id} rowClass=${(row) => (row.whole === chosen ? "chosen" : "")}
      order=${order} onOrder=${(next) => setQuery({ sort: next.by, rising: next.descending ? "" : "1" })} empty="No kernel has this in its name." />
    ${rows.length > shown && html`<p class="more"><button type="button" onClick=${() => setShown(shown + PAGE)}>Show more</button></p>`}
    <p class="hint">${count(rows.length)} of ${count(kernels.length)} kernels; one run calls them for ${microseconds(total)} together.</p>
  `;
}
