// The way in: a token opens a session.

import { useState } from "preact/hooks";
import { logIn } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Field } from "../ui/controls.js";
import { Notice, Problem } from "../ui/feedback.js";
import { PageHead } from "../ui/shell.js";

/** `reason` is the ApiError that ended the session before, or null; `onEnter(session)` goes on. */
export function Login({ reason, onEnter }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      onEnter(await logIn(token.trim()));
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<div class="login">
    <${PageHead} title="Log in" />
    ${reason && !error && html`<${Notice} tone="wait"><p>${reason.detail} Log in, and the page goes on where it was.</p><//>`}
    <${Problem} error=${error} />
    <form onSubmit=${submit}>
      <${Field} label="Token" name="token" hint=${html`The installation's own is in <code>user.token</code> in its home; <code>farrier tokens add NAME</code> makes one for a user.`}>
        <input id="token" name="token" type="password" autocomplete="current-password" required maxlength="500" aria-describedby="token-hint" value=${token} onInput=${(event) => setToken(event.target.value)} />
      <//>
      <p><button type="submit" class="button-main" disabled=${isBusy || !token.trim()}>Log in</button></p>
    </form>
  </div>`;
}
