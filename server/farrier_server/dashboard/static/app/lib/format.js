// Figures as text. What is not known is an en dash.

export const UNKNOWN = "–";

const isKnown = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/** A count, with thin groups of thousands: 12 345. */
export function count(value) {
  return isKnown(value) ? Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f") : UNKNOWN;
}

/** A number of `digits` significant digits, without an exponent where it is of usual size. */
export function number(value, digits = 3) {
  if (!isKnown(value)) return UNKNOWN;
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

/** Milliseconds, in the unit that reads best. */
export function milliseconds(value, digits = 3) {
  if (!isKnown(value)) return UNKNOWN;
  if (value >= 1000) return `${number(value / 1000, digits)} s`;
  return value >= 1 ? `${number(value, digits)} ms` : `${number(value * 1000, digits)} µs`;
}

export const microseconds = (value, digits = 3) => milliseconds(isKnown(value) ? value / 1000 : value, digits);

/** A span of seconds: 4.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds < 1) return milliseconds(seconds * 1000);
  if (seconds < 60) return `${number(seconds, seconds < 10 ? 2 : 3)} s`;
  const [unit, smaller, size, per] = UNITS.find(([, , , , most]) => seconds < most);
  const whole = Math.floor(seconds / size);
  const rest = Math.floor((seconds % size) / per);
  return rest ? `${whole} ${unit} ${rest} ${smaller}` : `${whole} ${unit}`;
}

const UNITS = [
  ["min", "s", 60, 1, 3600],
  ["h", "min", 3600, 60, 86_400],
  ["d", "h", 86_400, 3600, Infinity],
];

/** A span of seconds as a stopwatch shows it: 0:35, 1:02:03. */
export function stopwatch(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** Bytes: 12 kB, 97.8 MB. */
export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = value < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  return `${number(value / 1000 ** power)} ${units[power]}`;
}

export const percent = (share, digits = 2) => (isKnown(share) ? `${number(share * 100, digits)}\u202f%` : UNKNOWN);

/** How one time compares with another: 0.52×. */
export const ratio = (value) => (isKnown(value) ? `${number(value)}×` : UNKNOWN);

/** A moment, given in Unix seconds, in the reader's own zone. */
export function moment(seconds) {
  return isKnown(seconds) ? new Date(seconds * 1000).toLocaleString() : UNKNOWN;
}

/** The time of day of a moment, in the reader's own zone: 17:05. */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
}

/** How long ago a moment was: "just now", "5 min ago". */
export function ago(seconds, now = Date.now() / 1000) {
  if (!isKnown(seconds)) return UNKNOWN;
  const past = now - seconds;
  return past < 5 ? "just now" : `${duration(past < 60 ? Math.floor(past) : Math.floor(past / 60) * 60)} ago`;
}

/** The API's words as a sentence: they begin small and have no full stop. */
export function sentence(text) {
  const words = String(text ?? "").trim();
  if (!words) return "";
  return words[0].toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");
}

/**
 * A name from a model or a user, with what cannot be seen made visible: control characters as their
 * pictures, marks that turn the direction of text as code points.
 */
export function visible(text) {
  return String(text)
    .replace(/[\u0000-\u001f]/g, (c) => String.fromCodePoint(0x2400 + c.codePointAt(0)))
    .replace(/[\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (c) =>
      `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
