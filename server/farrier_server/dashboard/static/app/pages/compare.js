import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Compare() {
  return html`<${PageHead} title="Compare" />`;
}
