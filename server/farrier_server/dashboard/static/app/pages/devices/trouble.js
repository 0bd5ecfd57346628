// What keeps a device from its work, and the way out.

import { html } from "../../lib/html.js";
import { Code } from "../../ui/controls.js";
import { Notice } from "../../ui/feedback.js";
import { Ago, Said } from "../../ui/text.js";
import { startCommand, useBroker } from "./plug_in.js";
import { WhyAway } from "./quarantine.js";

const PLAIN = /^[\w.-]+$/; // a name that a shell takes as it is

const STOPPED = {
  paused: ["wait", "It gets no new batch until an operator resumes it."],
  drained: ["wait", "It gets no batch until an operator resumes it, or its agent starts anew."],
  revoked: ["bad", "It is turned away until it enrols again."],
};

/** Nothing where it measures, or could. */
export function Trouble({ device }) {
  if (device.state === "quarantined") return html`<${Quarantined} id=${device.id} />`;
  if (device.state === "unfit") return html`<${Unfit} why=${device.unfit} />`;
  if (STOPPED[device.state]) return html`<${Stopped} state=${device.state} />`;
  if (device.state === "offline") return html`<${Offline} device=${device} />`;
  if (device.health.waits) return html`<${Waits} why=${device.health.waits} />`;
  return null;
}

function Quarantined({ id }) {
  return html`<${Notice} tone="bad">
    <p><strong>In quarantine:</strong> <${WhyAway} id=${id} isWhole=${true} /></p>
    <p>
      After too many faults of its own in a row a device gets no work. See that nothing else runs on it, that it is
      cool and that its disk has room; then release it.
    </p>
  <//>`;
}

function Stopped({ state }) {
  const [tone, words] = STOPPED[state];
  return html`<${Notice} tone=${tone}><p><strong>${state[0].toUpperCase()}${state.slice(1)}:</strong> ${words}</p><//>`;
}

function Unfit({ why }) {
  return html`<${Notice} tone="bad">
    <p><strong>It gets no work:</strong> <${Said} text=${why} /></p>
    <p>It gets work again when its agent starts anew.</p>
  <//>`;
}

function Offline({ device }) {
  const broker = useBroker();
  const isPlain = PLAIN.test(device.id);
  const command = startCommand({ broker, unenrolled: device.enrolled ? "" : device.id });
  return html`<${Notice} tone="wait">
    <p>
      <strong>Offline:</strong> the last heartbeat came <${Ago} at=${device.seen} />. A batch that it had has gone to
      another device of its class, or waits for one.
    </p>
    <p>
      It comes back by itself when its agent runs and reaches the broker; its history and its records are kept. Where
      the agent has ended, start it again:
    </p>
    ${isPlain && html`<${Code} label="Command that starts the agent" text=${command} />`}
  <//>`;
}

function Waits({ why }) {
  return html`<${Notice} tone="wait"><p><strong>It takes no batch now:</strong> <${Said} text=${why} /></p><//>`;
}
