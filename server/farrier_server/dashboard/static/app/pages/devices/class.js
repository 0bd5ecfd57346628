// A device class with its devices.

import { useState } from "preact/hooks";
import { DEVICE_TONES, isEmulated, machineOf, temperatureOf } from "../../lib/devices.js";
import { count, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Problem } from "../../ui/feedback.js";
import { Table } from "../../ui/table.js";
import { Ago, Name, Share, State } from "../../ui/text.js";
import { Release, WhyAway } from "./quarantine.js";

/** `group` is `{id, known, devices}`; `known` is the class as the API has it, if it is asked for already. */
export function DeviceClass({ group, refresh }) {
  const [error, setError] = useState(null);
  const { devices } = group;
  const connected = devices.filter((device) => device.state !== "offline").length;
  const description = group.known?.description ?? devices[0].description;
  const columns = [
    { key: "id", label: "Device", cell: link },
    { key: "state", label: "State", cell: (device) => html`<${State} state=${device.state} tone=${DEVICE_TONES[device.state]} />` },
    { key: "why", label: "Why", cell: (device) => html`<${Needs} device=${device} refresh=${refresh} onError=${setError} />` },
    { key: "load", label: "Load", cell: load },
    { key: "heat", label: "Temperature", cell: heat },
    { key: "measured", label: "Batches", isNumber: true, cell: (device) => count(device.measured) },
    { key: "faults", label: "Faults", isNumber: true, cell: (device) => count(device.faults) },
    { key: "engines", label: "Engines", cell: engines },
    { key: "seen", label: "Seen", isNumber: true, cell: (device) => html`<${Ago} at=${device.seen} />` },
  ];
  const hasEngines = devices.some((device) => Object.keys(device.engines ?? {}).length);
  const needsHand = devices.some((device) => ["quarantined", "unfit"].includes(device.state));
  const shown = columns.filter(({ key }) => (key !== "engines" || hasEngines) && (key !== "why" || needsHand));
  return html`<section class="section">
    <div class="section-head">
      <div class="class-head">
        <h2><${Name} text=${group.id || "of no class"} /></h2>
        <p class="quiet wrap">${machineOf(description)}${isEmulated(devices[0]) && html` <${Emulated} />`}</p>
      </div>
      <span class="quiet">${count(connected)} of ${count(devices.length)} connected</span>
    </div>
    <${Problem} error=${error} />
    <${Table} caption=${`Devices of the class ${group.id}`} columns=${shown} rows=${devices} rowKey=${(device) => device.id} />
  </section>`;
}

function link(device) {
  return html`<a href=${`/devices/${encodeURIComponent(device.id)}`}><${Name} text=${device.id} /></a>`;
}

/** Marks what is software: its times say nothing of the hardware. */
export function Emulated() {
  const title = "Software: its times say nothing of the hardware, and no record of it is kept";
  return html`<span class="mark-emulated" title=${title}>emulated</span>`;
}

function Needs({ device, refresh, onError }) {
  if (device.state === "unfit") return html`<span class="row-note row-why wrap">${device.unfit}</span>`;
  if (device.state !== "quarantined") return null;
  return html`<div class="needs">
    <span class="row-note row-why"><${WhyAway} id=${device.id} /></span>
    <${Release} id=${device.id} onReleased=${refresh} onError=${onError} />
  </div>`;
}

function load(device) {
  if (device.state === "offline" || device.busy === null || device.busy === undefined) return html`<span class="quiet">–</span>`;
  return html`<${Share} value=${device.busy} text=${percent(device.busy)} />`;
}

function heat(device) {
  const { throttled, waits } = device.health;
  const told = temperatureOf(device.health);
  if (device.state === "offline" || (!told && !throttled && !waits)) return html`<span class="quiet">–</span>`;
  return html`
    ${told && html`<span>${told}</span>`}
    ${throttled && html`<span class="row-note row-bad">throttled: <${Name} text=${throttled} /></span>`}
    ${waits && html`<span class="row-note row-bad"><${Name} text=${waits} /></span>`}
  `;
}

function engines(device) {
  const found = Object.entries(device.engines ?? {});
  return html`<${Name} text=${found.map(([name, version]) => `${name} ${version}`).join(", ")} empty="–" />`;
}
