// What the farm does, at a glance.

import { count } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useFarm, useJobStates } from "../lib/farm.js";
import { useResource } from "../lib/live.js";
import { Loaded } from "../ui/feedback.js";
import { Figure, Figures } from "../ui/figures.js";
import { LiveMark } from "../ui/link.js";
import { PageHead, Section } from "../ui/shell.js";
import { FirstSteps } from "./overview/first_steps.js";
import { Finished, Running } from "./overview/jobs.js";
import { News, lastNews, useNews } from "./overview/news.js";
import { Throughput, trialsAMinute } from "./overview/throughput.js";

const ASKED_MS = 3000; // progress is no event of the farm

export function Overview({ session }) {
  const resource = useResource("/v1/overview", { every: ASKED_MS });
  const [note, current] = useJobStates(resource.data);
  const [news, told] = useNews();
  const link = useFarm(resource, {
    after: lastNews(),
    onEvents: (events) => {
      note(events);
      told(events);
    },
  });
  return html`
    <${PageHead} title="Overview">
      <${LiveMark} link=${link} />
      <a class="button button-main" href="/submit">Submit a model</a>
    <//>
    <${Loaded} resource=${resource} what="Looking at the farm">${(data) => shown(data)}<//>
  `;

  function shown(data) {
    const isNew = Object.values(data.jobs).every((number) => number === 0);
    return html`
      <${Summary} data=${data} />
      ${isNew && html`<${FirstSteps} data=${data} session=${session} />`}
      <div class="columns">
        <${Section} title="Throughput of the last hour"><${Throughput} minutes=${data.throughput} /><//>
        <${Section} title="Warnings and devices"><${News} news=${news} /><//>
      </div>
      ${!isNew &&
      html`
        <${Section} title="Running" aside=${html`<a href="/jobs?state=running">All that run</a>`}><${Running} jobs=${data.running.map(current)} /><//>
        <${Section} title="Finished last" aside=${html`<a href="/jobs?sort=finished&descending=true">All jobs</a>`}><${Finished} jobs=${data.finished} /><//>
      `}
    `;
  }
}

function Summary({ data }) {
  const { jobs, devices } = data;
  const free = Math.max(0, devices.connected - devices.busy - devices.quarantined);
  const { rate, total } = trialsAMinute(data.throughput);
  const finished = data.throughput.reduce((sum, minute) => sum + minute.finished, 0);
  const ended = jobs.succeeded + jobs.failed + jobs.cancelled + jobs.dead;
  const emulated = devices.emulated ? ` · ${count(devices.emulated)} emulated` : "";
  return html`<${Figures} label="The farm">
    <${Figure} name="Running" value=${html`<a href="/jobs?state=running">${count(jobs.running)}</a>`} detail=${jobs.running ? "on workers" : "workers are free"} />
    <${Figure} name="Queued" value=${html`<a href="/jobs?state=queued">${count(jobs.queued)}</a>`} detail=${queueDetail(jobs, devices)} tone=${jobs.queued && !devices.connected ? "wait" : ""} />
    <${Figure} name="Finished" value=${html`<a href="/jobs?sort=finished&descending=true">${count(ended)}</a>`} detail=${`${count(finished)} in the last hour`} />
    <${Figure} name="Devices connected" value=${html`<a href="/devices">${count(devices.connected)}</a>`} detail=${`${count(devices.busy)} measuring · ${count(free)} free${emulated}`} tone=${devices.connected ? "" : "wait"} />
    <${Figure} name="In quarantine" value=${html`<a href="/devices?state=quarantined">${count(devices.quarantined)}</a>`} detail=${devices.quarantined ? "gets no work" : "none"} tone=${devices.quarantined ? "bad" : ""} />
    <${Figure} name="Trials a minute" value=${count(rate)} detail=${`${count(total)} in the last hour`} />
    <${Figure} name="Tuning records" value=${html`<a href="/records">${count(data.records?.count)}</a>`} detail="kept for next time" />
  <//>`;
}

function queueDetail(jobs, devices) {
  if (!jobs.queued) return "nothing waits";
  return devices.connected ? "wait for their turn" : "no device is connected";
}
