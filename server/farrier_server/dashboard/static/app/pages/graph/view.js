// What of a graph is in view: a scale, and the point of the graph at the upper left corner.

const SMALLEST = 0.004;
const LARGEST = 4;
const READABLE = 0.28; // at which scale a graph is first shown, where the whole would be smaller
const MARGIN = 12;

export const scaled = (scale) => Math.max(SMALLEST, Math.min(LARGEST, scale));

/** The whole graph. */
export function fitted(layout, width, height) {
  const scale = scaled(Math.min((width - 2 * MARGIN) / layout.width, (height - 2 * MARGIN) / layout.height, 1.2));
  return { scale, x: layout.width / 2 - width / 2 / scale, y: layout.height / 2 - height / 2 / scale };
}

/** The whole graph where it can be read, else its beginning. */
export function first(layout, width, height) {
  const whole = fitted(layout, width, height);
  if (whole.scale >= READABLE) return whole;
  const depths = layout.y.map((y, node) => (layout.columns > 1 ? y + layout.x[node] : y)); // of columns, the first
  const top = depths.reduce((least, depth, node) => (depth < depths[least] ? node : least), 0);
  const scale = 0.7;
  return { scale, x: layout.x[top] - width / 2 / scale, y: -MARGIN / scale };
}

/** Zoomed by `factor` about a point of the screen. */
export function zoomed(view, factor, x, y) {
  const scale = scaled(view.scale * factor);
  return { scale, x: view.x + x / view.scale - x / scale, y: view.y + y / view.scale - y / scale };
}

/** Moved by pixels of the screen. */
export function panned(view, dx, dy) {
  return { ...view, x: view.x - dx / view.scale, y: view.y - dy / view.scale };
}

/** With a node in the middle, large enough to be read. */
export function centred(view, layout, node, width, height) {
  const scale = Math.max(view.scale, 0.7);
  return { scale, x: layout.x[node] - width / 2 / scale, y: layout.y[node] - height / 2 / scale };
}

/** The node at a point of the screen, or -1. */
export function nodeAt(view, layout, widths, nodeHeight, x, y) {
  const [px, py] = [view.x + x / view.scale, view.y + y / view.scale];
  const slack = 4 / view.scale;
  for (let node = 0; node < widths.length; node++) {
    if (Math.abs(layout.x[node] - px) <= widths[node] / 2 + slack && Math.abs(layout.y[node] - py) <= nodeHeight / 2 + slack) return node;
  }
  return -1;
}

/**
 * The next node in a direction, `[dx, dy]` of which one is 0: downwards the first that an edge leads to,
 * upwards the last that one comes from, else the nearest to that side; or the node itself.
 */
export function next(graph, layout, node, direction) {
  const { edges } = graph;
  const isDown = direction[1] > 0;
  let best = -1;
  for (let at = 0; direction[1] && at < edges.length; at += 2) {
    if (edges[at + (isDown ? 0 : 1)] !== node) continue;
    const other = edges[at + (isDown ? 1 : 0)];
    if (best < 0 || (isDown ? other < best : other > best)) best = other;
  }
  return best < 0 ? nearest(layout, node, direction) : best;
}

function nearest(layout, node, [dx, dy]) {
  let [best, least] = [node, Infinity];
  for (let other = 0; other < layout.x.length; other++) {
    const [ox, oy] = [layout.x[other] - layout.x[node], layout.y[other] - layout.y[node]];
    const along = ox * dx + oy * dy;
    if (other === node || along <= 1) continue;
    const distance = along + 3 * Math.abs(dx ? oy : ox);
    if (distance < least) [best, least] = [other, distance];
  }
  return best;
}
