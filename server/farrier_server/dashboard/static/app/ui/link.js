// Whether what a page shows is live.

import { html } from "../lib/html.js";

const WORDS = {
  live: ["good", "live", "Changes are shown as they happen."],
  connecting: ["wait", "connecting", "The event stream is being opened."],
  broken: ["bad", "no connection", "The event stream is broken; it is tried again until it is there."],
  refused: ["bad", "not live", "The server gives no event stream."],
};

/** `link` is what `useEvents` returns. */
export function LiveMark({ link }) {
  const [tone, text, title] = WORDS[link];
  return html`<span class=${`state state-${tone}`} role="status" title=${title}>${text}</span>`;
}
