// A device: how it stands, what it is, what happened to it.

import { useState } from "preact/hooks";
import { DEVICE_TONES, clockOf, isEmulated, machineOf, sizeOf, temperatureOf } from "../lib/devices.js";
import { useFarm } from "../lib/farm.js";
import { count, percent, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { Code } from "../ui/controls.js";
import { Loaded, Notice, Problem } from "../ui/feedback.js";
import { Facts, Figure, Figures } from "../ui/figures.js";
import { LiveMark } from "../ui/link.js";
import { PageHead, Section } from "../ui/shell.js";
import { Ago, Name, Said, State } from "../ui/text.js";
import { Emulated } from "./devices/class.js";
import { History } from "./devices/history.js";
import { Release, WhyAway } from "./devices/quarantine.js";

const ASKED_MS = 3000; // heat and load are no events

export function Device({ id, query }) {
  const place = `/v1/devices/${encodeURIComponent(id)}`;
  const resource = useResource(place, { every: ASKED_MS });
  const [error, setError] = useState(null);
  const link = useFarm(resource, { concerns: (event) => event.device === id });
  const device = resource.data;
  return html`
    <${PageHead} title=${html`<${Name} text=${id} />`} tab=${visible(id).slice(0, 100)} above=${html`<a href="/devices">Devices</a>`}>
      <${LiveMark} link=${link} />
      ${device?.state === "quarantined" && html`<${Release} id=${id} onReleased=${resource.refresh} onError=${setError} />`}
    <//>
    <${Problem} error=${error} />
    <${Loaded} resource=${resource} what="Looking for the device">${(found) => html`
      <${Trouble} device=${found} />
      <${Summary} device=${found} />
      <div class="columns">
        <${Section} title="Machine"><div class="panel"><${Machine} device=${found} /></div><//>
        <${Section} title="Health"><div class="panel"><${Health} device=${found} /></div><//>
      </div>
      <${Section} title="History"><${History} place=${place} query=${query} /><//>
    `}<//>
    ${resource.error?.status === 404 && html`<p>Names are those that their agents gave with <code>--name</code>. <a href="/devices">All devices of this farm</a></p>`}
  `;
}

/** What is wrong with it, and the way out. */
function Trouble({ device }) {
  if (device.state === "quarantined") {
    return html`<${Notice} tone="bad">
      <p><strong>In quarantine:</strong> <${WhyAway} id=${device.id} isWhole=${true} /></p>
      <p>After too many faults of its own in a row it gets no work. See that nothing else runs on it, that it is cool and that its disk has room; then release it.</p>
    <//>`;
  }
  if (device.state === "unfit") {
    return html`<${Notice} tone="bad"><p><strong>It gets no work:</strong> <${Said} text=${device.unfit} /></p><p>It gets work again when its agent starts anew.</p><//>`;
  }
  if (device.state === "offline") return html`<${Away} device=${device} />`;
  if (device.health.waits) return html`<${Notice} tone="wait"><p><strong>It takes no batch now:</strong> <${Said} text=${device.health.waits} /></p><//>`;
  return null;
}

function Away({ device }) {
  const command = `farrier-device --broker ${location.hostname}:8441 --token-file device.token \\\n    --name ${device.id} --state farrier/state`;
  return html`<${Notice} tone="wait">
    <p><strong>Offline:</strong> the last heartbeat came <${Ago} at=${device.seen} />. What it measured has gone to another device of its class, if there is one.</p>
    <p>It comes back by itself when its agent runs and reaches the broker; its history and its records are kept. Where the agent has ended, start it again:</p>
    ${/^[\w.-]+$/.test(device.id) && html`<${Code} label="Command that starts the agent" text=${command} />`}
  <//>`;
}

function Summary({ device }) {
  const isAway = device.state === "offline";
  return html`<${Figures} label="The device">
    <${Figure} name="State" value=${html`<${State} state=${device.state} tone=${DEVICE_TONES[device.state]} />`} detail=${html`seen <${Ago} at=${device.seen} />`} />
    <${Figure} name="Load" value=${isAway ? "–" : percent(device.busy)} detail="of the last minutes" />
    <${Figure} name="Temperature" value=${(!isAway && temperatureOf(device.health)) || "–"} detail=${device.health.throttled ? visible(device.health.throttled) : ""} tone=${!isAway && device.health.throttled ? "wait" : ""} />
    <${Figure} name="Batches" value=${count(device.measured)} detail="measured" />
    <${Figure} name="Faults" value=${count(device.faults)} detail="of its own" tone=${device.faults ? "wait" : ""} />
  <//>`;
}

function Machine({ device }) {
  const { description } = device;
  const { features = [] } = description;
  const engines = Object.entries(device.engines ?? {});
  return html`<${Facts}
    rows=${[
      ["Class", html`<${Name} text=${device.device_class} empty="none" />${isEmulated(device) && html` <${Emulated} />`}`],
      ["As a target", html`<code class="wrap">device:${visible(device.id)}</code>`],
      ["Processor", visible(machineOf(description))],
      ["Stated machine", description.machine && visible(description.machine)],
      ["Caches", [["L1", description.l1_bytes], ["L2", description.l2_bytes], ["L3", description.l3_bytes]].filter(([, size]) => size).map(([level, size]) => `${level} ${sizeOf(size)}`).join(", ")],
      ["Memory", sizeOf(description.memory_bytes)],
      ["Sandbox", description.sandbox],
      ["Agent", description.agent_version],
      ["Engines", engines.length > 0 && engines.map(([name, version]) => visible(`${name} ${version}`)).join(", ")],
      ["Extensions", features.length > 0 && html`<details><summary>${count(features.length)}</summary><p class="features"><code>${features.map(visible).join(" ")}</code></p></details>`],
    ]}
  />`;
}

function Health({ device }) {
  const { health } = device;
  const rows = [
    ["Temperature", temperatureOf(health)],
    ["Clock", clockOf(health)],
    ["Throttled now", health.throttled && visible(health.throttled)],
    ["Throttled", health.throttles !== null && health.throttles !== undefined && `${count(health.throttles)} times since its system started`],
    ["Waits", health.waits && visible(health.waits)],
  ];
  const isKnown = rows.some(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return html`
    ${device.state === "offline" && isKnown && html`<p class="hint">As it was when it was last seen.</p>`}
    ${isKnown ? html`<${Facts} rows=${rows} />` : html`<p class="quiet">Its system tells neither temperature nor clock. Boards and most bare machines do; virtual ones rarely.</p>`}
  `;
}
