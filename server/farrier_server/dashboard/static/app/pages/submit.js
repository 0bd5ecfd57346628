import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Submit() {
  return html`<${PageHead} title="Submit" />`;
}
