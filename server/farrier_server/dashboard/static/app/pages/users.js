// Users and their tokens: who there is, for operators; added, rotated and removed by admins.

import { useState } from "preact/hooks";
import { isAtLeast, post, remove } from "../lib/api.js";
import { moment } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/live.js";
import { Action, Choice, Code, Confirm, Field } from "../ui/controls.js";
import { Loaded, Notice, Problem } from "../ui/feedback.js";
import { PageHead, Section } from "../ui/shell.js";
import { Table } from "../ui/table.js";
import { Ago, Name, State } from "../ui/text.js";

const ASKED_MS = 10_000;
const ROLES = [
  ["user", "user: jobs of their own"],
  ["operator", "operator: devices, shared records, the standing of all jobs"],
  ["admin", "admin: everything, tokens included"],
];
const TIMES = [["7d", "in a week"], ["30d", "in 30 days"], ["90d", "in 90 days"], ["365d", "in a year"], ["never", "never"]];

export function Users({ session }) {
  const resource = useResource("/v1/users", { every: ASKED_MS });
  const [made, setMade] = useState(null); // {user, token}: shown this once
  const [error, setError] = useState(null);
  const [asked, setAsked] = useState(null); // {what, user}
  const isAdmin = isAtLeast("admin");

  const act = async (run) => {
    try {
      await run();
      setError(null);
    } catch (problem) {
      setError(problem);
    }
    resource.refresh();
  };
  const answered = (isYes) => {
    const { what, user } = asked;
    setAsked(null);
    if (!isYes) return;
    const path = `/v1/users/${encodeURIComponent(user.name)}`;
    if (what === "remove") act(() => remove(path));
    else act(async () => setMade(await post(`${path}/rotate`, user.expired ? { expires: "30d" } : {})));
  };
  return html`
    <${PageHead} title="Users" />
    <${Problem} error=${error} />
    ${made && html`<${Token} made=${made} onDone=${() => setMade(null)} />`}
    <${Loaded} resource=${resource} what="Looking for users">${(data) => html`
      <${Table} caption="Users" columns=${columns(isAdmin, setAsked)} rows=${data.users} rowKey=${(user) => user.name}
        empty="Nobody has a token of their own: all who use the farm have the installation's." />
      <p class="hint">You are <${Name} text=${session.owner} />, ${session.role}. <code>default</code> is whoever has the installation's
        own token. Members of a group read the results of each other's jobs, but for private ones.</p>
    `}<//>
    ${isAdmin && html`<${Section} title="Another user"><${Add} onMade=${(one) => { setMade(one); resource.refresh(); }} /><//>`}
    ${asked?.what === "remove" &&
    html`<${Confirm} title="Remove this user?" yes="Remove" onAnswer=${answered}>
      <p>The token of <${Name} text=${asked.user.name} /> counts no longer, and their sessions end. Their jobs stay.</p>
    <//>`}
    ${asked?.what === "rotate" &&
    html`<${Confirm} title="Make another token?" yes="Make it" onAnswer=${answered}>
      <p>The token that <${Name} text=${asked.user.name} /> has counts no longer, and their sessions end.
        ${asked.user.expired && " It has expired; the new one counts for 30 days."}</p>
    <//>`}
  `;
}

function columns(isAdmin, ask) {
  return [
    { key: "name", label: "Name", isWide: true, cell: (user) => html`<${Name} text=${user.name} />` },
    { key: "role", label: "Role", cell: (user) => user.role },
    { key: "group", label: "Group", cell: (user) => html`<${Name} text=${user.group} empty="–" />` },
    { key: "created", label: "Token made", isNumber: true, cell: (user) => html`<${Ago} at=${user.created} />` },
    { key: "expires", label: "Expires", isNumber: true, cell: expiry },
    isAdmin && { key: "actions", label: html`<span class="unseen">Actions</span>`, cell: (user) => html`
      <${Action} run=${async () => ask({ what: "rotate", user })}>New token<span class="unseen"> for ${user.name}</span><//>
      ${" "}<${Action} tone="bad" run=${async () => ask({ what: "remove", user })}>Remove<span class="unseen"> ${user.name}</span><//>` },
  ].filter(Boolean);
}

function expiry(user) {
  if (user.expires === null) return html`<span class="quiet">never</span>`;
  return user.expired ? html`<${State} state="expired" tone="bad" />` : moment(user.expires);
}

function Token({ made, onDone }) {
  return html`<${Notice} tone="good">
    <p><strong>The token of <${Name} text=${made.user.name} />.</strong> It is shown this once: the farm keeps its hash alone.</p>
    <${Code} label="Token" text=${made.token} />
    <p><button type="button" onClick=${onDone}>Hide it</button></p>
  <//>`;
}

function Add({ onMade }) {
  const [form, setForm] = useState(EMPTY);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const set = (name) => (value) => setForm((old) => ({ ...old, [name]: value }));
  const typed = (name) => (event) => set(name)(event.target.value);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      onMade(await post("/v1/users", { ...form, name: form.name.trim(), group: form.group.trim() }));
      setForm(EMPTY);
      setError(null);
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  return html`<form class="panel" onSubmit=${submit} aria-label="Another user">
    <${Problem} error=${error} title="Nobody was added." />
    <${Field} label="Name" name="user-name" hint="Jobs are shown under it. Letters, digits and . _ @ -">
      <input id="user-name" required maxlength="64" autocapitalize="off" autocomplete="off" spellcheck=${false}
        aria-describedby="user-name-hint" value=${form.name} onInput=${typed("name")} />
    <//>
    <${Field} label="Role" name="user-role"><${Choice} id="user-role" value=${form.role} options=${ROLES} onChange=${set("role")} /><//>
    <${Field} label="Group" name="user-group" hint="Its members read each other's results. Empty: none.">
      <input id="user-group" maxlength="64" autocapitalize="off" autocomplete="off" spellcheck=${false}
        aria-describedby="user-group-hint" value=${form.group} onInput=${typed("group")} />
    <//>
    <${Field} label="Expires" name="user-expires"><${Choice} id="user-expires" value=${form.expires} options=${TIMES} onChange=${set("expires")} /><//>
    <p><button type="submit" class="button-main" disabled=${isBusy}>Make a token</button></p>
  </form>`;
}

const EMPTY = { name: "", role: "user", group: "", expires: "30d" };
