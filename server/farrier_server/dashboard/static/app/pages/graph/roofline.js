// Where kernels stand below what the machine can do: computing, and fetching from memory.

import { useMemo } from "preact/hooks";
import { number, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Chart } from "../../ui/chart.js";
import { Empty } from "../../ui/feedback.js";
import { Facts } from "../../ui/figures.js";

const MARGIN = 2; // the chart goes on by so much beyond the kernels
const X = { label: "FLOP for each byte of memory", format: (value) => number(value), isLogarithmic: true };
const Y = { label: "GFLOP/s", format: (value) => number(value), isLogarithmic: true };
const SERIES = [
  { label: "roof", colour: "--quiet", format: (value) => number(value) },
  { label: "all kernels", isDots: true, colour: "--series-2", format: (value) => number(value) },
  { label: "this kernel", isDots: true, size: 13, colour: "--accent", format: (value) => number(value) },
];

/** The roof of the kernel's machine, all kernels as dots, and this one. */
export function Roofline({ kernel, kernels }) {
  const roof = kernel.roofline;
  const data = useMemo(() => (isPlaced(kernel) ? columnsOf(kernel, kernels.filter(isPlaced)) : null), [kernel, kernels]);
  if (!data) {
    return html`<${Empty} title="This kernel has no place on the roofline."><p>${roof?.peak_gflops ? "It does no arithmetic, or was not timed." : "The peak and the bandwidth of the target are not known."}</p><//>`;
  }
  const bound = Math.min(roof.peak_gflops, roof.intensity * roof.bandwidth_gbs);
  const isMemory = roof.intensity * roof.bandwidth_gbs < roof.peak_gflops;
  const share = roof.achieved_gflops / bound;
  const how = kernel.measured_us === null ? ", as predicted," : "";
  const summary = `The kernel does ${number(roof.achieved_gflops)} GFLOP/s${how} at ${number(roof.intensity)} FLOP for each byte: ${percent(share)} of the roof there, which is the ${isMemory ? "memory's" : "processor's"}.`;
  return html`
    <p>${summary}</p>
    <${Chart} data=${data} series=${SERIES} x=${X} y=${Y} height=${300} summary=${summary} />
    <${Facts} rows=${[
      ["Peak", `${number(roof.peak_gflops)} GFLOP/s`],
      ["Memory", `${number(roof.bandwidth_gbs)} GB/s`],
      ["This kernel", `${number(roof.achieved_gflops)} of ${number(bound)} GFLOP/s`],
    ]} />
    ${share > 1 && html`<p class="hint">It is above the roof: its data stay in a cache.</p>`}
  `;
}

function isPlaced({ roofline }) {
  return Boolean(roofline && roofline.peak_gflops > 0 && roofline.bandwidth_gbs > 0 && roofline.intensity > 0 && roofline.achieved_gflops > 0);
}

/** uPlot's columns, by rising x: the roof's corners among the kernels. */
function columnsOf(kernel, kernels) {
  const { peak_gflops: peak, bandwidth_gbs: bandwidth } = kernel.roofline;
  const ridge = peak / bandwidth;
  const intensities = kernels.map((one) => one.roofline.intensity);
  const ends = [Math.min(ridge, ...intensities) / MARGIN, ridge, Math.max(ridge, ...intensities) * MARGIN];
  const points = [
    ...ends.map((x) => [x, Math.min(peak, x * bandwidth), null, null]),
    ...kernels.map((one) => [one.roofline.intensity, null, one.id === kernel.id ? null : one.roofline.achieved_gflops, one.id === kernel.id ? one.roofline.achieved_gflops : null]),
  ].sort((a, b) => a[0] - b[0]);
  return [0, 1, 2, 3].map((column) => points.map((point) => point[column]));
}
