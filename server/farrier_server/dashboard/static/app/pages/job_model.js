import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function JobModel() {
  return html`<${PageHead} title="Model" />`;
}
