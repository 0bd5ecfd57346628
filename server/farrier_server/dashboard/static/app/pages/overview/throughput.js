// Trials a minute over the last hour.

import { useMemo } from "preact/hooks";
import { clock, count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Chart } from "../../ui/chart.js";
import { Empty } from "../../ui/feedback.js";

const SERIES = [{ label: "Trials", isStepped: true, format: count }];
const X = { format: clock };
const Y = { isFromZero: true, label: "trials a minute", format: count };

/** Of the last whole minute, and of all that are given; the newest minute is not over. */
export function trialsAMinute(minutes) {
  return { rate: minutes.at(-2)?.trials ?? null, total: minutes.reduce((sum, minute) => sum + minute.trials, 0) };
}

export function Throughput({ minutes }) {
  // A new answer with the same figures draws nothing anew.
  const text = JSON.stringify(minutes.slice(0, -1).map((minute) => [minute.time, minute.trials]));
  const data = useMemo(() => {
    const rows = JSON.parse(text);
    return [0, 1].map((column) => rows.map((row) => row[column]));
  }, [text]);
  const { rate, total } = trialsAMinute(minutes);
  if (!minutes.some((minute) => minute.trials)) {
    return html`<${Empty} title="Nothing was measured in the last hour"><p>Trials are drawn here as devices measure them.</p><//>`;
  }
  const summary = `Trials of each minute of the last hour: ${count(total)} in all, ${count(rate)} in the last whole minute.`;
  return html`<${Chart} data=${data} series=${SERIES} x=${X} y=${Y} height=${236} isTime=${true} summary=${summary} />`;
}
