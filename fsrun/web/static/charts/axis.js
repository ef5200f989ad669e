// Places on the axis below, as text.

import { number } from "../format.js";

/** Seconds between marks that people can read. */
export const SPANS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000, 4_320_000];
const UNITS = [[86_400, "d"], [3600, "h"], [60, "min"]];

const LARGE = [[1e9, "G"], [1e6, "M"], [1e4, "k"]];

/** A place on an axis (step, time, relative). */
export function place(value, axis) {
  if (axis === "time") return clock(value, true);
  if (axis === "relative") return span(value);
  return number(Math.abs(value) > 100 ? Math.round(value) : value);
}

/** The same for a mark, in few characters. */
export function short(value, axis) {
  const size = Math.abs(value);
  if (axis === "relative" || size < 1e4) return place(value, axis);
  if (size >= 1e12) return value.toExponential(2);
  const [unit, letter] = LARGE.find(([least]) => size >= least);
  return `${Number((value / (letter === "k" ? 1e3 : unit)).toPrecision(6))}${letter}`;
}

/** Marks of an axis of time: the clock, and the day below the first mark and wherever it changes. */
export function clocks(values) {
  const seconds = values.length > 1 && values[1] - values[0] < 60;
  let before = "";
  return values.map((value) => {
    if (value === null) return "";
    const date = new Date(value * 1000);
    const day = date.toLocaleDateString([], { month: "short", day: "numeric" });
    const text = clock(value, seconds) + (day === before ? "" : `\n${day}`);
    before = day;
    return text;
  });
}

function clock(value, seconds) {
  const date = new Date(value * 1000);
  const parts = [date.getHours(), date.getMinutes(), ...(seconds ? [date.getSeconds()] : [])];
  return parts.map((part) => String(part).padStart(2, "0")).join(":");
}

function span(seconds) {
  for (const [size, unit] of UNITS) if (Math.abs(seconds) >= size) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
  return `${Number(seconds.toPrecision(3))} s`;
}

/** The part of the axis that an address names; null: all. */
export function rangeOf(params) {
  const [from, to] = "from to".split(" ").map((name) => Number(params.get(name) ?? NaN));
  return from < to && Number.isFinite(to - from) ? [from, to] : null;
}
