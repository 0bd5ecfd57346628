// The dashboard: who is logged in, and which page is shown.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { logOut, onSignedOut, openSession } from "./lib/api.js";
import { html } from "./lib/html.js";
import { fetchAtRest, page } from "./lib/pages.js";
import { matched, navigate, useLocation } from "./lib/router.js";
import { restoreTheme } from "./lib/theme.js";
import { Loading, Problem } from "./ui/feedback.js";
import { PageHead, Shell } from "./ui/shell.js";

const Login = page(() => import("./pages/login.js").then((of) => of.Login));
const ROUTES = [
  ["/", page(() => import("./pages/overview.js").then((of) => of.Overview))],
  ["/jobs", page(() => import("./pages/jobs.js").then((of) => of.Jobs))],
  ["/jobs/:id", page(() => import("./pages/job.js").then((of) => of.Job))],
  ["/jobs/:id/model", page(() => import("./pages/job_model.js").then((of) => of.JobModel))],
  ["/compare", page(() => import("./pages/compare.js").then((of) => of.Compare))],
  ["/devices", page(() => import("./pages/devices.js").then((of) => of.Devices))],
  ["/devices/:id", page(() => import("./pages/device.js").then((of) => of.Device))],
  ["/explorations", page(() => import("./pages/explorations.js").then((of) => of.Explorations))],
  ["/explorations/:id", page(() => import("./pages/exploration.js").then((of) => of.Exploration))],
  ["/records", page(() => import("./pages/records.js").then((of) => of.Records))],
  ["/users", page(() => import("./pages/users.js").then((of) => of.Users))],
  ["/submit", page(() => import("./pages/submit.js").then((of) => of.Submit))],
  ["/models/:id", page(() => import("./pages/model.js").then((of) => of.Model))],
];

function App() {
  const { path, query } = useLocation();
  const [session, setSession] = useState(undefined); // undefined: not known yet
  const [reason, setReason] = useState(null); // why the reader has to log in again
  const [error, setError] = useState(null);

  const begin = async () => {
    try {
      setSession(await openSession());
      setError(null);
    } catch (problem) {
      setError(problem);
      setTimeout(begin, 2000);
    }
  };
  useEffect(() => {
    onSignedOut((problem) => {
      setReason(problem);
      setSession(null);
    });
    begin();
    fetchAtRest([Login, ...ROUTES.map(([, each]) => each)]);
  }, []);

  const leave = async () => {
    await logOut().catch(() => {}); // a session that is over needs no end
    setReason(null);
    setSession(null);
  };
  const enter = (opened) => {
    setReason(null);
    setSession(opened);
    if (path === "/login") navigate("/", { replace: true });
  };
  return html`<${Shell} session=${session} path=${path} onLogOut=${leave}>${shown()}<//>`;

  function shown() {
    if (session === undefined) return error ? html`<${Problem} error=${error} />` : html`<${Loading} what="Opening" />`;
    if (session === null) return html`<${Login} reason=${reason} onEnter=${enter} />`;
    const found = matched(ROUTES, path);
    if (found) return html`<${found.page} key=${path} ...${found.params} query=${query} session=${session} />`;
    return html`<${PageHead} title="No such page" /><p>Nothing lies at this address. <a href="/">Go to the overview</a>.</p>`;
  }
}

restoreTheme();
render(html`<${App} />`, document.getElementById("app"));
