// A row of figures, each with its name: what a reader sees first.

import { html } from "../lib/html.js";

export function Figures({ children, label = "Figures" }) {
  return html`<dl class="figures" aria-label=${label}>${children}</dl>`;
}

/** `tone` is good, bad, wait or empty; `detail` stands below in small type. */
export function Figure({ name, value, detail, tone = "" }) {
  return html`<div class="figure ${tone && `figure-${tone}`}">
    <dt>${name}</dt>
    <dd><span class="figure-value">${value}</span>${detail && html`<span class="figure-detail">${detail}</span>`}</dd>
  </div>`;
}

/** Names and values, one below the other. `rows` are `[name, value]`; those without a value are left out. */
export function Facts({ rows }) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return html`<dl class="facts">${known.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
