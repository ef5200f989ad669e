// Values as short text for people. What is missing is a dash.

export const NONE = "–";
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
const parts = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A number in few characters; NaN and infinities by name. Anything else as it is. */
export function number(value, digits = 4) {
  if (value === null || value === undefined) return NONE;
  const plain = value === "Infinity" || value === "-Infinity" || value === "NaN" ? Number(value) : value;
  if (typeof plain === "boolean") return String(plain);
  if (typeof plain !== "number") return String(value);
  if (Number.isNaN(plain)) return "NaN";
  if (!Number.isFinite(plain)) return plain > 0 ? "∞" : "−∞";
  if (Number.isInteger(plain) && Math.abs(plain) < 1e15) return whole.format(plain).replace("-", "−");
  const size = Math.abs(plain);
  if (size >= 1e6 || size < 1e-3)
    return plain
      .toExponential(Math.max(1, digits - 2))
      .replace("e+", "e")
      .replace("-", "−");
  const short = Number(plain.toPrecision(size >= 1e4 ? digits + 2 : digits));
  return (size >= 1e3 ? parts.format(short) : String(short)).replace("-", "−");
}

/** Whether a scalar is NaN or infinite; these travel as words. */
export function isWild(value) {
  return value === "NaN" || value === "Infinity" || value === "-Infinity";
}

/** An integer with separators. */
export function count(value) {
  return value === null || value === undefined ? NONE : whole.format(value).replace("-", "−");
}

/** "1 run", "2 runs". */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Seconds: "3 ms", "0.4 s", "12 s", "3 min", "2 h 5 min", "4 d 3 h". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const all = Math.max(0, seconds);
  if (all > 0 && all < 0.01) return `${Number((1000 * all).toPrecision(2))} ms`;
  if (all < 10) return `${Number(all.toPrecision(2))} s`;
  if (all < 60) return `${Math.round(all)} s`;
  const minutes = Math.round(all / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(all / 3600);
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

function two(large, unit, small, rest) {
  return small ? `${count(large)} ${unit} ${small} ${rest}` : `${count(large)} ${unit}`;
}

/** Seconds in one unit, for a narrow column: "12 s", "3 min", "5 h", "2 d". */
export function age(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const all = Math.max(0, seconds);
  if (all < 60) return `${Math.floor(all)} s`;
  if (all < 3600) return `${Math.floor(all / 60)} min`;
  if (all < 86400) return `${Math.floor(all / 3600)} h`;
  return `${count(Math.floor(all / 86400))} d`;
}

/** Seconds since 1970 of an RFC 3339 time; null where it is none. */
export function seconds(text) {
  const at = text ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? null : at / 1000;
}

/** A time as the reader's clock shows it: "2026-11-30 03:34:22". */
export function time(text) {
  const at = seconds(text);
  if (at === null) return NONE;
  const date = new Date(at * 1000);
  const part = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${part(date.getMonth() + 1)}-${part(date.getDate())}`;
  return `${day} ${part(date.getHours())}:${part(date.getMinutes())}:${part(date.getSeconds())}`;
}

/** "5 min ago". `now`: seconds since 1970. */
export function ago(text, now = Date.now() / 1000) {
  const at = seconds(text);
  return at === null ? NONE : `${age(now - at)} ago`;
}

/** A size in bytes. */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit ? Number(size.toPrecision(3)) : size} ${UNITS[unit]}`;
}

/** A setting as text: texts as they are, the rest as JSON. */
export function setting(value) {
  if (value === undefined) return NONE;
  return typeof value === "string" ? value : JSON.stringify(value);
}
