// The commands that make a machine a device of this farm.

import { html } from "../../lib/html.js";
import { useResource } from "../../lib/live.js";
import { Code } from "../../ui/controls.js";

const LOOPBACK = new Set(["127.0.0.1", "localhost", "[::1]"]);
const PORT = 8441; // unless FARRIER_BROKER_PORT says otherwise

const isLocal = () => LOOPBACK.has(location.hostname);

/** What the API tells of the broker, `{port, tls}`; as it usually is until there is an answer. */
export function useBroker() {
  const { data } = useResource("/v1/overview");
  return data?.broker ?? { port: PORT, tls: location.protocol === "https:" };
}

/**
 * The command that starts the agent of a device, which has its secret in its state folder: of one that `isNew`, or of
 * one without a secret of its own, whose name is `unenrolled`.
 */
export function startCommand({ broker, path = "", isNew = false, unenrolled = "" }) {
  return [
    `${isNew ? "FARRIER_ENROL=TOKEN " : ""}${path}farrier-device \\`,
    `    --broker ${location.hostname}:${broker.port} \\`,
    ...(broker.tls ? ["    --tls-ca farm.pem \\"] : []),
    ...(unenrolled ? [`    --token-file device.token --name ${unenrolled} \\`] : []),
    "    --state farrier/state",
  ].join("\n");
}

export function PlugIn() {
  const broker = useBroker();
  const lines = [
    "python3 -m venv farrier",
    "farrier/bin/pip install ./rpc_device",
    startCommand({ broker, path: "farrier/bin/", isNew: true }),
  ];
  return html`
    <p>An operator makes a token, which counts once and for an hour:</p>
    <${Code} label="Command for an operator" text="farrier devices add board1" />
    ${isLocal() ? html`<p>On this machine, in a checkout:</p>` : html`<${Elsewhere} hasTls=${broker.tls} />`}
    <${Code} label="Commands for a device" text=${lines.join("\n")} />
    ${isLocal() && html`<${AlsoBoards} />`}
    <p class="hint">
      It shows on this page once it has connected, and starts without the token from then on. <code>--machine rpi4</code> states what board it is; without it, the
      agent says what the kernel tells.
    </p>
  `;
}

function Elsewhere({ hasTls }) {
  return html`<p>
    On the device, with <code>rpc_device</code> of a checkout${hasTls && html` and <code>farm.pem</code> (the farm's certificate)`}
    ${" "}copied to it:
  </p>`;
}

function AlsoBoards() {
  return html`<p class="hint">
    This page was opened by an address that other machines do not reach. For boards on the network
    ${" "}<code>farrier serve</code> and <code>farrier broker</code> take <code>--host 0.0.0.0</code> and a certificate; opened by the
    machine's name, this page names it in the command.
  </p>`;
}
