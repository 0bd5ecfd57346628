// From the form to the body of POST /v1/jobs, and from a job back to the form.

/** What the form begins with. Figures are texts, as they are typed. */
export const BLANK = {
  target: "host", described: "", name: "", budget: "60s", trials: "", threads: "", precision: "f32", verify: true, waits: false, isPrivate: false,
  shapes: {}, typical: {}, hot: "typical", hotSizes: "", against: [], maxLayerError: "", seed: "",
};
export const DESCRIBED = "described"; // a target that no choice names

const NAME = "[A-Za-z_][\\w./-]*";
const DIM = new RegExp(`^(\\d{1,13}|(\\?|${NAME})(:\\d{1,13}\\.\\.\\d{0,13}(:\\d{1,13})?)?)$`);
const TERM = new RegExp(`^(\\d{1,13}\\s*\\*\\s*)?${NAME}$|^\\d{1,13}$`);

/** The classes of devices of which one is connected. */
export function connectedOf({ classes }) {
  return classes.filter((one) => one.connected > 0);
}

/**
 * `{request, errors}`: the body, and by field what cannot be read of the form. `connected` is how
 * many classes of devices host may be.
 */
export function requestOf(form, model, connected) {
  const errors = {};
  const options = { target: form.target === DESCRIBED ? form.described.trim() : form.target };
  const put = (field, value) => value !== undefined && (options[field] = value);
  const tried = (field, read) => {
    try {
      return read();
    } catch (error) {
      errors[field] = error.message;
      return undefined;
    }
  };
  if (options.target === "host" && connected > 1) errors.target = `host is one class of devices, and ${connected} are connected: choose one of them.`;
  if (!options.target) errors.target = "Describe the machine, or choose another target.";
  put("budget_s", tried("budget_s", () => seconds(form.budget)));
  for (const [field, text] of [["trials", form.trials], ["threads", form.threads], ["seed", form.seed]]) {
    put(field, tried(field, () => whole(text)));
  }
  put("max_layer_error", tried("max_layer_error", () => real(form.maxLayerError)));
  const shapes = {};
  for (const [input, text] of Object.entries(form.shapes)) {
    if (text.trim()) tried(`shapes.${input}`, () => (shapes[input] = dims(text)));
  }
  if (Object.keys(shapes).length) options.shapes = shapes;
  const typical = {};
  for (const [dim, text] of Object.entries(form.typical)) {
    const size = tried(`typical.${dim}`, () => whole(text));
    if (size !== undefined) typical[dim] = size;
  }
  if (Object.keys(typical).length) options.typical = typical;
  if (Object.keys(form.states ?? {}).length) options.states = form.states;
  if (form.hot === "none") options.hot = [];
  if (form.hot === "given") put("hot", tried("hot", () => hot(form.hotSizes)));
  if (form.precision !== "f32") options.precision = form.precision;
  if (!form.verify) options.verify = false;
  const request = { model, name: form.name.trim(), options, wait_for_device: form.waits };
  if (form.against.length) request.against = form.against;
  if (form.isPrivate) request.private = true;
  return { request, errors };
}

/** The form that would submit a job again. */
export function formOf(job) {
  const options = job.options;
  const isNamed = !(job.target ?? "").trim().startsWith("{");
  const isTypicalAlone = options.hot?.length === 1 && !Object.keys(options.hot[0]).length;
  const text = (value) => (value === null || value === undefined ? "" : String(value));
  return {
    ...BLANK,
    target: isNamed ? job.target || "host" : DESCRIBED,
    described: isNamed ? "" : job.target,
    name: job.name,
    budget: options.budget_s === null || options.budget_s === undefined ? "" : `${options.budget_s}s`,
    trials: text(options.trials),
    threads: options.threads ? text(options.threads) : "",
    precision: options.precision ?? "f32",
    verify: options.verify ?? true,
    waits: job.wait_for_device,
    isPrivate: job.private ?? false,
    shapes: texts(options.shapes, (given) => given.join(", ")),
    typical: texts(options.typical, String),
    states: options.states ?? {}, // which the form has no field for
    hot: !options.hot || isTypicalAlone ? "typical" : options.hot.length ? "given" : "none",
    hotSizes: isTypicalAlone ? "" : (options.hot ?? []).map(sizesText).join("\n"),
    against: job.against ?? [],
    maxLayerError: options.max_layer_error === undefined || options.max_layer_error === 3e-6 ? "" : text(options.max_layer_error),
    seed: options.seed ? text(options.seed) : "",
  };
}

/**
 * The open dims that are left, `{name, low, high, typical}`, where some inputs have a shape of the
 * form's: those of the inspection that still stand somewhere, and what the shapes name.
 */
export function openDims(inspection, shapes) {
  const known = new Map((inspection?.open_dims ?? []).map((dim) => [dim.name, dim]));
  const left = new Map();
  const named = new Set();
  for (const input of inspection?.inputs ?? []) {
    const given = (shapes[input.name] ?? "").trim();
    const declared = (input.dims ?? []).map(String);
    const parts = given ? given.split(",").map((part) => part.trim()) : declared;
    for (const [index, part] of declared.entries()) named.add(dimName(part, input.name, index));
    for (const [index, part] of parts.entries()) {
      if (/^\d+$/.test(part) || part.includes("+") || part.includes("*") || (given && !DIM.test(part))) continue;
      const name = dimName(part, input.name, index);
      left.set(name, known.get(name) ?? { name });
    }
  }
  for (const [name, dim] of known) if (!named.has(name)) left.set(name, dim); // of no input's declared dims
  return [...left.values()];
}

function dimName(part, input, index) {
  const name = part.split(":")[0].trim();
  return name === "?" || name === "" ? `${input}[${index}]` : name;
}

/** The field that an error of the API is about, or null: pydantic's place, else a word in it. */
export function fieldOf(error) {
  if (error.code === "no-device") return "target";
  const place = /^body\.(?:options\.)?([\w.]+)/.exec(error.detail ?? "")?.[1];
  if (place) return place.startsWith("shapes.") || place.startsWith("typical.") ? place.split(".").slice(0, 2).join(".") : place.split(".")[0];
  if (error.code !== "usage") return null;
  return FIELD_WORDS.find(([word]) => word.test(error.detail))?.[1] ?? null;
}

/** What an error says of the field beside which it is shown. */
export function said(error) {
  const ofSchema = /^body\.[\w.]+: (.*)$/s.exec(error.detail ?? "");
  return ofSchema ? ofSchema[1] : [error.detail, error.hint].filter(Boolean).join(". ");
}

const FIELD_WORDS = [
  [/\btarget|class:|device:|machine|description/i, "target"],
  [/^trials\b/, "trials"], [/^budget\b/, "budget_s"], [/^threads\b/, "threads"], [/error of a layer/, "max_layer_error"],
  [/\bengine|against/, "against"], [/precision/, "precision"],
];

function seconds(text) {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*$/.exec(text);
  if (!text.trim()) return undefined;
  if (!found) throw new Error(`“${text.trim()}” is no time: 60s, 5m or 1h.`);
  return Number(found[1]) * { "": 1, s: 1, m: 60, h: 3600 }[found[2]];
}

function whole(text) {
  if (!text.trim()) return undefined;
  if (!/^\s*\d{1,13}\s*$/.test(text)) throw new Error(`“${text.trim()}” is no whole number.`);
  return Number(text);
}

function real(text) {
  if (!text.trim()) return undefined;
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Error(`“${text.trim()}” is no number.`);
  return value;
}

function dims(text) {
  return text.trim().replace(/^[[(](.*)[\])]$/, "$1").split(",").map((part) => {
    const dim = part.trim();
    if (/^\d{1,13}$/.test(dim)) return Number(dim);
    const isSum = /[+*]/.test(dim) && dim.split("+").every((term) => TERM.test(term.trim()));
    if (DIM.test(dim) || isSum) return dim;
    throw new Error(`“${dim}” is no dimension: a number, a name, a name with a range (batch:1..8), or ?.`);
  });
}

function hot(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  if (!lines.length) throw new Error("Write a set of sizes, or choose none.");
  return lines.map((line) =>
    Object.fromEntries(line.split(",").map((item) => {
      const at = item.lastIndexOf("=");
      if (at < 1 || !/^\s*\d{1,13}\s*$/.test(item.slice(at + 1))) throw new Error(`“${item.trim()}” is no size: batch=1, one set of sizes a line.`);
      return [item.slice(0, at).trim(), Number(item.slice(at + 1))];
    })));
}

const sizesText = (sizes) => Object.entries(sizes).map(([name, size]) => `${name}=${size}`).join(", ");
const texts = (fields, text) => Object.fromEntries(Object.entries(fields ?? {}).map(([name, value]) => [name, text(value)]));
