// The machines that measure, by what they are.

import { DEVICE_STATES } from "../lib/devices.js";
import { isAtLeast } from "../lib/api.js";
import { useFarm } from "../lib/farm.js";
import { count } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { setQuery } from "../lib/router.js";
import { Choice, Search } from "../ui/controls.js";
import { Empty, Loaded } from "../ui/feedback.js";
import { Figure, Figures } from "../ui/figures.js";
import { LiveMark } from "../ui/link.js";
import { PageHead, Section } from "../ui/shell.js";
import { DeviceClass } from "./devices/class.js";
import { PlugIn } from "./devices/plug_in.js";

const ASKED_MS = 5000; // heat and load are no events
const PAGE = 200;
const CHOICES = [["", "Any state"], ...DEVICE_STATES.map((state) => [state, state])];

export function Devices({ query }) {
  const after = query.get("after") ?? "";
  const resource = useResource(`/v1/devices?${new URLSearchParams({ limit: PAGE, ...(after && { after }) })}`, { every: ASKED_MS });
  const classes = useResource("/v1/classes", { every: ASKED_MS });
  const link = useFarm(resource, { concerns: (event) => event.kind === "device" });
  return html`
    <${PageHead} title="Devices"><${LiveMark} link=${link} /><//>
    <${Loaded} resource=${resource} what="Looking for devices">${(data) => list(data)}<//>
  `;

  function list({ devices, next }) {
    if (!devices.length && !after) return html`<${NoDevice} />`;
    const shown = devices.filter((device) => matches(device, query));
    return html`
      <${Summary} devices=${devices} isPart=${Boolean(after || next)} />
      <${Filters} query=${query} isPart=${Boolean(after || next)} />
      ${!shown.length && html`<${NoneMatch} />`}
      ${groups(shown, classes.data?.classes ?? []).map(
        (group) => html`<${DeviceClass} key=${group.id} group=${group} refresh=${resource.refresh} />`,
      )}
      <${Pages} after=${after} next=${next} />
      ${isAtLeast("operator") && html`<${Section} title="Another device">
        <details class="panel"><summary>How a machine becomes a device of this farm</summary><${PlugIn} /></details>
      <//>`}
    `;
  }
}

function Summary({ devices, isPart }) {
  const connected = devices.filter((device) => device.state !== "offline");
  const of = (state) => devices.filter((device) => device.state === state).length;
  const hot = connected.filter((device) => device.health.throttled || device.health.waits).length;
  const bad = of("quarantined") + of("unfit");
  const known = `of ${count(devices.length)} ${isPart ? "on this page" : "known"}`;
  const why = `${count(of("quarantined"))} in quarantine, ${count(of("unfit"))} unfit`;
  return html`<${Figures} label="Devices">
    <${Figure} name="Connected" value=${count(connected.length)} detail=${known} tone=${connected.length ? "" : "wait"} />
    <${Figure} name="Measuring" value=${count(of("busy"))} detail=${`${count(of("idle"))} idle`} />
    <${Figure} name="Need a hand" value=${count(bad)} detail=${why} tone=${bad ? "bad" : ""} />
    <${Figure} name="Hot or throttled" value=${count(hot)} detail="as far as they tell" tone=${hot ? "wait" : ""} />
    <${Figure} name="Offline" value=${count(of("offline"))} detail="back by themselves" />
  <//>`;
}

function Filters({ query, isPart }) {
  const filter = (name) => (value) => setQuery({ [name]: value });
  const label = `Search ${isPart ? "this page " : ""}by name, class or processor`;
  const isFiltered = query.get("q") || query.get("state");
  return html`<div class="filters" role="search" aria-label="Devices">
    <${Search} label=${label} value=${query.get("q") ?? ""} onChange=${filter("q")} />
    <${Choice} label="State" value=${query.get("state") ?? ""} options=${CHOICES} onChange=${filter("state")} />
    ${isFiltered && html`<button type="button" onClick=${clear}>Clear</button>`}
  </div>`;
}

const clear = () => setQuery({ q: null, state: null });

function NoDevice() {
  return html`<${Empty} title="No device has connected yet"><p>Jobs that tune or verify need one of their target's kind.</p><//>
    ${isAtLeast("operator")
      ? html`<${Section} title="How a machine becomes a device"><div class="panel"><${PlugIn} /></div><//>`
      : html`<p>An operator of the farm connects devices.</p>`}`;
}

function NoneMatch() {
  return html`<${Empty} title="No device matches"><p><button type="button" onClick=${clear}>Show all devices</button></p><//>`;
}

function Pages({ after, next }) {
  if (!after && !next) return null;
  const to = (place) => () => setQuery({ after: place }, { replace: false });
  return html`<nav class="pages" aria-label="Pages of devices">
    <button type="button" disabled=${!after} onClick=${to(null)}>First page</button>
    <button type="button" disabled=${!after} onClick=${() => history.back()}>Back</button>
    <button type="button" disabled=${!next} onClick=${to(next)}>Next page</button>
  </nav>`;
}

function matches(device, query) {
  const [text, state] = [(query.get("q") ?? "").toLowerCase(), query.get("state")];
  const said = `${device.id}\n${device.device_class}\n${device.description.cpu}`.toLowerCase();
  return (!state || device.state === state) && said.includes(text);
}

/** The classes of some devices, `{id, known, devices}`, those with connected ones first. */
function groups(devices, classes) {
  const found = new Map();
  for (const device of devices) {
    const id = device.device_class;
    if (!found.has(id)) found.set(id, { id, known: classes.find((one) => one.id === id) ?? null, devices: [] });
    found.get(id).devices.push(device);
  }
  const weight = (group) => group.devices.filter((device) => device.state !== "offline").length;
  return [...found.values()].sort((one, other) => weight(other) - weight(one) || (one.id < other.id ? -1 : 1));
}
