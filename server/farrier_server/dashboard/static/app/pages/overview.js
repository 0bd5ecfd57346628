import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Overview() {
  return html`<${PageHead} title="Overview" />`;
}
