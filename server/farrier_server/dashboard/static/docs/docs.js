// The page of the REST API. Requests that it tries go out with the browser's session, where there is
// one, or with the token that the reader enters under "Authorize".

const UNSAFE = new Set(["POST", "PUT", "PATCH", "DELETE"]);

/** The token that each change has to carry; "" without a session. */
async function csrf() {
  const answer = await fetch("/v1/session", { headers: { Accept: "application/json" } });
  return answer.ok ? (await answer.json()).csrf : "";
}

async function prepared(request) {
  if (UNSAFE.has(request.method) && !request.headers.Authorization) {
    request.headers["X-CSRF-Token"] = await csrf();
  }
  return request;
}

window.SwaggerUIBundle({
  url: "/openapi.json",
  domNode: document.getElementById("docs"),
  deepLinking: true,
  requestInterceptor: prepared,
  // The validator is another host's.
  validatorUrl: null,
});
