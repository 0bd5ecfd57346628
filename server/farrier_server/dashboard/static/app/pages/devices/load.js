// How much of each minute a device spent on batches.

import { useMemo } from "preact/hooks";
import { clock, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Chart } from "../../ui/chart.js";

const MINUTES = 30;
const SERIES = [{ label: "Load", isStepped: true, format: percent }];
const X = { format: clock };
const Y = { label: "share of a minute", format: percent, isFromZero: true };

/** `minutes` are `{time, batches, busy_s}`; those in which it did nothing are left out. */
export function Load({ minutes }) {
  const now = Math.floor(Date.now() / 60_000) * 60;
  const text = JSON.stringify([now, minutes.filter((minute) => minute.time < now)]);
  const data = useMemo(() => columnsOf(text), [text]);
  if (!minutes.length) return html`<p class="quiet panel">It measured nothing in the last half hour.</p>`;
  const batches = minutes.reduce((sum, minute) => sum + minute.batches, 0);
  const summary = `Share of each minute of the last half hour in which it had a batch in hand: ${batches} batches in all.`;
  return html`<${Chart} data=${data} series=${SERIES} x=${X} y=${Y} height=${180} isTime=${true} summary=${summary} />`;
}

function columnsOf(text) {
  const [now, minutes] = JSON.parse(text);
  const busy = new Map(minutes.map((minute) => [minute.time, Math.min(1, minute.busy_s / 60)]));
  const times = Array.from({ length: MINUTES }, (_, index) => now - 60 * (MINUTES - index));
  return [times, times.map((time) => busy.get(time) ?? 0)];
}
