// The dashboard: who is logged in, and which page is shown.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { logOut, onSignedOut, openSession } from "./lib/api.js";
import { html } from "./lib/html.js";
import { matched, navigate, useLocation } from "./lib/router.js";
import { restoreTheme } from "./lib/theme.js";
import { Loading, Problem } from "./ui/feedback.js";
import { PageHead, Shell } from "./ui/shell.js";
import { Compare } from "./pages/compare.js";
import { Device } from "./pages/device.js";
import { Devices } from "./pages/devices.js";
import { Job } from "./pages/job.js";
import { JobModel } from "./pages/job_model.js";
import { Jobs } from "./pages/jobs.js";
import { Login } from "./pages/login.js";
import { Model } from "./pages/model.js";
import { Overview } from "./pages/overview.js";
import { Records } from "./pages/records.js";
import { Submit } from "./pages/submit.js";

const ROUTES = [
  ["/", Overview],
  ["/jobs", Jobs],
  ["/jobs/:id", Job],
  ["/jobs/:id/model", JobModel],
  ["/compare", Compare],
  ["/devices", Devices],
  ["/devices/:id", Device],
  ["/records", Records],
  ["/submit", Submit],
  ["/models/:id", Model],
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
