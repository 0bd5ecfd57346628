// Which machine a job is for.

import { html } from "../../lib/html.js";
import { visible } from "../../lib/format.js";
import { Field } from "../../ui/controls.js";
import { DESCRIBED, connectedOf } from "./request.js";

// What host is, by the number of connected classes.
const HOST = ["host: no device is connected now", "host: the only class of devices that is connected", "host: of several connected classes none"];

/** The choice of the target: what is connected first, then what a class or name stands for. */
export function Target({ form, change, error, farm }) {
  const { classes, targets } = farm;
  const here = connectedOf(farm);
  const away = classes.filter((one) => !one.connected);
  const known = new Set(["host", DESCRIBED, ...classes.map((one) => `class:${one.id}`), ...targets.map((one) => one.name)]);
  return html`
    <${Field} label="Target" name="target" error=${error} hint=${hintOf(form, farm)}>
      <select id="target" value=${form.target} aria-describedby="target-hint" onChange=${(event) => change({ target: event.target.value })}>
        <option value="host">${HOST[Math.min(here.length, 2)]}</option>
        ${!known.has(form.target) && html`<option value=${form.target}>${cut(form.target)}</option>`}
        ${here.length > 0 && html`<optgroup label="Connected">${here.map((one) => html`<${ClassOption} key=${one.id} one=${one} />`)}</optgroup>`}
        ${away.length > 0 && html`<optgroup label="Known, none connected">${away.slice(0, 100).map((one) => html`<${ClassOption} key=${one.id} one=${one} />`)}</optgroup>`}
        ${targets.length > 0 && html`<optgroup label="Machines by name">${targets.slice(0, 200).map((one) => html`<option key=${one.name} value=${one.name}>${one.name} (${one.arch}, ${one.cores} cores)</option>`)}</optgroup>`}
        <option value=${DESCRIBED}>another, as I write it …</option>
      </select>
    <//>
    ${form.target === DESCRIBED && html`<${Field} label="Target as text" name="described" hint="class:ID, device:NAME, or a machine's description as JSON on one line: farrier targets NAME prints one to start from.">
      <textarea id="described" rows="3" maxlength="10000" spellcheck="false" aria-describedby="described-hint" value=${form.described} onInput=${(event) => change({ described: event.target.value.replaceAll("\n", " ") })}></textarea>
    <//>`}
  `;
}

function ClassOption({ one }) {
  const about = one.description;
  const devices = one.connected === 1 ? "1 device" : `${one.connected} devices`;
  return html`<option value=${`class:${one.id}`}>${cut(`${about.cpu || about.arch}, ${about.cores} cores`)} (${devices}${one.emulated ? ", emulated" : ""}) class:${one.id}</option>`;
}

function hintOf({ target }, { classes, targets }) {
  if (target === "host") {
    const here = connectedOf({ classes });
    const what = "On the farm, host is its only connected class of devices; from the command line it is the machine that submits.";
    return here.length === 1 ? `${what} Now that is class:${here[0].id}.` : what;
  }
  const found = classes.find((one) => target === `class:${one.id}`);
  if (found?.emulated) return "Its devices are software: their times say nothing.";
  if (found && !found.connected) return "None of its devices is connected: the job can wait in the queue until one is.";
  const named = targets.find((one) => one.name === target);
  return named ? `Figures: ${named.source}${named.generic ? "; cores and caches are a guess" : ""}. To tune or verify, a device of this kind has to be connected.` : undefined;
}

function cut(text) {
  const shown = visible(text);
  return shown.length > 80 ? `${shown.slice(0, 80)}…` : shown;
}
