// The Pareto chart of a model: its cycles against each figure of area, a point for each shape.

import { count, milliseconds, number, percent, visible } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { navigate } from "../../lib/router.js";
import { axesOf, shownArea } from "./facts.js";

// Coordinates are in pixels of a panel.
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [360, 262, 92, 28, 28, 52];
const INNER = 14; // from an axis to the outermost point
const [APART_X, APART_Y] = [58, 16]; // between labels

/** `pointed` is the shape that the reader points at, and `onPoint(shape)` changes it. */
export function Pareto({ model, rows, pointed, onPoint }) {
  const points = rows.filter((row) => row.cycles);
  if (!points.length) return null;
  const row = points.find((each) => each.shape === pointed);
  return html`<div class="pareto">
    <div class="pareto-panels">${axesOf(points).map((axis) => html`<${Panel} key=${axis[0]} ...${{ axis, model, points, pointed, onPoint }} />`)}</div>
    <p class="hint pareto-said">${row ? said(row) : "Filled: on the Pareto front of all figures of area. A point leads to its job."}</p>
  </div>`;
}

function Panel({ axis: [name, , title], model, points, pointed, onPoint }) {
  // The logarithm of 0 is not defined: a shape with no cells of a kind is drawn as if it had one.
  const xOf = (row) => Math.max(1, row.area[name]);
  const across = scale(points.map(xOf), LEFT + INNER, WIDTH - RIGHT - INNER);
  const up = scale(points.map((row) => row.cycles), HEIGHT - BOTTOM - INNER, TOP + INNER);
  const [bottom, right] = [HEIGHT - BOTTOM, WIDTH - RIGHT];
  return html`<svg class="pareto-panel" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label=${`${visible(model)}: cycles against ${title}`}>
    <path class="pareto-axis" d=${`M${LEFT} ${TOP}V${bottom}H${right}`} />
    ${apart(across, APART_X).map((x) => html`<g key=${`x${x}`}>
      <path class="pareto-axis" d=${`M${across.get(x)} ${bottom}v4`} />
      <text x=${across.get(x)} y=${bottom + 18} text-anchor="middle">${number(shownArea(name, x), 6)}</text>
    </g>`)}
    ${apart(up, APART_Y).map((y) => html`<g key=${`y${y}`}>
      <path class="pareto-axis" d=${`M${LEFT} ${up.get(y)}h-4`} />
      <text x=${LEFT - 8} y=${up.get(y) + 4} text-anchor="end">${count(y)}</text>
    </g>`)}
    <text class="pareto-title" x=${(LEFT + right) / 2} y=${bottom + 38} text-anchor="middle">${title}</text>
    <text class="pareto-title" x=${LEFT - 8} y=${TOP - 10} text-anchor="end">cycles</text>
    ${points.map((row) => html`<${Point} key=${row.shape} ...${{ row, x: across.get(xOf(row)), y: up.get(row.cycles), isPointed: row.shape === pointed, onPoint }} />`)}
  </svg>`;
}

/** A point, which leads to the job if there is one that the reader may see. */
function Point({ row, x, y, isPointed, onPoint }) {
  const kind = `pareto-point${row.on_front ? " pareto-front" : ""}${isPointed ? " pareto-pointed" : ""}`;
  const pointing = { onMouseEnter: () => onPoint(row.shape), onMouseLeave: () => onPoint(""), onFocus: () => onPoint(row.shape), onBlur: () => onPoint("") };
  const drawn = html`<circle class="pareto-target" cx=${x} cy=${y} r="12" /><circle class=${kind} cx=${x} cy=${y} r="5" />
    <text x=${x + 8} y=${y - 6}>${row.number}</text><title>${said(row)}</title>`;
  if (!row.job) return html`<g ...${pointing}>${drawn}</g>`;
  const href = `/jobs/${encodeURIComponent(row.job)}`;
  return html`<a href=${href} aria-label=${said(row)} onClick=${inPlace(href)} ...${pointing}>${drawn}</a>`;
}

/** The router knows no links of SVG. */
const inPlace = (href) => (event) => {
  if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  navigate(href);
  scrollTo(0, 0);
};

function said(row) {
  const time = row.placed_ms === null ? milliseconds(row.device_ms) : `${milliseconds(row.placed_ms)} at ${number(row.mhz)} MHz`;
  return `${row.number} ${visible(row.shape)}: ${count(row.cycles)} cycles, ${time}, ${percent(row.share, 3)} of the multiply-adds`;
}

/** The coordinate of each distinct value on a logarithmic axis, in ascending order of the values. */
function scale(values, start, end) {
  const ordered = [...new Set(values)].sort((a, b) => a - b);
  const [low, high] = [Math.log(ordered[0]), Math.log(ordered.at(-1))];
  const at = (value) => (low === high ? (start + end) / 2 : start + ((Math.log(value) - low) / (high - low)) * (end - start));
  return new Map(ordered.map((value) => [value, at(value)]));
}

/** The values whose coordinates are so far apart that their labels do not overlap. */
function apart(places, distance) {
  let last = Infinity;
  return [...places].filter(([, place]) => {
    const isApart = Math.abs(place - last) >= distance;
    if (isApart) last = place;
    return isApart;
  }).map(([value]) => value);
}
