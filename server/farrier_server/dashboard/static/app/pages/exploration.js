// An exploration, live: for each model the Pareto chart and the table of its shapes.

import { useMemo, useState } from "preact/hooks";
import { remove } from "../lib/api.js";
import { useFarm, useJobStates } from "../lib/farm.js";
import { count, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { navigate } from "../lib/router.js";
import { Action, Confirm } from "../ui/controls.js";
import { Loaded, Problem } from "../ui/feedback.js";
import { Figure, Figures } from "../ui/figures.js";
import { LiveMark } from "../ui/link.js";
import { PageHead, Section } from "../ui/shell.js";
import { Ago, Id, Name } from "../ui/text.js";
import { rowsOf } from "./exploration/facts.js";
import { Pareto } from "./exploration/pareto.js";
import { Results } from "./exploration/results.js";
import { Shapes } from "./exploration/shapes.js";

const ASKED_MS = 3000; // a result is no event of the farm

export function Exploration({ id }) {
  const path = `/v1/explorations/${encodeURIComponent(id)}`;
  const resource = useResource(path, { every: ASKED_MS });
  const exploration = resource.data;
  const [noted, current] = useJobStates(exploration);
  const jobs = useMemo(() => new Set((exploration?.results ?? []).map((result) => result.job)), [exploration]);
  const link = useFarm(resource, { concerns: (event) => event.kind === "job" && jobs.has(event.job), onEvents: noted });
  const [failure, setFailure] = useState(null);
  const above = html`<a href="/explorations">Explorations</a> / <${Id} id=${id} length=${24} />`;
  if (!exploration) {
    const title = resource.error?.status === 404 ? "No such exploration" : "Exploration";
    return html`<${PageHead} title=${title} above=${above} /><${Loaded} resource=${resource} what="Looking for the exploration" />`;
  }
  return html`
    <${PageHead} title=${html`<${Name} text=${exploration.name} />`} tab=${visible(exploration.name).slice(0, 100)} above=${above}>
      <${LiveMark} link=${link} />
      ${exploration.result_count > 0 && html`<a class="button" href=${`${path}/chart`} download>Download the chart</a>`}
      ${exploration.may_change && html`<${Delete} path=${path} onError=${setFailure} />`}
    <//>
    <${Problem} error=${failure} />
    <${Problem} error=${resource.error} retry=${resource.refresh} />
    <${Summary} exploration=${exploration} />
    ${exploration.models.map((model) => html`<${Model} key=${model} ...${{ exploration, model, current }} />`)}
    <${Section} title="Shapes"><${Shapes} exploration=${exploration} /><//>
  `;
}

function Summary({ exploration }) {
  const all = exploration.shape_count * exploration.model_count;
  const isWhole = exploration.result_count === all;
  return html`<${Figures} label="Exploration">
    <${Figure} name="Results" value=${`${count(exploration.result_count)} of ${count(all)}`} tone=${isWhole ? "good" : "wait"} />
    <${Figure} name="Shapes" value=${count(exploration.shape_count)} />
    <${Figure} name="Models" value=${count(exploration.model_count)} />
    <${Figure} name="Started" value=${html`<${Ago} at=${exploration.created} />`} detail=${html`by <${Name} text=${exploration.owner} />${exploration.private && ", private"}`} />
    <${Figure} name="Latest result" value=${html`<${Ago} at=${exploration.changed} />`} />
  <//>`;
}

function Model({ exploration, model, current }) {
  const [pointed, setPointed] = useState("");
  const rows = useMemo(() => rowsOf(exploration, model), [exploration, model]);
  return html`<${Section} title=${html`<${Name} text=${model} />`}>
    <${Pareto} model=${model} rows=${rows} pointed=${pointed} onPoint=${setPointed} />
    <${Results} model=${visible(model)} rows=${rows} pointed=${pointed} current=${current} />
  <//>`;
}

function Delete({ path, onError }) {
  const [isAsked, setAsked] = useState(false);
  const answered = async (isYes) => {
    setAsked(false);
    if (!isYes) return;
    try {
      await remove(path);
      navigate("/explorations");
    } catch (error) {
      onError(error);
    }
  };
  return html`<${Action} tone="bad" run=${async () => setAsked(true)}>Delete<//>
    ${isAsked && html`<${Confirm} title="Delete this exploration?" yes="Delete the exploration" onAnswer=${answered}>
      <p>Its results are deleted; its jobs stay. A <code>farrier explore</code> that still runs for it stops with an error.</p>
    <//>`}`;
}
