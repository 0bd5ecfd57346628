// The command line and the Python that submit the same job as a form or a job of the page.

const DEFAULT_SERVER = "http://127.0.0.1:8440";
const DEFAULTS = { threads: 0, seed: 0, max_layer_error: 3e-6, verify: true, precision: "f32" };

/**
 * `farrier submit …` for `request`: the body of POST /v1/jobs, and `file`, the name of the model's
 * file. Options that have their default are left out.
 */
export function commandLine(request, server = location.origin) {
  const { options, file, name, waits, against, isPrivate } = parts(request);
  const words = [["--target", options.target ?? "host"]];
  for (const [input, dims] of Object.entries(options.shapes ?? {})) words.push(["--shape", `${input}=${dims.join(",")}`]);
  for (const sizes of hotOf(options)) words.push(["--hot", sizes]);
  if (sizesText(options.typical)) words.push(["--typical", sizesText(options.typical)]);
  for (const [input, text] of Object.entries(options.states ?? {})) words.push(["--state", `${input}=${text}`]);
  if (known(options.budget_s)) words.push(["--budget", `${options.budget_s}s`]);
  if (known(options.trials)) words.push(["--trials", options.trials]);
  for (const [option, flag] of FLAGS) if (changed(options, option)) words.push([flag, options[option]]);
  if (changed(options, "verify")) words.push(["--no-verify"]);
  for (const engine of against) words.push(["--against", engine]);
  if (name) words.push(["--name", name]);
  if (waits) words.push(["--wait-for-device"]);
  if (isPrivate) words.push(["--private"]);
  if (server !== DEFAULT_SERVER) words.push(["--server", server]);
  const path = file.startsWith("-") ? `./${file}` : file;
  return [`farrier submit ${quoted(path)}`, ...words.map((word) => word.map(quoted).join(" "))].join(" \\\n  ");
}

/** The Python that submits `request`, waits and downloads the artifact. */
export function python(request, server = location.origin) {
  const { options, file, name, waits, against, isPrivate } = parts(request);
  const given = [literal(file), `target=${literal(options.target ?? "host")}`];
  const add = (field, text) => given.push(`${field}=${text}`);
  if (hasAny(options.shapes)) add("shapes", dict(options.shapes, (dims) => tuple(dims)));
  if (options.hot && !isTypicalAlone(options.hot)) add("hot", `[${options.hot.map((sizes) => dict(sizes)).join(", ")}]`);
  if (hasAny(options.typical)) add("typical", dict(options.typical));
  if (hasAny(options.states)) add("states", dict(options.states));
  for (const field of ["budget_s", "trials"]) if (known(options[field])) add(field, literal(options[field]));
  for (const field of Object.keys(DEFAULTS)) if (changed(options, field)) add(field, literal(options[field]));
  if (against.length) add("against", `[${against.map(literal).join(", ")}]`);
  if (name) add("name", literal(name));
  if (waits) add("wait_for_device", "True");
  if (isPrivate) add("private", "True");
  const client = server === DEFAULT_SERVER ? "" : literal(server);
  const artifact = `${file.replace(MODEL_FILE, "")}.farrier`;
  return `import farrier

with farrier.Client(${client}) as client:
    job = client.submit(
${given.map((one) => `        ${one},`).join("\n")}
    )
    job = client.wait(job.id, listener=print)
    client.fetch(job.id, ${literal(artifact)})
`;
}

/** The names of files that hold models, rather than their data. */
export const MODEL_FILE = /\.(onnx|tflite|pt2|mlir)$/i;

const FLAGS = [
  ["threads", "--threads"],
  ["seed", "--seed"],
  ["max_layer_error", "--max-layer-error"],
  ["precision", "--precision"],
];

function parts(request) {
  const name = request.name ?? "";
  const base = name.replaceAll("/", "_") || "model";
  const file = request.file || (MODEL_FILE.test(base) ? base : `${base}.onnx`);
  const isOwnName = [file, file.replace(MODEL_FILE, "")].includes(name);
  return {
    options: request.options ?? {},
    file,
    name: isOwnName ? "" : name,
    waits: Boolean(request.wait_for_device),
    against: request.against ?? [],
    isPrivate: Boolean(request.private),
  };
}

const known = (value) => value !== null && value !== undefined;
const hasAny = (fields) => Boolean(fields && Object.keys(fields).length);
const changed = (options, field) => known(options[field]) && options[field] !== DEFAULTS[field];
const isTypicalAlone = (hot) => hot.length === 1 && !hasAny(hot[0]);

/** Each `--hot`. One of typical sizes only is named by them. */
function hotOf({ hot, typical }) {
  if (!hot || isTypicalAlone(hot)) return [];
  return hot.length ? hot.map((sizes) => sizesText(hasAny(sizes) ? sizes : typical)).filter(Boolean) : ["none"];
}

function sizesText(sizes) {
  return Object.entries(sizes ?? {}).map(([name, size]) => `${name}=${size}`).join(",");
}

// What a shell takes for one word. Characters that cannot be seen, or turn the direction of text, are escapes.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

function quoted(word) {
  const text = String(word);
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (text.search(UNSEEN) < 0) return `'${text.replaceAll("'", "'\\''")}'`;
  return `$'${text.replace(/[\\']/g, "\\$&").replace(UNSEEN, escaped)}'`;
}

function literal(value) {
  if (typeof value === "boolean") return value ? "True" : "False";
  return JSON.stringify(value).replace(UNSEEN, escaped);
}

function escaped(character) {
  return `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`;
}

function dict(fields, text = literal) {
  return `{${Object.entries(fields).map(([name, value]) => `${literal(name)}: ${text(value)}`).join(", ")}}`;
}

function tuple(values) {
  return `(${values.map(literal).join(", ")}${values.length === 1 ? "," : ""})`;
}
