// A graph on a canvas: panned, zoomed, searched; a node is chosen by a click or a key.

import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { count, visible } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLayout } from "../../lib/layout.js";
import { onThemeChange } from "../../lib/theme.js";
import { Search } from "../../ui/controls.js";
import { Loading, Notice } from "../../ui/feedback.js";
import { draw, palette } from "./draw.js";
import { centred, first, fitted, next, nodeAt, panned, zoomed } from "./view.js";

const STEP = 60; // pixels that an arrow key moves
const CLICK = 5; // pixels that a click may move
const [LEAST_WIDTH, MOST_WIDTH, NODE_HEIGHT] = [96, 240, 46];
const LONGEST = 30; // characters of a text in a node
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * A graph to draw, of `nodes` `{title, detail, more, level, isWrong}` and `edges` `[from, to]`, by the nodes'
 * places in the list; `more` is found and read out, too. It has to be made once: see `useMemo`.
 */
export function drawable(nodes, edges) {
  const titles = nodes.map((node) => cut(node.title));
  const details = nodes.map((node) => cut(node.detail));
  return {
    titles,
    details,
    names: nodes.map((node) => visible([node.title, node.detail, node.more ?? ""].map((text) => String(text).slice(0, 200)).join(" "))),
    levels: Int8Array.from(nodes, (node) => node.level ?? -1),
    marks: Uint8Array.from(nodes, (node) => (node.isWrong ? 1 : 0)),
    widths: Float32Array.from(titles, (title, index) => Math.min(MOST_WIDTH, Math.max(LEAST_WIDTH, 30 + 7.6 * Math.max(title.length, 0.85 * details[index].length)))),
    height: NODE_HEIGHT,
    edges: Uint32Array.from(edges.flat()),
  };
}

/** `chosen` are nodes, `onChoose(node)` is told of another one; `label` says what the graph is of. */
export function GraphCanvas({ graph, chosen, onChoose, label, children }) {
  const shape = useMemo(() => ({ widths: graph.widths, height: graph.height, edges: graph.edges }), [graph]);
  const { layout, note, error } = useLayout(shape);
  const [search, setSearch] = useState("");
  const matches = useMemo(() => found(graph, search), [graph, search]);
  const control = useRef({});
  const [said, say] = useState("");
  const at = useRef(-1);
  const go = (step) => {
    const list = [...matches];
    at.current = (at.current + step + list.length) % list.length;
    control.current.show(list[at.current]);
    say(`Match ${at.current + 1} of ${list.length}: ${graph.names[list[at.current]]}`);
  };
  const seek = (text) => {
    at.current = -1;
    setSearch(text);
  };
  const hint = useId();
  return html`<div class="graph">
    <div class="filters graph-tools">
      <${Search} label="Search the graph" value=${search} onChange=${seek} />
      ${matches && html`<span class="nowrap" role="status">${count(matches.size)} found</span>
        <button type="button" disabled=${!matches.size || !layout} onClick=${() => go(-1)} aria-label="Previous match">‹</button>
        <button type="button" disabled=${!matches.size || !layout} onClick=${() => go(1)} aria-label="Next match">›</button>`}
      <button type="button" disabled=${!layout} onClick=${() => control.current.zoom(1.4)} aria-label="Zoom in">+</button>
      <button type="button" disabled=${!layout} onClick=${() => control.current.zoom(1 / 1.4)} aria-label="Zoom out">−</button>
      <button type="button" disabled=${!layout} onClick=${() => control.current.fit()}>Fit</button>
    </div>
    ${error && html`<${Notice} tone="bad"><p>${error}</p><//>`}
    ${!layout && !error && html`<${Loading} what=${`Laying out ${count(graph.widths.length)} nodes`} />`}
    ${layout && html`<${Surface} ...${{ graph, layout, chosen, matches, onChoose, label, control, say, hint }} />`}
    ${children}
    <p class="hint" id=${hint}>${note}${layout?.columns > 1 && ` It goes on from the foot of each of its ${layout.columns} columns to the head of the next.`} Drag or use the arrow keys to move, the wheel or + and − to zoom, 0 to see the whole. Shift and an arrow key goes along the edges and to the sides, Enter chooses a node.</p>
    <p class="unseen" aria-live="polite">${said}</p>
  </div>`;
}

function Surface({ graph, layout, chosen, matches, onChoose, label, control, say, hint }) {
  const canvas = useRef(null);
  const state = useRef({ view: null, pointers: new Map(), cursor: -1, frame: 0 });
  const latest = useRef({});
  latest.current = { graph, layout, chosen, matches, onChoose };

  const redraw = () => {
    const own = state.current;
    own.frame ||= requestAnimationFrame(() => {
      own.frame = 0;
      const box = canvas.current;
      if (!box || !own.view) return;
      const scene = { ...latest.current, cursor: document.activeElement === box ? own.cursor : -1 };
      draw(box.getContext("2d", { alpha: false }), own.view, scene, own.palette, box.clientWidth, box.clientHeight);
    });
  };
  const look = (view) => {
    state.current.view = view;
    redraw();
  };
  const size = () => [canvas.current.clientWidth, canvas.current.clientHeight];

  useEffect(() => {
    const own = state.current;
    const resize = () => {
      if (!canvas.current) return; // the page has changed since the observer saw it
      const ratio = Math.min(devicePixelRatio || 1, 2);
      canvas.current.width = Math.round(canvas.current.clientWidth * ratio);
      canvas.current.height = Math.round(canvas.current.clientHeight * ratio);
      redraw();
    };
    const recolour = () => {
      own.palette = palette();
      redraw();
    };
    const resized = new ResizeObserver(resize);
    resize();
    recolour();
    own.cursor = -1;
    own.view = latest.current.chosen.length ? centred({ scale: 0 }, layout, latest.current.chosen[0], ...size()) : first(layout, ...size());
    resized.observe(canvas.current);
    const ended = onThemeChange(recolour);
    const wheel = (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      look(zoomed(own.view, Math.exp(-Math.max(-200, Math.min(200, event.deltaY * lines)) * 0.0022), event.offsetX, event.offsetY));
    };
    canvas.current.addEventListener("wheel", wheel, { passive: false });
    return () => {
      resized.disconnect();
      ended();
      cancelAnimationFrame(own.frame);
      own.frame = 0;
    };
  }, [layout]);
  useEffect(redraw, [chosen, matches]);

  const zoom = (factor) => look(zoomed(state.current.view, factor, size()[0] / 2, size()[1] / 2));
  const show = (node) => {
    state.current.cursor = node;
    look(centred(state.current.view, layout, node, ...size()));
  };
  control.current = { zoom, show, fit: () => look(fitted(layout, ...size())) };

  const { down, move, up } = pointerHandlers({ state, look, onClick: (x, y) => {
    const node = nodeAt(state.current.view, layout, graph.widths, graph.height, x, y);
    if (node < 0) return;
    state.current.cursor = node;
    onChoose(node);
  } });
  const key = (event) => {
    const own = state.current;
    const direction = KEYS[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (direction && event.shiftKey) {
      const from = own.cursor >= 0 ? own.cursor : (chosen[0] ?? nodeNear(own.view, layout, size()));
      show(own.cursor < 0 ? from : next(graph, layout, from, direction));
      say(graph.names[own.cursor]);
    } else if (direction) look(panned(own.view, -direction[0] * STEP, -direction[1] * STEP));
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(1 / 1.25);
    else if (event.key === "0") control.current.fit();
    else if (event.key === "Enter" && own.cursor >= 0) onChoose(own.cursor);
    else return;
    event.preventDefault();
  };
  return html`<canvas ref=${canvas} class="graph-canvas" tabindex="0" role="application" aria-roledescription="graph" aria-label=${label} aria-describedby=${hint}
    onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${up} onKeyDown=${key} onFocus=${redraw} onBlur=${redraw}></canvas>`;
}

/** One pointer pans and clicks, two zoom. */
function pointerHandlers({ state, look, onClick }) {
  const spread = ([a, b]) => ({ distance: Math.hypot(a.x - b.x, a.y - b.y) || 1, x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  const down = (event) => {
    if (event.button) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    const { pointers } = state.current;
    pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY, moved: 0 });
  };
  const move = (event) => {
    const { pointers, view } = state.current;
    const pointer = pointers.get(event.pointerId);
    if (!pointer) return;
    const [dx, dy] = [event.offsetX - pointer.x, event.offsetY - pointer.y];
    const before = pointers.size === 2 ? spread([...pointers.values()]) : null;
    Object.assign(pointer, { x: event.offsetX, y: event.offsetY, moved: pointer.moved + Math.abs(dx) + Math.abs(dy) });
    if (!before) {
      if (pointer.moved > CLICK) look(panned(view, dx, dy));
      return;
    }
    const after = spread([...pointers.values()]);
    look(zoomed(panned(view, after.x - before.x, after.y - before.y), after.distance / before.distance, after.x, after.y));
  };
  const up = (event) => {
    const { pointers } = state.current;
    const pointer = pointers.get(event.pointerId);
    if (!pointer) return;
    const isClick = event.type === "pointerup" && pointers.size === 1 && pointer.moved <= CLICK;
    for (const other of pointers.values()) other.moved += CLICK + 1; // what was a pinch ends as no click
    pointers.delete(event.pointerId);
    if (isClick) onClick(event.offsetX, event.offsetY);
  };
  return { down, move, up };
}

/** The node nearest to the middle of what is in view. */
function nodeNear(view, layout, [width, height]) {
  const [x, y] = [view.x + width / 2 / view.scale, view.y + height / 2 / view.scale];
  let [best, least] = [0, Infinity];
  for (let node = 0; node < layout.x.length; node++) {
    const distance = Math.hypot(layout.x[node] - x, layout.y[node] - y);
    if (distance < least) [best, least] = [node, distance];
  }
  return best;
}

function found(graph, search) {
  const text = search.trim().toLowerCase();
  if (!text) return null;
  const all = new Set();
  graph.names.forEach((name, node) => name.toLowerCase().includes(text) && all.add(node));
  return all;
}

function cut(text) {
  const shown = visible(String(text ?? "").slice(0, 200));
  return shown.length > LONGEST ? `${shown.slice(0, LONGEST - 1)}…` : shown;
}
