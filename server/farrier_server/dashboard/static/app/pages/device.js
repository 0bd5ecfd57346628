// A device: how it stands, what it is, what happened to it.

import { useState } from "preact/hooks";
import { DEVICE_TONES, temperatureOf } from "../lib/devices.js";
import { useFarm } from "../lib/farm.js";
import { count, percent, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { Loaded, Problem } from "../ui/feedback.js";
import { Figure, Figures } from "../ui/figures.js";
import { LiveMark } from "../ui/link.js";
import { PageHead, Section } from "../ui/shell.js";
import { Ago, Name, State } from "../ui/text.js";
import { Health, Machine } from "./devices/facts.js";
import { History } from "./devices/history.js";
import { Load } from "./devices/load.js";
import { Release } from "./devices/quarantine.js";
import { Trouble } from "./devices/trouble.js";

const ASKED_MS = 3000; // heat and load are no events

export function Device({ id, query }) {
  const place = `/v1/devices/${encodeURIComponent(id)}`;
  const resource = useResource(place, { every: ASKED_MS });
  const [error, setError] = useState(null);
  const link = useFarm(resource, { concerns: (event) => event.device === id });
  const isQuarantined = resource.data?.state === "quarantined";
  const title = html`<${Name} text=${id} />`;
  return html`
    <${PageHead} title=${title} tab=${visible(id).slice(0, 100)} above=${html`<a href="/devices">Devices</a>`}>
      <${LiveMark} link=${link} />
      ${isQuarantined && html`<${Release} id=${id} onReleased=${resource.refresh} onError=${setError} />`}
    <//>
    <${Problem} error=${error} />
    <${Loaded} resource=${resource} what="Looking for the device">${shown}<//>
    ${resource.error?.status === 404 && html`<${NotHere} />`}
  `;

  function shown(device) {
    return html`
      <${Trouble} device=${device} />
      <${Summary} device=${device} />
      <div class="columns">
        <${Section} title="Machine"><div class="panel"><${Machine} device=${device} /></div><//>
        <div>
          <${Section} title="Load of the last half hour"><${Load} minutes=${device.throughput ?? []} /><//>
          <${Section} title="Health"><div class="panel"><${Health} device=${device} /></div><//>
        </div>
      </div>
      <${Section} title="History"><${History} place=${place} query=${query} /><//>
    `;
  }
}

function NotHere() {
  return html`<p>A device is known by the name that its agent was given with <code>--name</code>. <a href="/devices">All devices of this farm</a></p>`;
}

function Summary({ device }) {
  const isAway = device.state === "offline";
  const { throttled } = device.health;
  const state = html`<${State} state=${device.state} tone=${DEVICE_TONES[device.state]} />`;
  const temperature = (!isAway && temperatureOf(device.health)) || "–";
  const isHot = Boolean(!isAway && throttled);
  return html`<${Figures} label="The device">
    <${Figure} name="State" value=${state} detail=${html`seen <${Ago} at=${device.seen} />`} />
    <${Figure} name="Load" value=${isAway ? "–" : percent(device.busy)} detail="of the last ten minutes" />
    <${Figure} name="Temperature" value=${temperature} detail=${isHot ? visible(throttled) : ""} tone=${isHot ? "wait" : ""} />
    <${Figure} name="Batches" value=${count(device.measured)} detail="measured" />
    <${Figure} name="Faults" value=${count(device.faults)} detail="of its own" tone=${device.faults ? "wait" : ""} />
  <//>`;
}
