// What happened to a device, the newest first.

import { duration, moment, visible } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useResource } from "../../lib/live.js";
import { setQuery } from "../../lib/router.js";
import { Loaded } from "../../ui/feedback.js";
import { Table } from "../../ui/table.js";
import { Ago, Id, State } from "../../ui/text.js";

const PAGE = 50;
const ASKED_MS = 4000;

const TONES = {
  connected: "good", back: "good", released: "good", acquitted: "good", trusted: "good", measured: "good", leased: "busy",
  enrolled: "good", resumed: "good", paused: "wait", drained: "wait", revoked: "bad",
  draining: "wait", untrusted: "wait", lost: "bad", faulted: "bad", quarantined: "bad", unfit: "bad",
};

const COLUMNS = [
  { key: "at", label: "When", cell: (row) => html`<span title=${moment(row.at)}><${Ago} at=${row.at} /></span>` },
  { key: "what", label: "What", cell: (row) => html`<${State} state=${row.what} tone=${TONES[row.what]} />` },
  { key: "seconds", label: "Took", isNumber: true, cell: (row) => (row.seconds === null ? "" : duration(row.seconds)) },
  { key: "job", label: "Job", cell: job },
  { key: "batch", label: "Batch", cell: (row) => row.batch && html`<${Id} id=${row.batch} />` },
  { key: "reason", label: "Why", cell: why },
  { key: "row", label: "In a row", isNumber: true, cell: (row) => row.in_a_row ?? "" },
];

function job(row) {
  return row.job && html`<a href=${`/jobs/${encodeURIComponent(row.job)}`}><${Id} id=${row.job} length=${20} /></a>`;
}

function why(row) {
  const text = row.reason ?? row.device_class;
  return text && html`<bdi class="row-said">${visible(text)}</bdi>`;
}

/** `place` is the device's address in the API. The newest page is kept fresh. */
export function History({ place, query }) {
  const after = query.get("after") ?? "";
  const asked = new URLSearchParams({ limit: PAGE, order: "newest", ...(after && { after }) });
  const resource = useResource(`${place}/history?${asked}`, { every: after ? 0 : ASKED_MS });
  const to = (next) => () => setQuery({ after: next }, { replace: false });
  return html`<${Loaded} resource=${resource} what="Looking at the history">${(data) => html`
    <${Table}
      caption="History of the device"
      columns=${COLUMNS}
      rows=${data.history}
      rowKey=${(row) => row.id}
      empty="Nothing has happened to it yet."
    />
    ${(after || data.next) &&
    html`<nav class="pages" aria-label="Pages of the history">
      <button type="button" disabled=${!after} onClick=${to(null)}>Newest</button>
      <button type="button" disabled=${!data.next} onClick=${to(data.next)}>Earlier</button>
    </nav>`}
    <p class="hint">Some 1 000 events of each device are kept; a batch is two of them.</p>
  `}<//>`;
}
