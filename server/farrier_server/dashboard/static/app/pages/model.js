// An uploaded model: what a worker found in it.

import { visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { setQuery } from "../lib/router.js";
import { PageHead, Section, useTitle } from "../ui/shell.js";
import { Id, Name } from "../ui/text.js";
import { OperatorGraph } from "./graph/operator_graph.js";
import { usePrepared } from "./submit/inspecting.js";
import { Inspected, ModelFacts, OpenDims, Operators, Tensors, Verdict, isNoModel } from "./submit/inspection.js";

/** `query.node` is the chosen node of the graph. */
export function Model({ id, query }) {
  const prepared = usePrepared(`/v1/models/${encodeURIComponent(id)}/inspection`);
  const file = query.get("file") ?? "";
  const name = file || id.slice(0, 16);
  useTitle(`Model ${visible(name).slice(0, 80)}`);
  const submit = `/submit?${new URLSearchParams({ model: id, ...(file ? { file } : {}) })}`;
  return html`
    <${PageHead} title=${html`<${Name} text=${name} />`} above=${html`Model <${Id} id=${id} length=${16} />`}>
      <a class="button button-main" href=${submit}>Submit this</a>
    <//>
    <${Inspected} prepared=${prepared}>${(found) => html`
      <${Verdict} inspection=${found} />
      ${!isNoModel(found) && html`<${Details} found=${found} query=${query} />`}
    `}<//>
  `;
}

function Details({ found, query }) {
  return html`
    <div class="columns">
      <${Section} title="About"><${ModelFacts} inspection=${found} /><//>
      <${Section} title="Open dimensions"><${OpenDims} dims=${found.open_dims} />
        ${found.preconditions?.length > 0 && html`<p class="hint">Taken for granted:</p><ul class="hint">${found.preconditions.slice(0, 20).map((one, index) => html`<li class="wrap" key=${index}><bdi>${one}</bdi></li>`)}</ul>`}
      <//>
    </div>
    <div class="columns">
      <${Section} title="Inputs"><${Tensors} caption="Inputs" tensors=${found.inputs} /><//>
      <${Section} title="Outputs"><${Tensors} caption="Outputs" tensors=${found.outputs} /><//>
    </div>
    ${found.graph.nodes.length > 0 && html`<${OperatorGraph} inspection=${found} chosen=${query.get("node")} onChoose=${(node) => setQuery({ node })} />`}
    <${Operators} operators=${found.operators} />
  `;
}
