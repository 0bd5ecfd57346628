// What two jobs came to, side by side.

import { bytes, count, duration, milliseconds, number, ratio, visible } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { gainOf, measuredOf } from "../../lib/jobs.js";
import { Table } from "../../ui/table.js";
import { Name } from "../../ui/text.js";
import { ENGINES } from "../job/report.js";
import { optionTexts } from "../job/options.js";

const EQUAL = 0.005; // times that differ by less are called equal

/** Which of two times is the shorter one, as text. */
export function fasterText(a, b) {
  if (!a || !b) return "–";
  if (Math.abs(a / b - 1) < EQUAL) return "equal";
  return a > b ? `B ${ratio(a / b)} as fast` : `A ${ratio(b / a)} as fast`;
}

/** The same for what was measured with its spread: medians that lie within both spreads tell nothing. */
function fasterOf(a, b) {
  if (!a || !b || a.median === undefined) return fasterText(a, b);
  const isWithin = (one, other) => one.median >= other.p10 && one.median <= other.p90;
  return isWithin(a, b) && isWithin(b, a) ? "no clear difference" : fasterText(a.median, b.median);
}

/** `isComparable` where times of both are of devices of one class. */
export function Figures({ a, b, isComparable }) {
  const rows = ROWS.map(([name, of, format, isTime]) => ({ name, a: of(a), b: of(b), format, isTime })).filter((row) => known(row.a) || known(row.b));
  const columns = [
    { key: "name", label: "", cell: (row) => row.name },
    { key: "a", label: "A", isNumber: true, cell: (row) => row.format(row.a) },
    { key: "b", label: "B", isNumber: true, cell: (row) => row.format(row.b) },
    { key: "ratio", label: "Which is faster", cell: (row) => (row.isTime && isComparable ? fasterOf(row.a, row.b) : "") },
  ];
  return html`<${Table} caption="Figures" columns=${columns} rows=${rows} rowKey=${(row) => row.name} />`;
}

const known = (value) => value !== null && value !== undefined;
const spread = (one) => (known(one) ? html`${milliseconds(one.median)} <span class="quiet">(${milliseconds(one.p10)} to ${milliseconds(one.p90)})</span>` : "–");
const spent = (job) => Object.values(job.report?.tuning?.seconds ?? {}).reduce((sum, kinds) => sum + (kinds.all ?? 0), 0) || null;
const took = (job) => (job.started && job.finished ? job.finished - job.started : null);

const ROWS = [
  ["Latency", (job) => measuredOf(job)?.ms, spread, true],
  ["Latency, estimated", (job) => (measuredOf(job) ? null : job.best_ms), milliseconds, true],
  ["Untuned, in the same race", (job) => measuredOf(job)?.untuned, spread, true],
  ["Gain of tuning", gainOf, ratio],
  ["Largest error", (job) => job.report?.verification?.max_error, number],
  ["Trials", (job) => job.trials, count],
  ["Kernels", (job) => job.tasks, count],
  ["Tuning took", spent, duration],
  ["The job took", took, duration],
  ["Library", (job) => job.report?.size?.library_bytes, bytes],
  ["Weights, packed", (job) => job.report?.size?.params_bytes, bytes],
  ["Workspace", (job) => job.report?.memory?.workspace_bytes, bytes],
];

/** The options of both; those that differ are marked and come first. */
export function Options({ a, b }) {
  const others = new Map(optionTexts(b));
  const rows = optionTexts(a).map(([name, text]) => ({ name, a: text, b: others.get(name), differs: text !== others.get(name) }));
  const shown = rows.filter((row) => row.a || row.b).sort((one, other) => other.differs - one.differs);
  const columns = [
    { key: "name", label: "Option", cell: (row) => html`${row.name}${row.differs && html` <span class="differs-mark" title="differs">≠</span>`}` },
    { key: "a", label: "A", cell: (row) => html`<${Setting} text=${row.a} />` },
    { key: "b", label: "B", cell: (row) => html`<${Setting} text=${row.b} />` },
  ];
  return html`<${Table} caption="Options" columns=${columns} rows=${shown} rowKey=${(row) => row.name} rowClass=${(row) => (row.differs ? "differs" : "")} />
    ${!rows.some((row) => row.differs) && html`<p class="hint">Their options are the same.</p>`}`;
}

/** The text of an option: its beginning where it is long, as a described machine; whole in its title. */
function Setting({ text }) {
  const shown = visible(text || "–");
  return html`<bdi class="option" title=${shown.slice(0, 1000)}>${shown.slice(0, 1000)}</bdi>`;
}

/** What other engines took beside each; nothing where neither was asked for one. */
export function Engines({ a, b }) {
  const rows = [["A", a], ["B", b]].flatMap(([letter, job]) => (job.report?.against ?? []).map((one) => ({ ...one, letter })));
  if (!rows.length) return null;
  const columns = [{ key: "job", label: "Beside", cell: (row) => html`<${Name} text=${row.letter} />` }, ...ENGINES];
  return html`<${Table} caption="Other engines" columns=${columns} rows=${rows} rowKey=${(row) => `${row.letter} ${row.engine}`} />`;
}
