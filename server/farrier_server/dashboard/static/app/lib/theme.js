// Light, dark, or as the system is.

import { useState } from "preact/hooks";

const KEY = "farrier-theme";
const THEMES = ["system", "light", "dark"];

/** Applies the theme that the reader has chosen before. */
export function restoreTheme() {
  apply(stored());
}

/** `[theme, next]`: the theme, and what goes on to the next one. */
export function useTheme() {
  const [theme, setTheme] = useState(stored);
  const next = () => {
    const chosen = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem(KEY, chosen);
    apply(chosen);
    setTheme(chosen);
  };
  return [theme, next];
}

/** Calls `handler` when colours change; returns a function that ends that. */
export function onThemeChange(handler) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(handler);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  system.addEventListener("change", handler);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", handler);
  };
}

/** The colour that a custom property of the style sheet, as `--series-1`, has in the theme of the page. */
export function colour(name) {
  probe.style.color = `var(${name})`;
  if (!probe.isConnected) document.documentElement.append(probe);
  return getComputedStyle(probe).color;
}

const probe = document.createElement("span"); // computes colours and shows nothing
probe.hidden = true;

function stored() {
  const theme = localStorage.getItem(KEY);
  return THEMES.includes(theme) ? theme : "system";
}

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
