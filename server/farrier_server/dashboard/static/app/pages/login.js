// The way in: a token opens a session.

import { useEffect, useRef, useState } from "preact/hooks";
import { logIn } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Field } from "../ui/controls.js";
import { Notice, Problem } from "../ui/feedback.js";
import { PageHead } from "../ui/shell.js";
import { Said } from "../ui/text.js";

const HINT = html`The installation's own is in <code>user.token</code> in its home, and <code>farrier up</code> prints it;
  ${" "}<code>farrier tokens add NAME</code> makes one for a user.`;

/** `reason` is the ApiError that ended the session before, or null; `onEnter(session)` goes on. */
export function Login({ reason, onEnter }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(null);
  const [isShown, setShown] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);

  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      onEnter(await logIn(token.trim()));
    } catch (problem) {
      setError(problem);
      setBusy(false);
      field.current.focus();
      field.current.select();
    }
  };
  const isWrong = error?.status === 401;
  return html`<div class="login">
    <${PageHead} title="Log in" />
    ${reason && !error && html`<${WhyAgain} reason=${reason} />`}
    <${Problem} error=${error} title=${isWrong ? "Not logged in." : ""} />
    <form onSubmit=${submit} class="panel">
      <${Field} label="Token" name="token" hint=${HINT}>
        <input
          id="token"
          name="token"
          ref=${field}
          type=${isShown ? "text" : "password"}
          autocomplete="current-password"
          autocapitalize="off"
          spellcheck=${false}
          required
          maxlength="500"
          aria-describedby="token-hint"
          aria-invalid=${isWrong ? "true" : undefined}
          value=${token}
          onInput=${(event) => setToken(event.target.value)}
        />
      <//>
      <p class="check">
        <input id="shown" type="checkbox" checked=${isShown} onChange=${(event) => setShown(event.target.checked)} />
        <label for="shown">Show what is typed</label>
      </p>
      <${Account} />
      <p><button type="submit" class="button-main" disabled=${isBusy}>${isBusy ? "Logging in…" : "Log in"}</button></p>
    </form>
  </div>`;
}

function WhyAgain({ reason }) {
  // A browser drops the cookie of a session that is over: then the request has no token at all.
  const said = reason.code === "session-expired" ? reason.detail : "the session is over";
  return html`<${Notice} tone="wait"><p><${Said} text=${said} /> Log in, and the page goes on where it was.</p><//>`;
}

/** What password managers keep the token under. */
function Account() {
  return html`<input
    class="unseen"
    name="username"
    type="text"
    autocomplete="username"
    value=${location.host}
    tabindex="-1"
    aria-hidden="true"
    readonly
  />`;
}
