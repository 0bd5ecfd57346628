// What is around every page: its name, the ways to the others, who is logged in.

import { useEffect } from "preact/hooks";
import { isAtLeast } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useTheme } from "../lib/theme.js";
import { Name } from "./text.js";

const PLACES = [
  ["/", "Overview"],
  ["/jobs", "Jobs"],
  ["/submit", "Submit"],
  ["/devices", "Devices"],
  ["/explorations", "Explorations"],
  ["/records", "Records"],
  ["/users", "Users", "operator"],
];

/** `session` is null before the login; `path` is of the page that is shown. */
export function Shell({ session, path, onLogOut, children }) {
  return html`
    <a class="skip" href="#main">Skip to the page</a>
    <header class="top">
      <a class="brand" href="/"><${Mark} />Farrier</a>
      ${session && html`<nav aria-label="Pages"><ul>${PLACES.filter(([, , least]) => !least || isAtLeast(least)).map(([place, name]) => html`<${Place} key=${place} ...${{ place, name, path }} />`)}</ul></nav>`}
      <div class="top-end">
        <${ThemeButton} />
        ${session && html`<span class="user" title=${rightsOf(session)}><${Name} text=${session.owner} /></span><button type="button" class="button-plain" onClick=${onLogOut}>Log out</button>`}
      </div>
    </header>
    <main id="main" tabindex="-1">${children}</main>
    <footer>${session && html`Farrier ${session.version} · `}<a href="/docs">REST API</a></footer>
  `;
}

function rightsOf({ role, group }) {
  return group ? `${role}, group ${group}` : role;
}

/** The head of a page, which is its title in the browser, too: `tab` where `title` is no text. `children` are actions. */
export function PageHead({ title, tab = "", above, children }) {
  useTitle(typeof title === "string" ? title : tab);
  return html`<div class="page-head">
    <div class="page-title">${above && html`<p class="above">${above}</p>`}<h1>${title}</h1></div>
    ${children && html`<div class="actions">${children}</div>`}
  </div>`;
}

export function useTitle(title) {
  useEffect(() => {
    document.title = title ? `${title} · Farrier` : "Farrier";
  }, [title]);
}

/** A part of a page under a heading of its own. */
export function Section({ title, aside, children }) {
  return html`<section class="section"><div class="section-head"><h2>${title}</h2>${aside}</div>${children}</section>`;
}

function Place({ place, name, path }) {
  const isHere = place === "/" ? path === "/" : path === place || path.startsWith(`${place}/`);
  return html`<li><a href=${place} aria-current=${isHere ? "page" : undefined}>${name}</a></li>`;
}

function ThemeButton() {
  const [theme, next] = useTheme();
  return html`<button type="button" class="button-plain" onClick=${next} aria-label=${`Colours: ${theme}. Change`} title=${`Colours: ${theme}`}>${{ system: "◐", light: "☀", dark: "☾" }[theme]}</button>`;
}

function Mark() {
  return html`<svg class="mark" viewBox="0 0 24 24" aria-hidden="true"><path d="M5.5 2.5C1.5 8.5 2 16.5 7 21.5l3-2.5C6.5 15 6.5 9.5 9 5h6c2.5 4.5 2.5 10-1 14l3 2.5c5-5 5.5-13 1.5-19z" /></svg>`;
}
