// Draws what of a graph is in view, in as much detail as can be seen.

import { colour } from "../../lib/theme.js";

const TEXT_SCALE = 0.5; // from which on nodes have all their texts
const TITLE_SCALE = 0.25; // from which on they have their titles, in large letters
const CURVE_SCALE = 0.12; // from which on edges are drawn along their points
const OUTLINE_SCALE = 0.06; // from which on nodes have a border; below, those of little share are grey
const MOST_EDGES = 6000; // drawn at once where they are hairlines
export const LEVELS = 5; // of a node's share of the time

/** The colours of the page as they are now. */
export function palette() {
  const [surface, accent] = [colour("--surface"), colour("--accent")];
  return {
    ground: colour("--ground"), surface, line: colour("--quiet"), text: colour("--text"), quiet: colour("--quiet"), accent,
    bad: colour("--bad"), badGround: colour("--bad-ground"), match: colour("--series-2"), plain: colour("--raised"),
    far: mixed(surface, colour("--quiet"), 0.4),
    levels: Array.from({ length: LEVELS }, (_, level) => mixed(surface, accent, (0.55 * level) / (LEVELS - 1))),
  };
}

/**
 * `scene` is `{graph, layout, chosen, cursor, matches}`; of the graph, `titles` and `details` are texts,
 * `levels` the shares' levels (-1: no kernel) and `marks` 1 for what is wrong.
 */
export function draw(context, view, scene, colours, width, height) {
  context.setTransform(1, 0, 0, 1, 0, 0);
  const ratio = context.canvas.width / width;
  context.fillStyle = colours.ground;
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
  context.setTransform(view.scale * ratio, 0, 0, view.scale * ratio, -view.x * view.scale * ratio, -view.y * view.scale * ratio);
  const box = { left: view.x, top: view.y, right: view.x + width / view.scale, bottom: view.y + height / view.scale };
  drawEdges(context, view, scene, colours, box);
  drawNodes(context, view, scene, colours, box);
}

function drawEdges(context, view, { layout }, colours, box) {
  const { points, starts, boxes } = layout;
  const isCurved = view.scale >= CURVE_SCALE;
  const seen = [];
  for (let edge = 0; edge + 1 < starts.length; edge++) {
    const at = 4 * edge;
    if (boxes[at] > box.right || boxes[at + 1] > box.bottom || boxes[at + 2] < box.left || boxes[at + 3] < box.top) continue;
    seen.push(edge);
  }
  const step = isCurved ? Math.ceil(seen.length / (4 * MOST_EDGES)) : Math.ceil(seen.length / MOST_EDGES);
  context.strokeStyle = colours.line;
  context.globalAlpha = isCurved ? 0.7 : 0.35;
  context.lineWidth = Math.max(1.2, 0.8 / view.scale);
  context.beginPath();
  for (let index = 0; index < seen.length; index += step || 1) {
    const [from, to] = [starts[seen[index]], starts[seen[index] + 1]];
    context.moveTo(points[from], points[from + 1]);
    if (!isCurved) for (let at = from + 2; at < to; at += 2) context.lineTo(points[at], points[at + 1]);
    else if (to - from === 4) steep(context, points, from);
    else smooth(context, points, from, to);
  }
  context.stroke();
  context.globalAlpha = 1;
}

function steep(context, points, from) {
  const [x, y, toX, toY] = points.subarray(from, from + 4);
  const middle = (y + toY) / 2;
  context.bezierCurveTo(x, middle, toX, middle, toX, toY);
}

function smooth(context, points, from, to) {
  for (let at = from + 2; at < to - 2; at += 2) {
    context.quadraticCurveTo(points[at], points[at + 1], (points[at] + points[at + 2]) / 2, (points[at + 1] + points[at + 3]) / 2);
  }
  context.lineTo(points[to - 2], points[to - 1]);
}

function drawNodes(context, view, scene, colours, box) {
  const { graph, layout, matches } = scene;
  const { widths, height } = graph;
  const isOutlined = view.scale >= OUTLINE_SCALE;
  const writeText = view.scale >= TEXT_SCALE ? drawText : drawTitle;
  context.direction = "ltr";
  const groups = new Map(); // nodes of one colour are one path
  for (let node = 0; node < widths.length; node++) {
    const [x, y, half] = [layout.x[node], layout.y[node], widths[node] / 2];
    if (x + half < box.left || x - half > box.right || y + height / 2 < box.top || y - height / 2 > box.bottom) continue;
    const level = graph.levels[node];
    const fill = graph.marks[node] ? (isOutlined ? colours.badGround : colours.bad) : level < 1 && !isOutlined ? colours.far : level < 0 ? colours.plain : colours.levels[level];
    if (!groups.has(fill)) groups.set(fill, []);
    groups.get(fill).push(node);
  }
  const least = 1.5 / view.scale; // so that a node never vanishes
  for (const [fill, nodes] of groups) {
    context.fillStyle = fill;
    context.beginPath();
    for (const node of nodes) {
      const [w, h] = [Math.max(widths[node], least), Math.max(height, least)];
      context.rect(layout.x[node] - w / 2, layout.y[node] - h / 2, w, h);
    }
    context.fill();
    if (!isOutlined) continue;
    context.strokeStyle = fill === colours.badGround ? colours.bad : colours.line;
    context.lineWidth = Math.max(1, 0.6 / view.scale);
    context.stroke();
  }
  if (view.scale >= TITLE_SCALE) for (const nodes of groups.values()) for (const node of nodes) writeText(context, scene, colours, node);
  if (matches) outline(context, scene, [...matches], colours.match, 3, view, [6, 4]);
  if (scene.chosen.length) outline(context, scene, scene.chosen, colours.accent, 3, view);
  if (scene.cursor >= 0) outline(context, scene, [scene.cursor], colours.text, 2, view, [2, 3], 5);
}

function drawTitle(context, { graph, layout }, colours, node) {
  context.fillStyle = graph.marks[node] ? colours.bad : colours.text;
  context.font = "600 20px system-ui, sans-serif";
  context.fillText(graph.titles[node], layout.x[node] - graph.widths[node] / 2 + 8, layout.y[node] + 7, graph.widths[node] - 16);
}

function drawText(context, { graph, layout }, colours, node) {
  const [left, top] = [layout.x[node] - graph.widths[node] / 2, layout.y[node] - graph.height / 2];
  const level = graph.levels[node];
  context.fillStyle = graph.marks[node] ? colours.bad : colours.text;
  context.font = "600 13px system-ui, sans-serif";
  context.fillText(graph.titles[node], left + 10, top + 18, graph.widths[node] - 16);
  context.fillStyle = level > 2 ? colours.text : colours.quiet;
  context.font = "11px system-ui, sans-serif";
  context.fillText(graph.details[node], left + 10, top + 35, graph.widths[node] - 20);
  if (level < 0) return;
  context.fillStyle = colours.text; // the level once more, as strokes at the right side
  for (let stroke = 0; stroke <= level; stroke++) context.fillRect(left + graph.widths[node] - 6, top + graph.height - 8 - 7 * stroke, 3, 5);
}

function outline(context, { graph, layout }, nodes, stroke, width, view, dash = [], gap = 2) {
  context.strokeStyle = stroke;
  context.lineWidth = width / Math.min(view.scale, 1);
  context.setLineDash(dash.map((part) => part / Math.min(view.scale, 1)));
  context.beginPath();
  for (const node of nodes.slice(0, 5000)) {
    const [w, h] = [graph.widths[node] + 2 * gap, graph.height + 2 * gap];
    context.rect(layout.x[node] - w / 2, layout.y[node] - h / 2, w, h);
  }
  context.stroke();
  context.setLineDash([]);
}

/** A colour between two, as `colour` gives them. */
export function mixed(one, other, part) {
  const [from, to] = [one, other].map((text) => text.match(/[\d.]+/g).map(Number));
  return `rgb(${[0, 1, 2].map((at) => Math.round(from[at] * (1 - part) + to[at] * part)).join(", ")})`;
}
