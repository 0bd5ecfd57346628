// Lays a graph out, in a worker: by dagre, or in simple layers where dagre would take too long.

import { Graph, layout as dagreLayout } from "../../vendor/dagre/dagre.esm.js";

const NODE_GAP = 18;
const LAYER_GAP = 42;
const TALL = 6; // times as high as wide
const ASPECT = 1.3; // of what is folded, width by height
const COLUMN_GAP = 90;
const MOST_COLUMNS = 64;
const SWEEPS = 4; // over all layers, to bring nodes near those that they are connected with

/**
 * A request is `{method, widths, height, edges}`: widths of the nodes, their height, and `[from, to]`
 * of each edge, flat. The answer is `{x, y, points, starts, boxes, width, height, columns}`: the middles
 * of the nodes, and the lines of the edges with their boxes; the points of edge i are from `starts[i]` on.
 */
onmessage = ({ data }) => {
  const made = folded(data.method === "dagre" ? byDagre(data) : inLayers(data), data);
  postMessage(made, [made.x.buffer, made.y.buffer, made.points.buffer, made.starts.buffer, made.boxes.buffer]);
};

function byDagre({ widths, height, edges }) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ nodesep: NODE_GAP, ranksep: LAYER_GAP, marginx: NODE_GAP, marginy: NODE_GAP });
  graph.setDefaultEdgeLabel(() => ({}));
  widths.forEach((width, node) => graph.setNode(String(node), { width, height }));
  for (let at = 0; at < edges.length; at += 2) graph.setEdge(String(edges[at]), String(edges[at + 1]), {}, String(at));
  dagreLayout(graph);
  const x = new Float32Array(widths.length);
  const y = new Float32Array(widths.length);
  for (let node = 0; node < widths.length; node++) ({ x: x[node], y: y[node] } = graph.node(String(node)));
  const lines = [];
  for (let at = 0; at < edges.length; at += 2) lines.push(graph.edge(String(edges[at]), String(edges[at + 1]), String(at)).points);
  return { x, y, ...flat(lines), width: graph.graph().width, height: graph.graph().height };
}

function flat(lines) {
  const starts = new Uint32Array(lines.length + 1);
  lines.forEach((line, index) => (starts[index + 1] = starts[index] + line.length * 2));
  const points = new Float32Array(starts.at(-1));
  lines.forEach((line, index) => line.forEach((point, step) => points.set([point.x, point.y], starts[index] + step * 2)));
  return { points, starts };
}

/** A graph much higher than wide in columns, beside each other, so that the whole of it can be seen. */
function folded(made, { widths, height, edges }) {
  const [columns, spans] = columnsOf(made, widths);
  if (columns < 2) return { ...made, boxes: boxesOf(made), columns: 1 };
  const high = made.height / columns;
  const top = height / 2 + 2 * NODE_GAP;
  const bottom = high + top + height / 2 + NODE_GAP;
  const columnOf = Uint16Array.from(made.y, (y) => Math.min(columns - 1, Math.floor(y / high)));
  const lefts = spans.map((_, column) => spans.slice(0, column).reduce((sum, [low, most]) => sum + most - low + COLUMN_GAP, NODE_GAP));
  const shift = (at, column) => at - spans[column][0] + lefts[column];
  const x = made.x.map((at, node) => shift(at, columnOf[node]));
  const y = made.y.map((at, node) => at - columnOf[node] * high + top);
  const lines = [];
  for (let edge = 0; edge < edges.length / 2; edge++) {
    const [from, to] = [edges[2 * edge], edges[2 * edge + 1]];
    const column = columnOf[from];
    const line = [];
    if (column === columnOf[to]) {
      for (let at = made.starts[edge]; at < made.starts[edge + 1]; at += 2) {
        line.push({ x: shift(made.points[at], column), y: made.points[at + 1] - column * high + top });
      }
    } else {
      // Down to the foot, through the gap before the other column, to its head.
      const gap = lefts[columnOf[to]] - COLUMN_GAP / 2;
      line.push({ x: x[from], y: y[from] + height / 2 }, { x: x[from], y: bottom }, { x: gap, y: bottom });
      line.push({ x: gap, y: 0 }, { x: x[to], y: 0 }, { x: x[to], y: y[to] - height / 2 });
    }
    lines.push(line);
  }
  const width = lefts.at(-1) + spans.at(-1)[1] - spans.at(-1)[0] + NODE_GAP;
  const whole = { x, y, ...flat(lines), width, height: bottom + NODE_GAP };
  return { ...whole, boxes: boxesOf(whole), columns };
}

/** How many columns come nearest to the aspect wanted, and from where to where each of them goes. */
function columnsOf(made, widths) {
  let best = [1, []];
  if (made.height < TALL * made.width) return best;
  let least = Infinity;
  for (let columns = 2; columns <= MOST_COLUMNS; columns++) {
    const high = made.height / columns;
    const spans = Array.from({ length: columns }, () => [Infinity, -Infinity]);
    for (let node = 0; node < widths.length; node++) {
      const span = spans[Math.min(columns - 1, Math.floor(made.y[node] / high))];
      span[0] = Math.min(span[0], made.x[node] - widths[node] / 2);
      span[1] = Math.max(span[1], made.x[node] + widths[node] / 2);
    }
    if (spans.some(([low]) => low === Infinity)) break; // a column without a node
    const wide = spans.reduce((sum, [low, most]) => sum + most - low + COLUMN_GAP, 0);
    const off = Math.abs(Math.log(wide / high / ASPECT));
    if (off < least) [best, least] = [[columns, spans], off];
  }
  return best;
}

/** Left, top, right and bottom of each edge. */
function boxesOf({ points, starts }) {
  const boxes = new Float32Array((starts.length - 1) * 4);
  for (let edge = 0; edge + 1 < starts.length; edge++) {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let at = starts[edge]; at < starts[edge + 1]; at += 2) {
      left = Math.min(left, points[at]);
      right = Math.max(right, points[at]);
      top = Math.min(top, points[at + 1]);
      bottom = Math.max(bottom, points[at + 1]);
    }
    boxes.set([left, top, right, bottom], edge * 4);
  }
  return boxes;
}

/** Each node one layer below the last that it needs; within a layer, near its neighbours. */
function inLayers({ widths, height, edges }) {
  const count = widths.length;
  const [after, before] = [neighbours(count, edges, 0), neighbours(count, edges, 1)];
  const layer = layersOf(count, after, before);
  const layers = [];
  for (let node = 0; node < count; node++) (layers[layer[node]] ??= []).push(node);
  const x = new Float32Array(count);
  for (const nodes of layers) spread(nodes, nodes.map(() => 0), widths, x);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    const near = isDown ? before : after;
    for (let step = 1; step < layers.length; step++) {
      const nodes = layers[isDown ? step : layers.length - 1 - step];
      const wanted = new Map(nodes.map((node) => [node, mean(near, node, x)]));
      nodes.sort((a, b) => wanted.get(a) - wanted.get(b) || a - b);
      spread(nodes, nodes.map((node) => wanted.get(node)), widths, x);
    }
  }
  const left = x.reduce((least, at, node) => Math.min(least, at - widths[node] / 2), Infinity) - NODE_GAP;
  const right = x.reduce((most, at, node) => Math.max(most, at + widths[node] / 2), -Infinity) + NODE_GAP;
  const y = Float32Array.from(layer, (at) => NODE_GAP + height / 2 + at * (height + LAYER_GAP));
  for (let node = 0; node < count; node++) x[node] -= left;
  const starts = new Uint32Array(edges.length / 2 + 1).map((_, index) => index * 4);
  const points = new Float32Array(edges.length * 2);
  for (let at = 0; at < edges.length; at += 2) {
    const [from, to] = [edges[at], edges[at + 1]];
    points.set([x[from], y[from] + height / 2, x[to], y[to] - height / 2], at * 2);
  }
  return { x, y, points, starts, width: right - left, height: layers.length * (height + LAYER_GAP) };
}

/** Lists of the nodes that follow each node (`side` 0), or that it follows (1). */
function neighbours(count, edges, side) {
  const lists = Array.from({ length: count }, () => []);
  for (let at = 0; at < edges.length; at += 2) lists[edges[at + side]].push(edges[at + 1 - side]);
  return lists;
}

function layersOf(count, after, before) {
  const layer = new Int32Array(count);
  const waits = before.map((list) => list.length);
  const ready = [];
  for (let node = 0; node < count; node++) if (!waits[node]) ready.push(node);
  for (let at = 0; at < ready.length; at++) {
    for (const next of after[ready[at]]) {
      layer[next] = Math.max(layer[next], layer[ready[at]] + 1);
      if (--waits[next] === 0) ready.push(next);
    }
  }
  for (const node of ready) {
    if (!before[node].length && after[node].length) layer[node] = Math.max(0, after[node].reduce((least, next) => Math.min(least, layer[next]), Infinity) - 1);
  }
  return layer;
}

function mean(near, node, x) {
  const list = near[node];
  return list.length ? list.reduce((sum, other) => sum + x[other], 0) / list.length : x[node];
}

/** Places the nodes of a layer from left to right, as near as they fit to where they are wanted. */
function spread(nodes, wanted, widths, x) {
  let end = -Infinity;
  let off = 0;
  nodes.forEach((node, index) => {
    const half = widths[node] / 2;
    x[node] = Math.max(wanted[index], end + NODE_GAP + half);
    end = x[node] + half;
    off += x[node] - wanted[index];
  });
  for (const node of nodes) x[node] -= off / nodes.length;
}
