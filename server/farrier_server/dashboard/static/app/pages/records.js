import { html } from "../lib/html.js";
import { PageHead } from "../ui/shell.js";

export function Records() {
  return html`<${PageHead} title="Records" />`;
}
