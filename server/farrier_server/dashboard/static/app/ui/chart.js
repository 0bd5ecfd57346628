// Charts by uPlot, in the colours of the page.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "../lib/html.js";
import { colour, onThemeChange } from "../lib/theme.js";

/**
 * `data` is uPlot's: columns, x first. `series` are `{label, format(value), isStepped, isDots, size, colour}` of
 * the columns after x. `x` and `y` are `{label, format(value), isLogarithmic}`, and `y.isFromZero` begins
 * at zero. `summary` says in a sentence what the chart shows, for whoever does not see it.
 */
export function Chart({ data, series, x = {}, y = {}, height = 260, summary, isTime = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  const latest = useRef(data);
  latest.current = data;
  const shape = JSON.stringify([series.map((one) => [one.label, one.isStepped, one.isDots, one.size, one.colour]), x, y, height, isTime]);

  useEffect(() => {
    const place = box.current;
    if (!place) return undefined; // the page was left before it was drawn
    const widthOf = () => Math.max(place.clientWidth, 160);
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options({ series, x, y, width: widthOf(), height, isTime }), latest.current, place);
    };
    make();
    const resized = new ResizeObserver(() => {
      const width = widthOf();
      if (plot.current && plot.current.width !== width) plot.current.setSize({ width, height });
    });
    resized.observe(place);
    const ended = onThemeChange(make);
    return () => {
      resized.disconnect();
      ended();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    if (plot.current && plot.current.data !== data) renew(plot.current, data);
  }, [data]);

  return html`<figure class="chart">
    <div ref=${box} role="img" aria-label=${summary}></div>
  </figure>`;
}

const fromZero = (_, low, high) => uPlot.rangeNum(0, high || 1, 0.1, true);

/** Shows other data, in the part of it that the reader has chosen, if any. */
function renew(plot, data) {
  const { min, max } = plot.scales.x;
  const [shown] = plot.data;
  const isPart = shown.length > 1 && (min > shown[0] || max < shown.at(-1));
  plot.setData(data, !isPart);
  if (isPart) plot.redraw();
}

function options({ series, x, y, width, height, isTime }) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
  const written = (format) => (format ? (_, values) => values.map((value) => (value === null ? "" : format(value))) : undefined);
  return {
    width,
    height,
    scales: { x: { time: isTime, distr: x.isLogarithmic ? 3 : 1 }, y: { distr: y.isLogarithmic ? 3 : 1, range: y.isFromZero ? fromZero : undefined } },
    cursor: { y: false, drag: { x: true, y: false } },
    legend: { live: true },
    axes: [
      { ...axis, label: x.label, labelSize: 20, values: written(x.format) },
      { ...axis, label: y.label, labelSize: 20, size: 64, values: written(y.format) },
    ],
    series: [
      { label: x.label ?? "", value: x.format ? (_, value) => (value === null ? "–" : x.format(value)) : undefined },
      ...series.map((one, index) => {
        const stroke = one.colour ? colour(one.colour) : colour(`--series-${(index % 8) + 1}`);
        return {
          label: one.label,
          stroke,
          width: 2,
          spanGaps: true,
          paths: one.isDots ? () => null : one.isStepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          points: one.isDots ? { show: true, size: one.size ?? 4, fill: stroke, stroke } : { show: undefined },
          value: one.format ? (_, value) => (value === null || value === undefined ? "–" : one.format(value)) : undefined,
        };
      }),
    ],
  };
}
