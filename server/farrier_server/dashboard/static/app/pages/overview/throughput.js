// Trials a minute over the last hour.

import { useMemo } from "preact/hooks";
import { clock, count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Chart } from "../../ui/chart.js";
import { Empty } from "../../ui/feedback.js";

const SERIES = [{ label: "Trials", isStepped: true, format: count }];
const X = { format: clock };
const Y = { isFromZero: true, label: "trials a minute", format: (value) => (Number.isInteger(value) ? count(value) : "") };

/** `{rate, total}`: of the 60 s before `now`, as far as whole minutes tell, and of all that are given. */
export function trialsAMinute(minutes, now) {
  const [before, newest] = minutes.slice(-2);
  const past = Math.min(1, Math.max(0, (now - newest.time) / 60));
  return {
    rate: newest.trials + before.trials * (1 - past),
    total: minutes.reduce((sum, minute) => sum + minute.trials, 0),
  };
}

/** `now` is when the answer was made, in Unix seconds. */
export function Throughput({ minutes, now }) {
  // A new answer with the same figures draws nothing anew.
  const text = JSON.stringify(whole(minutes).map((minute) => [minute.time, minute.trials]));
  const data = useMemo(() => {
    const rows = JSON.parse(text);
    return [0, 1].map((column) => rows.map((row) => row[column]));
  }, [text]);
  const { rate, total } = trialsAMinute(minutes, now);
  if (!minutes.some((minute) => minute.trials)) {
    return html`<${Empty} title="Nothing was measured in the last hour"><p>Trials are drawn here as devices measure them.</p><//>`;
  }
  const summary = `Trials of each minute of the last hour: ${count(total)} in all, ${count(rate)} in the last one.`;
  return html`<${Chart} data=${data} series=${SERIES} x=${X} y=${Y} height=${236} isTime=${true} summary=${summary} />`;
}

/** Without the newest minute, which is not over and would look like a fall, unless it is the first with trials. */
function whole(minutes) {
  const past = minutes.slice(0, -1);
  return past.some((minute) => minute.trials) ? past : minutes;
}
