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
import { News, useNews } from "./overview/news.js";
import { Throughput, trialsAMinute } from "./overview/throughput.js";

const ASKED_MS = 3000; // progress is no event of the farm

const RUN = "/jobs?state=running";
const ENDED = "/jobs?sort=finished&descending=true";

export function Overview({ session }) {
  const resource = useResource("/v1/overview", { every: ASKED_MS });
  const [note, current] = useJobStates(resource.data);
  const [news, told] = useNews(resource.data?.news ?? []);
  const link = useFarm(resource, {
    isShared: true,
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
        <${Section} title="Throughput of the last hour"><${Throughput} minutes=${data.throughput} now=${data.time} /><//>
        <${Section} title="Warnings and devices"><${News} news=${news} /><//>
      </div>
      ${!isNew &&
      html`
        <${Section} title="Running" aside=${html`<a href=${RUN}>All that run</a>`}>
          <${Running} jobs=${data.running.map(current)} />
        <//>
        <${Section} title="Finished last" aside=${html`<a href=${ENDED}>All jobs</a>`}><${Finished} jobs=${data.finished} /><//>
      `}
    `;
  }
}

function Summary({ data }) {
  const { jobs, devices } = data;
  const { rate, total } = trialsAMinute(data.throughput, data.time);
  const finished = data.throughput.reduce((sum, minute) => sum + minute.finished, 0);
  const ended = jobs.succeeded + jobs.failed + jobs.cancelled + jobs.dead;
  const isWaiting = jobs.queued > 0 && !devices.connected;
  return html`<${Figures} label="The farm">
    <${Figure} name="Running" value=${linked(RUN, jobs.running)} detail=${jobs.running ? "on workers" : "nothing runs"} />
    <${Figure} name="Queued" value=${linked("/jobs?state=queued", jobs.queued)} detail=${queueDetail(jobs, devices)} tone=${isWaiting ? "wait" : ""} />
    <${Figure} name="Finished" value=${linked(ENDED, ended)} detail=${`${count(finished)} in the last hour`} />
    <${Figure} name="Devices connected" value=${linked("/devices", devices.connected)} detail=${deviceDetail(devices)} tone=${devices.connected ? "" : "wait"} />
    <${Figure}
      name="In quarantine"
      value=${linked("/devices?state=quarantined", devices.quarantined)}
      detail=${devices.quarantined ? "gets no work" : "none"}
      tone=${devices.quarantined ? "bad" : ""}
    />
    <${Figure} name="Trials a minute" value=${count(rate)} detail=${`${count(total)} in the last hour`} />
    <${Figure} name="Tuning records" value=${linked("/records", data.records.count)} detail="kept for next time" />
  <//>`;
}

const linked = (place, number) => html`<a href=${place}>${count(number)}</a>`;

function deviceDetail({ connected, busy, quarantined, emulated }) {
  const free = Math.max(0, connected - busy - quarantined);
  return `${count(busy)} measuring · ${count(free)} free${emulated ? ` · ${count(emulated)} emulated` : ""}`;
}

function queueDetail(jobs, devices) {
  if (!jobs.queued) return "nothing waits";
  return devices.connected ? "wait for their turn" : "no device is connected";
}
