// The choice of one kernel, also among hundreds.

import { useMemo, useState } from "preact/hooks";
import { percent, visible } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { setQuery } from "../../lib/router.js";
import { Choice, Search } from "../../ui/controls.js";

const MOST = 100; // in the list; who looks for another searches
const LONGEST = 60;

/** `tasks` have a `task`, a `name` and a `share`. The choice is `kernel` in the query; `none` names no kernel. */
export function KernelChoice({ tasks, chosen, none }) {
  const [text, setText] = useState("");
  const options = useMemo(() => {
    const wanted = text.toLowerCase();
    const unique = [...new Map(tasks.map((task) => [task.task, task])).values()].sort((a, b) => (b.share ?? 0) - (a.share ?? 0));
    const found = unique.filter((task) => task.task === chosen || task.name.toLowerCase().includes(wanted));
    const listed = found.slice(0, MOST);
    const own = found.find((task) => task.task === chosen);
    if (own && !listed.includes(own)) listed.push(own);
    return [["", found.length > MOST ? `${none} (${MOST} of ${found.length} kernels are listed)` : none], ...listed.map(option)];
  }, [tasks, chosen, text, none]);
  if (!tasks.length) return null;
  return html`
    ${tasks.length > 20 && html`<${Search} label="Search kernels" value=${text} onChange=${setText} />`}
    <${Choice} label="Kernel" value=${chosen} options=${options} onChange=${(kernel) => setQuery({ kernel })} />
  `;
}

function option(task) {
  const name = visible(task.name);
  return [task.task, `${name.length > LONGEST ? `${name.slice(0, LONGEST)}…` : name} (${percent(task.share)})`];
}
