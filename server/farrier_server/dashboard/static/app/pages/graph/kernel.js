// One kernel: its schedule, its code in each form, its place on the roofline.

import { count, microseconds, number, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useResource } from "../../lib/live.js";
import { setQuery } from "../../lib/router.js";
import { Tabs } from "../../ui/controls.js";
import { Empty, Loaded } from "../../ui/feedback.js";
import { Facts } from "../../ui/figures.js";
import { Section } from "../../ui/shell.js";
import { Name } from "../../ui/text.js";
import { CodePages } from "./code_pages.js";
import { Roofline } from "./roofline.js";
import { Timeline } from "./timeline.js";

const PARTS = [["schedule", "Schedule"], ["loops", "Loop IR"], ["llvm", "LLVM"], ["assembly", "Assembly"], ["timeline", "Timeline"], ["roofline", "Roofline"]];
const WRITTEN = new Set(["timeline"]); // Tabs of kernels that have the part.

/** `path` answers its texts; `part` is the tab. */
export function Kernel({ job, path, kernel, kernels, part }) {
  const texts = useResource(part === "roofline" ? null : path);
  const parts = PARTS.filter(([one]) => !WRITTEN.has(one) || texts.data?.[one] || one === part);
  const chosen = PARTS.some(([one]) => one === part) ? part : "schedule";
  const title = PARTS.find(([one]) => one === chosen)[1];
  const trials = kernel.task && `/jobs/${encodeURIComponent(job.id)}?${new URLSearchParams({ tab: "trials", kernel: kernel.task })}`;
  return html`<${Section} title=${html`Kernel <${Name} text=${kernel.name} />`} aside=${trials && html`<a href=${trials}>Its trials</a>`}>
    <div class="kernel">
      <${Facts} rows=${[
        ["A call", `${microseconds(kernel.us)}, ${kernel.measured_us === null ? "predicted" : `measured; predicted ${microseconds(kernel.predicted_us)}`}`],
        ["Calls in a run", count(kernel.calls)],
        ["Share of the time", percent(kernel.share)],
        ["Work of a call", kernel.flops > 0 && `${number(kernel.flops / 1e6)} MFLOP`],
        ["Memory of a call", kernel.bytes > 0 && `${number(kernel.bytes / 1e6)} MB`],
        ["Runs slowly", kernel.slow && html`<${Name} text=${kernel.slow} />`],
        ["Rule", kernel.rule && html`<${Name} text=${kernel.rule} />`],
        ["Schedule", kernel.source],
        ["First computes", kernel.origin && html`<${Name} text=${kernel.origin} />`],
        ["Function", kernel.symbol && html`<code><${Name} text=${kernel.symbol} /></code>`],
      ]} />
      <div class="kernel-parts">
        <${Tabs} label="What is shown of the kernel" tabs=${parts} chosen=${chosen} onChoose=${(one) => setQuery({ part: one === "schedule" ? "" : one })} />
        ${chosen === "roofline"
          ? html`<${Roofline} kernel=${kernel} kernels=${kernels} />`
          : html`<${Loaded} resource=${texts} what="Loading the code">${(found) => found[chosen]
            ? chosen === "timeline" ? html`<${Timeline} text=${found.timeline} />` : html`<${CodePages} key=${chosen} text=${found[chosen]} label=${`${title} of the kernel`} />`
            : html`<${Empty} title=${`The listing has no ${title} of this kernel.`} />`}<//>`}
      </div>
    </div>
  <//>`;
}
