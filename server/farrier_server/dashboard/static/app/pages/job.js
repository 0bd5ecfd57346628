import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Job() {
  return html`<${PageHead} title="Job" />`;
}
