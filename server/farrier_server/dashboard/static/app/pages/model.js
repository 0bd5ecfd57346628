import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Model() {
  return html`<${PageHead} title="Model" />`;
}
