// Submitting a model: its files, what a worker finds in it, the form, and the same as a command.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { post } from "../lib/api.js";
import { commandLine, python } from "../lib/commands.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { navigate, setQuery } from "../lib/router.js";
import { Code, Tabs } from "../ui/controls.js";
import { Notice, Problem } from "../ui/feedback.js";
import { PageHead, Section } from "../ui/shell.js";
import { Id, Name } from "../ui/text.js";
import { Files } from "./submit/files.js";
import { JobForm } from "./submit/form.js";
import { usePrepared } from "./submit/inspecting.js";
import { Inspected, ModelFacts, Verdict, isNoModel } from "./submit/inspection.js";
import { BLANK, connectedOf, fieldOf, formOf, requestOf, said } from "./submit/request.js";
import { useTransfer } from "./submit/transfer.js";

const FARM_MS = 5000; // how often the choice of targets is renewed
const NONE = [];

/** `?model=ID&file=NAME`: a model that the server has; `?from=JOB`: as that job, to be changed. */
export function Submit({ query }) {
  const { from = null } = Object.fromEntries(query);
  const job = useResource(from ? `/v1/jobs/${encodeURIComponent(from)}` : null);
  const model = query.get("model") ?? job.data?.model ?? null;
  const file = query.get("file") ?? job.data?.name ?? "";
  const [form, setForm] = useState(BLANK);
  const change = (fields) => setForm((old) => ({ ...old, ...fields }));
  useEffect(() => {
    if (job.data) setForm(formOf(job.data));
  }, [job.data?.id]);

  const [transfer, actions] = useTransfer((id, name) => setQuery({ model: id, file: name }));
  const choose = (files) => {
    setQuery({ model: null, file: null, from: null });
    change({ shapes: {}, typical: {}, hotSizes: "", name: "" });
    actions.add(files);
  };
  const farm = useFarm();
  const prepared = usePrepared(model && `/v1/models/${model}/inspection`);
  const inspection = prepared.data?.inspection ?? null;
  const chosenFile = transfer.files.find((one) => one.key === transfer.main)?.file.name;
  const connected = connectedOf(farm).length;
  const { request, errors } = useMemo(() => requestOf(form, model, connected), [form, model, connected]);

  return html`
    <${PageHead} title="Submit a model" above=${from && html`<a href=${`/jobs/${encodeURIComponent(from)}`}>As job <${Id} id=${from} length=${20} /></a>, with changes`} />
    ${from && html`<${Problem} error=${job.error} retry=${job.refresh} />`}
    <div class="columns submit">
      <div>
        <${Section} title="Model">
          ${model && transfer.stage !== "done" && html`<${Notice}><p>The server has the model <a href=${`/models/${model}`}>${file ? html`<${Name} text=${file} />` : html`<${Id} id=${model} length=${16} />`}</a>. Other files take its place.</p><//>`}
          <${Files} transfer=${transfer} actions=${{ ...actions, add: choose }} />
          ${model && html`<${Inspected} prepared=${prepared}>${(found) => html`
            <${Verdict} inspection=${found} />
            ${!isNoModel(found) && html`<${ModelFacts} inspection=${found} more=${[["Details", html`<a href=${`/models/${model}?${new URLSearchParams({ file })}`}>Inputs, operators and graph</a>`]]} />`}
          `}<//>`}
        <//>
      </div>
      <${Send} ...${{ form, change, request, errors, farm, inspection, model, file: file || chosenFile || "", path: query.get("file") ?? chosenFile }} />
    </div>
  `;
}

/** What the form chooses from; empty until it is known. */
function useFarm() {
  const classes = useResource("/v1/classes", { every: FARM_MS });
  const devices = useResource("/v1/devices", { every: FARM_MS });
  const targets = useResource("/v1/targets");
  return { classes: classes.data?.classes ?? NONE, devices: devices.data?.devices ?? NONE, targets: targets.data?.targets ?? NONE };
}

function Send({ form, change, request, errors, farm, inspection, model, file, path }) {
  const [refusal, setRefusal] = useState(null); // {error, text}: of which request
  const [isBusy, setBusy] = useState(false);
  const key = useRef({});
  const text = JSON.stringify(request);
  const refused = refusal?.text === text ? refusal.error : null;
  const field = refused && fieldOf(refused);
  const shown = field ? { ...errors, [field]: said(refused) } : errors;
  const hasErrors = Object.keys(errors).length > 0;

  const submit = async (event) => {
    event.preventDefault();
    if (isBusy || !model || hasErrors) return;
    setBusy(true);
    if (key.current.text !== text) key.current = { text, key: randomKey() }; // the same request is the same job
    try {
      const body = { ...request, name: request.name || file.slice(0, 200) };
      const job = await post("/v1/jobs", body, { headers: { "Idempotency-Key": key.current.key } });
      navigate(`/jobs/${encodeURIComponent(job.id)}`);
    } catch (error) {
      setRefusal({ error, text });
      setBusy(false);
    }
  };
  return html`<form onSubmit=${submit} aria-label="Job">
    <${Section} title="Job">
      <${JobForm} form=${form} change=${change} errors=${shown} farm=${farm} inspection=${inspection} fileName=${file} />
      ${refused && !(field in FIELDS) && html`<${Problem} error=${refused} title="The job was not taken." />`}
      ${refused && field in FIELDS && html`<p class="field-error" role="alert">The job was not taken: see ${FIELDS[field]} above.</p>`}
      <p class="actions">
        <button type="submit" class="button-main" disabled=${!model || isBusy || hasErrors}>${isBusy ? "Submitting…" : "Submit"}</button>
        ${!model && html`<span class="quiet">once the model is on the server</span>`}
        ${model && hasErrors && html`<span class="field-error">A field cannot be read: see above.</span>`}
      </p>
    <//>
    <${Same} request=${{ ...request, name: request.name || (path ? "" : file), file: path, options: { ...request.options, target: named(request.options.target, farm) } }} />
  </form>`;
}

const FIELDS = {
  target: "the target", name: "the name", budget_s: "the time to tune", trials: "the candidates", threads: "the threads", precision: "the precision",
  shapes: "the shapes", typical: "the typical sizes", hot: "the sizes with code of their own", against: "the race", max_layer_error: "the largest error", seed: "the seed",
};

/** What host is to the farm: on a command line it would be another machine. */
function named(target, farm) {
  const here = connectedOf(farm);
  return target === "host" && here.length === 1 ? `class:${here[0].id}` : target;
}

function Same({ request }) {
  const [tab, setTab] = useState("shell");
  return html`<${Section} title="The same without this page">
    <${Tabs} label="How" tabs=${[["shell", "Command line"], ["python", "Python"]]} chosen=${tab} onChoose=${setTab} />
    <${Code} text=${tab === "shell" ? commandLine(request) : python(request)} label=${tab === "shell" ? "Command line" : "Python"} />
  <//>`;
}

/** The page may be on plain HTTP, where the browser gives no UUIDs. */
function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
