import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Device() {
  return html`<${PageHead} title="Device" />`;
}
