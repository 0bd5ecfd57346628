// A long text, some lines at a time: a browser lays none out whole at once.

import { useMemo, useState } from "preact/hooks";
import { count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Code } from "../../ui/controls.js";

const LINES = 400;
const LONGEST = 60_000; // characters of a page whose lines are long

export function CodePages({ text, label }) {
  const starts = useMemo(() => pagesOf(text), [text]);
  const [page, setPage] = useState(0);
  const last = starts.length - 2;
  const shown = text.slice(starts[page], starts[page + 1]);
  return html`
    ${last > 0 && html`<div class="code-pages" role="group" aria-label="Pages of the text">
      <button type="button" disabled=${page === 0} onClick=${() => setPage(page - 1)}>Earlier</button>
      <span role="status">Part ${count(page + 1)} of ${count(last + 1)}</span>
      <button type="button" disabled=${page === last} onClick=${() => setPage(page + 1)}>Later</button>
      <button type="button" onClick=${() => download(text, label)}>Download all of it</button>
    </div>`}
    <${Code} text=${shown} label=${label} isTall=${true} />
  `;
}

/** Where the pages begin, and where the last one ends. */
function pagesOf(text) {
  const starts = [0];
  let at = 0;
  while (at < text.length) {
    let end = at;
    for (let line = 0; line < LINES && end < text.length && end - at < LONGEST; line++) {
      const next = text.indexOf("\n", end);
      end = next < 0 ? text.length : next + 1;
    }
    at = Math.min(end, at + LONGEST); // one endless line is cut, too
    starts.push(at);
  }
  return starts.length > 1 ? starts : [0, 0];
}

function download(text, label) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = `${label.toLowerCase().replaceAll(" ", "-")}.txt`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
