// The form of a job: for which machine, how long to tune, which sizes.

import { visible } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Choice, Field } from "../../ui/controls.js";
import { Name } from "../../ui/text.js";
import { openDims } from "./request.js";
import { Target } from "./target.js";

const MOST_FIELDS = 60;
const AWAY = new Set(["offline", "unfit"]);

/** `form` and `change(fields)`; `errors` by field; `farm` is `{classes, devices, targets}`. */
export function JobForm({ form, change, errors, farm, inspection, fileName }) {
  const text = (field) => ({ value: form[field], onInput: (event) => change({ [field]: event.target.value }) });
  return html`
    <${Target} form=${form} change=${change} error=${errors.target} farm=${farm} />
    <${Field} label="Name of the job" name="job-name" error=${errors.name}>
      <input id="job-name" maxlength="200" placeholder=${fileName} ...${text("name")} />
    <//>
    <div class="pair">
      <${Field} label="Time to tune" name="budget" error=${errors.budget_s} hint="60s, 5m or 1h; empty for no bound.">
        <input id="budget" inputmode="text" maxlength="20" aria-describedby="budget-hint" ...${text("budget")} />
      <//>
      <${Field} label="Candidates to measure" name="trials" error=${errors.trials} hint="Empty for no bound. With neither, nothing is measured: an analytic model decides.">
        <input id="trials" inputmode="numeric" maxlength="8" aria-describedby="trials-hint" ...${text("trials")} />
      <//>
    </div>
    <${Sizes} form=${form} change=${change} errors=${errors} inspection=${inspection} />
    <div class="pair">
      <${Field} label="Threads" name="threads" error=${errors.threads} hint="Empty: one for each core of the target.">
        <input id="threads" inputmode="numeric" maxlength="5" placeholder="all cores" aria-describedby="threads-hint" ...${text("threads")} />
      <//>
      <${Field} label="Precision" name="precision" error=${errors.precision} hint="What contractions multiply in; their sums are f32.">
        <${Choice} id="precision" value=${form.precision} options=${[["f32", "f32"], ["bf16", "bf16"]]} onChange=${(precision) => change({ precision })} />
      <//>
    </div>
    <${Check} label="Verify the result against ONNX Runtime" isOn=${form.verify} onChange=${(verify) => change({ verify })} />
    <${Check} label="Wait in the queue where no such device is connected" isOn=${form.waits} onChange=${(waits) => change({ waits })} />
    <${Check} label="Keep what it measures and makes from other users" isOn=${form.isPrivate} onChange=${(isPrivate) => change({ isPrivate })} />
    <${Against} form=${form} change=${change} farm=${farm} error=${errors.against} />
    <details class="more-fields" open=${Boolean(errors.max_layer_error || errors.seed) || undefined}>
      <summary>More</summary>
      <div class="pair">
        <${Field} label="Largest error of a layer" name="layer-error" error=${errors.max_layer_error} hint="As a share of its range, 3e-6 if empty; 0: plain sums only.">
          <input id="layer-error" inputmode="decimal" maxlength="20" placeholder="3e-6" aria-describedby="layer-error-hint" ...${text("maxLayerError")} />
        <//>
        <${Field} label="Seed of the search" name="seed" error=${errors.seed}>
          <input id="seed" inputmode="numeric" maxlength="10" placeholder="0" ...${text("seed")} />
        <//>
      </div>
    </details>
  `;
}

function Sizes({ form, change, errors, inspection }) {
  const inputs = inspection?.inputs ?? [];
  const given = Object.keys(form.shapes).filter((name) => !inputs.some((one) => one.name === name));
  const isOpen = (one) => one.dims === null || one.dims.some((dim) => typeof dim === "string");
  const shaped = [...inputs.filter((one) => isOpen(one) || form.shapes[one.name]), ...given.map((name) => ({ name, dims: undefined }))];
  const dims = openDims(inspection, form.shapes);
  if (!shaped.length && !dims.length) return null;
  const set = (field, name) => (event) => change({ [field]: { ...form[field], [name]: event.target.value } });
  return html`<fieldset>
    <legend>Sizes that the model leaves open</legend>
    ${shaped.slice(0, MOST_FIELDS).map((one, index) => html`<div class="field" key=${one.name}>
      <label for=${`shape-${index}`}>Shape of <${Name} text=${one.name} /></label>
      <input id=${`shape-${index}`} maxlength="1000" spellcheck="false" aria-describedby=${index ? undefined : "shapes-hint"}
        placeholder=${placeholderOf(one.dims)} value=${form.shapes[one.name] ?? ""} onInput=${set("shapes", one.name)} />
      ${errors[`shapes.${one.name}`] && html`<p class="field-error" role="alert">${errors[`shapes.${one.name}`]}</p>`}
    </div>`)}
    ${shaped.length > 0 && html`<p class="hint" id="shapes-hint">Numbers fix a size: <code>1, 3, 224, 224</code>. What stays open is a name, a name with a range (<code>batch:1..8</code>), or <code>?</code>. Empty: as the model says.</p>`}
    ${errors.shapes && html`<p class="field-error" role="alert">${errors.shapes}</p>`}
    ${dims.length > 0 && html`<h3 class="small-head">Typically</h3>
      <div class="grid-fields">${dims.slice(0, MOST_FIELDS).map((dim, index) => html`<div class="field" key=${dim.name}>
        <label for=${`typical-${index}`}><${Name} text=${dim.name} /></label>
        <input id=${`typical-${index}`} inputmode="numeric" maxlength="13" placeholder=${dim.typical ?? ""} value=${form.typical[dim.name] ?? ""} onInput=${set("typical", dim.name)} />
        ${dim.high !== undefined && html`<p class="hint">${dim.low} to ${dim.high}</p>`}
        ${errors[`typical.${dim.name}`] && html`<p class="field-error" role="alert">${errors[`typical.${dim.name}`]}</p>`}
      </div>`)}</div>
      ${errors.typical && html`<p class="field-error" role="alert">${errors.typical}</p>`}
      <${Field} label="Sizes that get code of their own" name="hot" error=${errors.hot}>
        <${Choice} id="hot" value=${form.hot} options=${[["typical", "the typical ones"], ["given", "these"], ["none", "none: one code for all"]]} onChange=${(hot) => change({ hot })} />
      <//>
      ${form.hot === "given" && html`<${Field} label="One set of sizes a line" name="hot-sizes" hint="What is left out of a line has its typical size.">
        <textarea id="hot-sizes" rows="3" maxlength="4000" spellcheck="false" placeholder="batch=1, height=640" aria-describedby="hot-sizes-hint" value=${form.hotSizes} onInput=${(event) => change({ hotSizes: event.target.value })}></textarea>
      <//>`}`}
  </fieldset>`;
}

function Against({ form, change, farm, error }) {
  const engines = enginesOf(form.target, farm);
  const offered = [...new Set([...Object.keys(engines), ...form.against])].slice(0, 20);
  if (!offered.length) return null;
  const turn = (engine) => (isOn) => change({ against: isOn ? [...form.against, engine] : form.against.filter((one) => one !== engine) });
  return html`<fieldset>
    <legend>Race it against</legend>
    ${offered.map((engine) => html`<${Check} key=${engine} label=${html`${engine} <span class="quiet">${engines[engine] ?? "no connected device of the target tells it"}</span>`} isOn=${form.against.includes(engine)} onChange=${turn(engine)} />`)}
    ${error && html`<p class="field-error" role="alert">${error}</p>`}
  </fieldset>`;
}

function placeholderOf(dims) {
  if (!dims) return dims === null ? "any rank" : "";
  return `${visible(dims.join(", ")).slice(0, 200)} (open)`;
}

/** `{engine: versions}` of the connected devices that a target comes to. */
function enginesOf(target, { classes, devices }) {
  if (target.startsWith("device:")) {
    const device = devices.find((one) => one.id === target.slice(7));
    return device && !AWAY.has(device.state) ? device.engines : {};
  }
  const here = classes.filter((one) => one.connected > 0);
  const found = target === "host" ? here.length === 1 && here[0] : here.find((one) => target === `class:${one.id}`);
  return found ? Object.fromEntries(Object.entries(found.engines).map(([name, versions]) => [name, versions.join(", ")])) : {};
}

function Check({ label, isOn, onChange }) {
  return html`<label class="check"><input type="checkbox" checked=${isOn} onChange=${(event) => onChange(event.target.checked)} /><span>${label}</span></label>`;
}
