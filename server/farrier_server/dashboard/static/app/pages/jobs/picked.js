// The jobs that are picked to be compared. They stand in the query, so they stay from page to page.

import { html } from "../../lib/html.js";
import { setQuery } from "../../lib/router.js";
import { visible } from "../../lib/format.js";

const MOST = 2;

/** `{ids, toggle(id), clear()}` */
export function usePicked(query) {
  const ids = (query.get("pick") ?? "").split(",").filter(Boolean).slice(0, MOST);
  const set = (next) => setQuery({ pick: next.join(",") });
  return {
    ids,
    toggle: (id) => set(ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id]),
    clear: () => set([]),
  };
}

export function Pick({ job, picked }) {
  const isPicked = picked.ids.includes(job.id);
  const isFull = picked.ids.length >= MOST && !isPicked;
  const name = visible(job.name || job.id).slice(0, 100);
  return html`<input
    type="checkbox"
    aria-label=${`Compare ${name}`}
    title=${isFull ? "Two jobs are picked" : "Compare"}
    checked=${isPicked}
    disabled=${isFull}
    onChange=${() => picked.toggle(job.id)}
  />`;
}

export function Picked({ picked }) {
  if (!picked.ids.length) return null;
  const isReady = picked.ids.length === MOST;
  return html`<div class="picked" role="status">
    <span>${isReady ? "Two jobs are picked." : "One job is picked; pick another."}</span>
    ${isReady && html`<a class="button button-main" href=${`/compare?jobs=${picked.ids.map(encodeURIComponent).join(",")}`}>Compare</a>`}
    <button type="button" onClick=${picked.clear}>Clear</button>
  </div>`;
}
