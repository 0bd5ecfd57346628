// What to do where there is nothing yet: three steps to a compiled model.

import { isAtLeast } from "../../lib/api.js";
import { count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Code } from "../../ui/controls.js";
import { Section } from "../../ui/shell.js";
import { PlugIn } from "../devices/plug_in.js";

export function FirstSteps({ data, session }) {
  const { connected } = data.devices;
  const mayPlugIn = isAtLeast("operator");
  return html`<${Section} title="Three steps to a tuned model">
    <ol class="steps">
      <li class="step ${connected ? "step-done" : ""}">
        <h3>Plug a device in</h3>
        ${connected
          ? html`
              <p>Done: <a href="/devices">${connected === 1 ? "one device is" : `${count(connected)} devices are`} connected</a>.</p>
              ${mayPlugIn && html`<details><summary>Commands for another device</summary><${PlugIn} /></details>`}
            `
          : html`
              <p>A device measures what is compiled for its kind. Any 64-bit Linux with Python can be one, also a Raspberry Pi.</p>
              ${mayPlugIn ? html`<${PlugIn} />` : html`<p>An operator of the farm connects devices.</p>`}
            `}
      </li>
      <li class="step">
        <h3>Upload a model</h3>
        <p>
          Drop an ONNX file, look at its inputs and operators, choose a target and a budget. The form shows the command and
          the Python that do the same.
        </p>
        <p><a class="button button-main" href="/submit">Upload a model</a></p>
      </li>
      <li class="step">
        <h3>Use the command line</h3>
        <p>On any machine, with the wheel. The token is the one that you logged in with, that of <code>${session.owner}</code>.</p>
        <${Code} label="Commands for the command line" text=${commandLine(session)} />
      </li>
    </ol>
  <//>`;
}

function commandLine({ version }) {
  return [
    "pip install \\",
    `    'farrier-${version}-py3-none-any.whl[compiler]'`,
    `export FARRIER_SERVER=${location.origin}`,
    "export FARRIER_TOKEN=TOKEN",
    "farrier submit model.onnx \\",
    "    --target host --budget 60s",
    "farrier watch JOB",
    "farrier fetch JOB -o model.farrier",
  ].join("\n");
}
