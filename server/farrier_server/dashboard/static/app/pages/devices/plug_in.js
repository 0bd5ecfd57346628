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

/** The command that starts an agent. */
export function startCommand({ name, broker, path = "" }) {
  return [
    `${path}farrier-device \\`,
    `    --broker ${location.hostname}:${broker.port} \\`,
    ...(broker.tls ? ["    --tls-ca farm.pem \\"] : []),
    `    --token-file ${isLocal() ? "~/.farrier/device.token" : "device.token"} \\`,
    `    --name ${name} --state farrier/state`,
  ].join("\n");
}

export function PlugIn() {
  const broker = useBroker();
  const lines = [
    "python3 -m venv farrier",
    "farrier/bin/pip install ./rpc_device",
    startCommand({ name: "board1", broker, path: "farrier/bin/" }),
  ];
  return html`
    ${isLocal() ? html`<p>On this machine, in a checkout:</p>` : html`<${Elsewhere} hasTls=${broker.tls} />`}
    <${Code} label="Commands for a device" text=${lines.join("\n")} />
    ${isLocal() && html`<${AlsoBoards} />`}
    <p class="hint">
      It shows on this page once it has connected. <code>--machine rpi4</code> states what board it is; without it, the
      agent says what the kernel tells.
    </p>
  `;
}

function Elsewhere({ hasTls }) {
  return html`<p>
    On the device, with <code>rpc_device</code> of a checkout${hasTls && html`, <code>farm.pem</code> (the farm's certificate)`} and
    ${" "}<code>${location.hostname}:.farrier/device.token</code> copied to it:
  </p>`;
}

function AlsoBoards() {
  return html`<p class="hint">
    This page was opened by an address that other machines do not reach. For boards on the network
    ${" "}<code>farrier serve</code> and <code>farrier broker</code> take <code>--host 0.0.0.0</code> and a certificate; opened by the
    machine's name, this page names it in the command.
  </p>`;
}
