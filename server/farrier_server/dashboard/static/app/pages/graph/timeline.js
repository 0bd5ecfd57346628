// What the queues of an accelerator do over time: a lane for each kind of instruction, and its stalls.

import { useMemo, useState } from "preact/hooks";
import { count, microseconds, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Empty } from "../../ui/feedback.js";
import { Facts } from "../../ui/figures.js";

const [WIDTH, LANE, BAR] = [1000, 30, 22]; // of the drawing
const NARROWEST = 0.3; // of a bar; narrower ones that follow each other are drawn as one
const ZOOM = 2;
const STALL = "stall";

/** `text` is the timeline of a kernel as the API has it. */
export function Timeline({ text }) {
  const timeline = useMemo(() => parsed(text), [text]);
  const [view, setView] = useState(null);
  if (!timeline) {
    return html`<${Empty} title="The timeline is too long for the listing."><p>farrier profile, with --timeline, writes that of the artifact to a file.</p><//>`;
  }
  const { lanes, events, end, mhz } = timeline;
  const [from, to] = view ?? [0, end];
  const span = to - from;
  const look = (middle, length) => {
    const bounded = Math.min(end, Math.max(length, end / 20_000));
    const begin = Math.max(0, Math.min(end - bounded, middle - bounded / 2));
    setView(bounded >= end ? null : [begin, begin + bounded]);
  };
  const middle = from + span / 2;
  const cycles = (time) => count(Math.round(time * mhz));
  const summary = `${cycles(end)} cycles, ${microseconds(end)}: ${sharesOf(timeline).map(([lane, said]) => `${lane} ${said}`).join("; ")}.`;
  return html`<div class="timeline">
    <div class="filters graph-tools" role="group" aria-label="What is in view">
      <button type="button" onClick=${() => look(middle, span / ZOOM)} aria-label="Zoom in">+</button>
      <button type="button" disabled=${!view} onClick=${() => look(middle, span * ZOOM)} aria-label="Zoom out">−</button>
      <button type="button" disabled=${from <= 0} onClick=${() => look(middle - span / 2, span)} aria-label="Earlier">‹</button>
      <button type="button" disabled=${to >= end} onClick=${() => look(middle + span / 2, span)} aria-label="Later">›</button>
      <button type="button" disabled=${!view} onClick=${() => setView(null)}>Whole</button>
      <span role="status">Cycles ${cycles(from)} to ${cycles(to)}</span>
    </div>
    <div class="timeline-lanes">
      <div aria-hidden="true">${lanes.map((lane) => html`<div key=${lane}>${lane}</div>`)}</div>
      <svg viewBox=${`0 0 ${WIDTH} ${lanes.length * LANE}`} preserveAspectRatio="none" height=${lanes.length * LANE} role="img" aria-label=${summary}>
        ${lanes.map((_, lane) => barsOf(events.filter(({ tid }) => tid === lane), from, span).map(drawn(lane)))}
      </svg>
    </div>
    <p class="legend"><span><svg class="timeline-mark" aria-hidden="true"><rect class="lane-1" width="30" height="18" /></svg>works</span><span><svg class="timeline-mark" aria-hidden="true"><rect class="lane-stall" width="30" height="18" /></svg>waits for a token, its command or room</span></p>
    <${Facts} rows=${[["Cycles", `${cycles(end)}, ${microseconds(end)} at ${count(mhz)} MHz`], ...sharesOf(timeline)]} />
  </div>`;
}

function parsed(text) {
  try {
    const { lanes, mhz, events } = JSON.parse(text);
    return { lanes, mhz, events, end: events.reduce((last, { ts, dur }) => Math.max(last, ts + dur), 0) };
  } catch {
    return null; // The listing keeps the beginning of a text that is too long.
  }
}

/** `[lane, "98% busy, 2% waits for load"]` for each lane. */
function sharesOf({ lanes, events, end }) {
  return lanes.map((lane, number) => {
    const shares = new Map([["busy", 0]]);
    for (const { tid, cat, name, dur } of events) {
      if (tid === number) shares.set(cat === STALL ? name : "busy", (shares.get(cat === STALL ? name : "busy") ?? 0) + dur);
    }
    return [lane, [...shares].map(([what, time]) => `${percent(time / end)} ${what}`).join(", ")];
  });
}

/** The bars of a lane in view: `[x, width, name, isStall]`. */
function barsOf(events, from, span) {
  const bars = [];
  for (const { ts, dur, name, cat, args } of events) {
    const [x, width] = [((ts - from) / span) * WIDTH, (dur / span) * WIDTH];
    if (x + width < 0 || x > WIDTH) continue;
    const [isStall, last] = [cat === STALL, bars.at(-1)];
    if (last && width < NARROWEST && last[1] < 2 && last[3] === isStall && x - last[0] - last[1] < NARROWEST) {
      last[1] = x + width - last[0];
      last[2] = "several";
    } else {
      bars.push([x, width, `${name}: cycle ${args.begin}, ${args.cycles} cycles`, isStall]);
    }
  }
  return bars;
}

const drawn = (lane) => ([x, width, name, isStall], key) => html`
  <rect key=${key} class=${isStall ? "lane-stall" : `lane-${lane}`} x=${x} y=${lane * LANE + (LANE - BAR) / 2} width=${Math.max(width, NARROWEST)} height=${BAR}><title>${name}</title></rect>`;
