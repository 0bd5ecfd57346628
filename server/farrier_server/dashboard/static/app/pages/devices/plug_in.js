// The commands that make a machine a device of this farm.

import { html } from "../../lib/html.js";
import { Code } from "../../ui/controls.js";

const LOOPBACK = new Set(["127.0.0.1", "localhost", "[::1]"]);
const PORT = 8441; // unless FARRIER_BROKER_PORT says otherwise

/** `broker` is what the API tells of it: `{port, tls}`, or nothing. */
export function PlugIn({ broker }) {
  const host = location.hostname;
  const port = broker?.port ?? PORT;
  const hasTls = broker?.tls ?? location.protocol === "https:";
  const isLocal = LOOPBACK.has(host);
  const server = isLocal ? "~/.farrier/device.token" : `${host}:.farrier/device.token`;
  const lines = [
    "python3 -m venv farrier",
    "farrier/bin/pip install ./rpc_device",
    "farrier/bin/farrier-device \\",
    `    --broker ${host}:${port} \\`,
    ...(hasTls ? ["    --tls-ca farm.pem \\"] : []),
    `    --token-file ${isLocal ? "~/.farrier/device.token" : "device.token"} \\`,
    "    --name board1 --state farrier/state",
  ];
  return html`
    <p>${isLocal ? "On this machine" : html`On the device, with <code>rpc_device</code> of a checkout${hasTls ? ", the farm's certificate" : ""} and <code>${server}</code> copied to it`}:</p>
    <${Code} label="Commands for a device" text=${lines.join("\n")} />
    ${isLocal &&
    html`<p class="hint">This server is reached by the address of this machine alone. For boards on the network start it with a certificate and <code>--host 0.0.0.0</code>, and open this page by the machine's name: the command names it then.</p>`}
    <p class="hint">It shows on this page once it has connected. <code>--machine rpi4</code> states what board it is; without it, it says what its kernel tells.</p>
  `;
}
