// From series to the lines of one chart: which there are, how they look, what is drawn faint beside them.

import { positive, smooth, spread } from "./maths.js";
import { colour, faint } from "./palette.js";

const RAW = 0.28;
const BAND = 0.18;
const DASHES = [[], [6, 4], [2, 3], [8, 3, 2, 3]];

/**
 * The lines of a chart. `parts`: `[{run, name, at, tag, order, group, rank, series}]`, `at` the number of the run, `order` that of
 * the tag in the chart and `rank` that of the group. `look`: {smoothing, logX, logY, many, grouped}. Each line: {label, colour, x, y, width, dash,
 * points, legend, part, band, told}. `told`, of a mean: how many of its runs are in it at each place. `plain`:
 * it is as it was logged, though others are smoothed.
 */
export function linesOf(parts, look) {
  const shown = parts.filter((part) => part.series);
  return look.grouped ? grouped(shown, look) : shown.flatMap((part) => single(part, look));
}

function single(part, look) {
  const { series } = part;
  const stroke = colour(look.many ? part.at : part.order);
  const base = {
    label: look.many ? (look.tags > 1 ? `${part.name} · ${part.tag}` : part.name) : part.tag,
    colour: stroke,
    dash: look.many ? DASHES[part.order % DASHES.length] : [],
    part,
  };
  const raw = positive({ x: series.x, y: series.y }, look.logX, look.logY);
  if (series.eval) return [{ ...base, ...raw, width: 1.25, points: true, legend: true, plain: look.smoothing > 0 }];
  if (!(look.smoothing > 0)) return [{ ...base, ...raw, width: 1.25, legend: true }];
  const soft = positive(smooth(series.means ?? series, look.smoothing), look.logX, look.logY);
  return [
    { ...base, ...raw, colour: faint(stroke, RAW), dash: [], width: 1, legend: false },
    { ...base, ...soft, width: 1.75, legend: true },
  ];
}

function grouped(parts, look) {
  const groups = new Map();
  for (const part of parts) {
    const name = `${part.group}\n${part.tag}`;
    groups.set(name, [...(groups.get(name) ?? []), part]);
  }
  return [...groups.values()].flatMap((members) => {
    const [{ group, tag, order, rank }] = members;
    const series = members.map(({ series: one }) => {
      const base = rested(one.means ?? one, one.breaks ?? []);
      return one.eval || !(look.smoothing > 0) ? base : smooth(base, look.smoothing);
    });
    const found = spread(series);
    const stroke = colour(rank);
    const told = { x: found.x, count: found.count, missing: found.missing, of: members.length };
    const label = `${group}${look.tags > 1 ? ` · ${tag}` : ""} (${members.length})`;
    const base = { label, colour: stroke, dash: DASHES[order % DASHES.length], part: { ...members[0], series: null, name: group }, told };
    const line = (y, more) => ({ ...base, ...positive({ x: found.x, y }, look.logX, look.logY), ...more });
    const edge = { colour: faint(stroke, 0.01), width: 0, legend: false };
    return [
      line(found.high, { ...edge, band: faint(stroke, BAND) }),
      line(found.low, edge),
      line(found.mean, { width: 1.75, legend: true, plain: look.smoothing > 0 && members.every((one) => one.series.eval) }),
    ];
  });
}

/** A series whose gaps between sessions are undefined: nothing is missing there. */
function rested(series, breaks) {
  if (!breaks.length) return series;
  const at = new Set(breaks);
  return { ...series, y: series.y.map((value, i) => (value === null && at.has(series.x[i]) ? undefined : value)) };
}

/** Places of points with no neighbour to draw a line to. */
export function isolated(y) {
  const found = [];
  let before = null;
  for (let i = 0; i < y.length; i += 1) {
    if (y[i] === undefined) continue;
    if (y[i] !== null && before === null) {
      let next = i + 1;
      while (next < y.length && y[next] === undefined) next += 1;
      if (next >= y.length || y[next] === null) found.push(i);
    }
    before = y[i];
  }
  return found;
}
