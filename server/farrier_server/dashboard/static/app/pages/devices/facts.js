// What a device says of itself.

import { clockOf, isEmulated, machineOf, sizeOf, temperatureOf } from "../../lib/devices.js";
import { count, visible } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Facts } from "../../ui/figures.js";
import { Name } from "../../ui/text.js";
import { Emulated } from "./class.js";

export function Machine({ device }) {
  const { description } = device;
  const { features = [], adapters = [], kinds = [] } = description;
  const engines = Object.entries(device.engines ?? {}).map(([name, version]) => visible(`${name} ${version}`));
  const name = html`<${Name} text=${device.device_class} empty="none" />`;
  const rows = [
    ["Class", isEmulated(device) ? html`${name} <${Emulated} />` : name],
    ["As a target", html`<code class="wrap">device:${visible(device.id)}</code>`],
    ["Processor", visible(machineOf(description))],
    ["Stated machine", description.machine && visible(description.machine)],
    ["Caches", cachesOf(description)],
    ["Memory", sizeOf(description.memory_bytes)],
    ["Sandbox", description.sandbox],
    ["Agent", description.agent_version],
    ["Trusted", device.trusted ? "yes" : "no: another device confirms what it verifies"],
    ["Engines", engines.join(", ")],
    ["Driven by", hostOf(description)],
    ["GPUs", adapters.map(({ name, driver }) => visible(`${name} (${driver})`)).join(", ")],
    ["Kinds of code", kinds.map(visible).join(", ")],
    ["Extensions", features.length > 0 && html`<${Extensions} features=${features} />`],
  ];
  return html`<${Facts} rows=${rows} />`;
}

export function Health({ device }) {
  const { health } = device;
  const rows = [
    ["Temperature", temperatureOf(health)],
    ["Clock", clockOf(health)],
    ["Throttled now", health.throttled && visible(health.throttled)],
    ["Throttled", throttlesOf(health)],
    ["Waits", health.waits && visible(health.waits)],
  ].filter(([, value]) => value);
  if (!rows.length) {
    return html`<p class="quiet">Its system tells neither temperature nor clock. Boards and most bare machines do; virtual ones rarely.</p>`;
  }
  return html`
    ${device.state === "offline" && html`<p class="hint">As it was when it was last seen.</p>`}
    <${Facts} rows=${rows} />
  `;
}

function Extensions({ features }) {
  return html`<details>
    <summary>${count(features.length)}</summary>
    <p class="features"><code>${features.map(visible).join(" ")}</code></p>
  </details>`;
}

function cachesOf({ l1_bytes: l1, l2_bytes: l2, l3_bytes: l3 }) {
  const told = [["L1", l1], ["L2", l2], ["L3", l3]].filter(([, size]) => size);
  return told.map(([level, size]) => `${level} ${sizeOf(size)}`).join(", ");
}

/** The processor that drives a GPU. */
function hostOf({ host }) {
  if (!host) return null;
  try {
    return visible(machineOf(JSON.parse(host)));
  } catch {
    return visible(host);  // A name.
  }
}

function throttlesOf({ throttles }) {
  if (throttles === null || throttles === undefined) return null;
  return throttles === 1 ? "once since its system started" : `${count(throttles)} times since its system started`;
}
