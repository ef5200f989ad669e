// A chart as a file: its points as CSV, its drawing as PNG.

import { h } from "../dom.js";
import { ground } from "./palette.js";

const LINE = 16;

/** Lines of a CSV file. `series`: [{run, tag, series: {x, y, steps?}}]. */
export function csv(series, axis) {
  const rows = [["run", "tag", axis, "value"]];
  for (const { run, tag, series: one } of series) {
    const odd = new Map((one.special ?? []).map(({ x, value }) => [x, value]));
    const breaks = new Set(one.breaks);
    one.x.forEach((x, i) => {
      const value = one.y[i] ?? null;
      if (value !== null || !breaks.has(x)) rows.push([run, tag, x, value ?? odd.get(x) ?? "NaN"]);
    });
  }
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** A text that a spreadsheet would take for a formula gets a quote in front. */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) && !Number.isFinite(Number(value)) && value !== "-Infinity" ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Let the browser save something. */
export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: safe(name) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function safe(name) {
  return name.replace(/[^A-Za-z0-9._-]+/g, "_").replace(/^[._]+/, "").slice(0, 120) || "chart";
}

/** The drawing of a chart with its title and what its lines are, as a PNG. */
export async function png(chart) {
  const drawn = chart.plot?.ctx.canvas;
  if (!drawn) throw new Error("there is nothing drawn yet");
  const paint = ground();
  const scale = window.devicePixelRatio || 1;
  const legend = chart.lines.filter((line) => line.legend).slice(0, 20);
  const canvas = document.createElement("canvas");
  canvas.width = drawn.width;
  canvas.height = drawn.height + (legend.length + 2) * LINE * scale;
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = paint.surface;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.font = `600 ${12 * scale}px ${paint.font}`;
  ctx.fillStyle = paint.strong;
  ctx.fillText(chart.title, 10 * scale, LINE * scale);
  ctx.drawImage(drawn, 0, 1.5 * LINE * scale);
  ctx.font = `${11 * scale}px ${paint.font}`;
  legend.forEach((line, at) => {
    const y = drawn.height + (at + 2.3) * LINE * scale;
    ctx.fillStyle = line.colour;
    ctx.fillRect(10 * scale, y - 4 * scale, 14 * scale, 3 * scale);
    ctx.fillStyle = paint.strong;
    ctx.fillText(line.label, 30 * scale, y);
  });
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
