import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Devices() {
  return html`<${PageHead} title="Devices" />`;
}
