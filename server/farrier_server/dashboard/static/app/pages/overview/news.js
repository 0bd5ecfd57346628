// What the roles warn of and what happens to devices, as it comes.

import { useState } from "preact/hooks";
import { html } from "../../lib/html.js";
import { visible } from "../../lib/format.js";
import { Empty } from "../../ui/feedback.js";
import { Ago, Name } from "../../ui/text.js";

const KEPT = 20;
const LONGEST = 500; // characters of a message

const DEVICE = {
  connected: ["good", "has connected"],
  back: ["good", "is back"],
  released: ["good", "was released from quarantine"],
  acquitted: ["good", "was acquitted of a fault"],
  trusted: ["good", "is trusted from now on"],
  untrusted: ["wait", "is not trusted any more"],
  enrolled: ["good", "has enrolled: it has a secret of its own"],
  resumed: ["good", "gets work again"],
  paused: ["wait", "is paused: it gets no new batch"],
  drained: ["wait", "is drained: it gets no batch until its agent starts anew"],
  revoked: ["bad", "was revoked: it is turned away"],
  draining: ["wait", "finishes its batch and takes no other"],
  lost: ["bad", "is lost: no heartbeat came"],
  faulted: ["bad", "failed a batch"],
  quarantined: ["bad", "was put in quarantine"],
  unfit: ["bad", "gets no work"],
};

/**
 * `[news, told]`, the newest first: those of the last answer, `given`, and those that came since, of which
 * `told(events)` tells.
 */
export function useNews(given) {
  const [since, setSince] = useState([]);
  const told = (events) => {
    const found = events.filter((event) => event.kind === "warning" || event.kind === "device");
    if (found.length) setSince((old) => [...found.reverse(), ...old].slice(0, KEPT));
  };
  const known = new Set(given.map((event) => event.id));
  return [[...since.filter((event) => !known.has(event.id)), ...given].slice(0, KEPT), told];
}

export function News({ news }) {
  if (!news.length) {
    return html`<${Empty} title="Nothing has happened yet">
      <p>What the farm's roles warn of is shown here as it comes, and devices that come, go and fail.</p>
    <//>`;
  }
  return html`<div class="news" role="log" aria-label="Warnings and devices" tabindex="0">
    <ul>${news.map((event) => html`<${Item} key=${event.id} event=${event} />`)}</ul>
  </div>`;
}

function Item({ event }) {
  const at = Number(event.id.split("-")[0]) / 1000;
  const [tone, body] = event.kind === "warning" ? warning(event) : device(event);
  return html`<li class=${`news-item news-${tone}`}><p class="wrap">${body}</p><span class="quiet"><${Ago} at=${at} /></span></li>`;
}

function warning(event) {
  return ["wait", html`<strong>${visible(event.role)}:</strong> ${cut(event.message)}`];
}

function device(event) {
  const [tone, words] = DEVICE[event.what] ?? ["plain", event.what];
  const reason = event.reason ? `: ${cut(event.reason)}` : "";
  return [tone, html`<a href=${`/devices/${encodeURIComponent(event.device)}`}><${Name} text=${event.device} /></a> ${words}${reason}`];
}

function cut(text) {
  const shown = visible(text);
  return shown.length > LONGEST ? `${shown.slice(0, LONGEST)}…` : shown;
}
