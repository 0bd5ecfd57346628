// Things to press, to choose from and to fill in.

import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";

/** A button that waits for what it started, and shows why it failed by `onError`. */
export function Action({ children, run, onError = () => {}, tone = "", disabled = false, title }) {
  const [isBusy, setBusy] = useState(false);
  const press = async () => {
    setBusy(true);
    try {
      await run();
      onError(null);
    } catch (error) {
      onError(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class=${tone && `button-${tone}`} disabled=${disabled || isBusy} title=${title} onClick=${press}>${children}</button>`;
}

/** A question before what cannot be undone. `onAnswer(true)` is yes. */
export function Confirm({ title, children, yes, no = "Keep it", onAnswer }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const answer = (isYes) => (event) => {
    event.preventDefault();
    dialog.current.close();
    onAnswer(isYes);
  };
  return html`<dialog ref=${dialog} aria-labelledby="confirm-title" onCancel=${answer(false)}>
    <h2 id="confirm-title">${title}</h2>
    ${children}
    <p class="actions"><button type="button" class="button-bad" onClick=${answer(true)}>${yes}</button><button type="button" onClick=${answer(false)}>${no}</button></p>
  </dialog>`;
}

/** A labelled field. `children` is the control, with the id `name`. */
export function Field({ label, name, hint, error, children }) {
  return html`<div class="field">
    <label for=${name}>${label}</label>
    ${children}
    ${hint && html`<p class="hint" id=${`${name}-hint`}>${hint}</p>`}
    ${error && html`<p class="field-error" id=${`${name}-error`} role="alert">${error}</p>`}
  </div>`;
}

/** A search that tells its text when the reader has stopped typing. */
export function Search({ label, value, onChange, placeholder }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const typed = (event) => {
    setText(event.target.value);
    clearTimeout(timer.current);
    const given = event.target.value;
    timer.current = setTimeout(() => onChange(given), 300);
  };
  return html`<input type="search" aria-label=${label} value=${text} placeholder=${placeholder ?? label} maxlength="200" onInput=${typed} />`;
}

/** A choice. `options` are `[value, label]`. */
export function Choice({ label, value, options, onChange, id }) {
  return html`<select id=${id} aria-label=${id ? undefined : label} value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([each, text]) => html`<option key=${each} value=${each}>${text}</option>`)}
  </select>`;
}

/** One of several views of the same thing. `tabs` are `[id, label]`. */
export function Tabs({ label, tabs, chosen, onChoose }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const ids = tabs.map(([id]) => id);
    const next = ids[(ids.indexOf(chosen) + step + ids.length) % ids.length];
    onChoose(next);
    event.currentTarget.querySelector(`[data-tab="${next}"]`)?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map(
      ([id, text]) => html`<button key=${id} type="button" role="tab" data-tab=${id} aria-selected=${id === chosen} tabindex=${id === chosen ? 0 : -1} onClick=${() => onChoose(id)}>${text}</button>`,
    )}
  </div>`;
}

/** Text to read and to copy: code, a command line. */
export function Code({ text, label, isTall = false }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      return; // a browser that keeps its clipboard; the text can be marked
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return html`<div class="code">
    <button type="button" class="copy" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>
    <pre tabindex="0" role="region" aria-label=${label} class=${isTall ? "tall" : ""}><code>${text}</code></pre>
  </div>`;
}
