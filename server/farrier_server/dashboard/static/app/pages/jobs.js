import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Jobs() {
  return html`<${PageHead} title="Jobs" />`;
}
