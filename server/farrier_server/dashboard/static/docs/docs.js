// The page of the REST API. Requests that are tried out go out with the browser's session, where
// there is one, or with the token that the reader enters under "Authorize".

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);

/** The session of this browser, or null. */
async function session() {
  const answer = await fetch("/v1/session", { headers: { Accept: "application/json" } });
  return answer.status === 200 ? answer.json() : null;
}

/** Adds what a request of a session has to carry. One with a token needs no more. */
async function prepared(request) {
  if (!SAFE.has(request.method) && !request.headers.Authorization) {
    const opened = await session();
    if (opened) request.headers["X-CSRF-Token"] = opened.csrf;
  }
  return request;
}

async function tellWhoAsks() {
  const opened = await session();
  document.getElementById("caller").textContent = opened
    ? `Requests that you try out here are those of ${opened.owner}, who is logged in.`
    : "You are not logged in: enter a token under “Authorize” to try requests out, or log in on the dashboard.";
}

window.SwaggerUIBundle({
  url: "/openapi.json",
  domNode: document.getElementById("docs"),
  deepLinking: true,
  requestInterceptor: prepared,
  validatorUrl: null, // another host's
});
tellWhoAsks();
