// Small pieces of text: names, times, states.

import { useEffect, useState } from "preact/hooks";
import { ago, moment, sentence, visible } from "../lib/format.js";
import { html } from "../lib/html.js";

/** A name that somebody else gave: isolated, cut where there is no room, whole in its title. */
export function Name({ text, empty = "unnamed" }) {
  if (!text) return html`<span class="quiet">${empty}</span>`;
  const shown = visible(text);
  return html`<bdi class="name" title=${shown.slice(0, 1000)}>${shown}</bdi>`;
}

/** A sentence of the API, in which `commands` stand in backticks. */
export function Said({ text }) {
  const parts = visible(sentence(text)).split(/`([^`]+)`/);
  return html`<span class="wrap">${parts.map((part, index) => (index % 2 ? html`<code>${part}</code>` : part))}</span>`;
}

/** An id or a hash, shortened; whole in its title. */
export function Id({ id, length = 8 }) {
  return html`<code class="id" title=${id}>${String(id).slice(0, length)}</code>`;
}

/** How long ago a moment was, kept right. */
export function Ago({ at }) {
  const now = useNow(at && Date.now() / 1000 - at < 120 ? 5000 : 30_000);
  return html`<time datetime=${at ? new Date(at * 1000).toISOString() : undefined} title=${moment(at)}>${ago(at, now)}</time>`;
}

/** Unix seconds, renewed every `every` ms. */
export function useNow(every = 1000) {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

const TONES = {
  succeeded: "good", connected: "good", measuring: "busy", running: "busy", queued: "wait", draining: "wait",
  failed: "bad", dead: "bad", quarantined: "bad", lost: "bad", unfit: "bad", cancelled: "off", away: "off",
};

/** A state in words, with a mark that is no colour alone. */
export function State({ state, tone = TONES[state] ?? "off" }) {
  return html`<span class="state state-${tone}">${state}</span>`;
}

/** A bar of a share from 0 to 1, with its text beside it. */
export function Share({ value, text }) {
  const part = Math.max(0, Math.min(1, value || 0));
  return html`<span class="share">
    <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="share-all" width="100" height="6" /><rect class="share-part" width=${part * 100} height="6" /></svg>
    <span>${text}</span>
  </span>`;
}
