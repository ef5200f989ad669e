// Numbers of charts: smoothing, means over runs, what stands at the cursor. Nothing here knows the page.

/**
 * An exponential moving average of series `{x, y, n}`; null in `y` is a gap. `weight`, 0 to 1: how much of what was
 * before stays with each point that was logged; where a point stands for `n` of them, it stays `n` times. At the
 * beginning, where there is no before, it is the mean of what is there.
 */
export function smooth({ x, y, n }, weight) {
  const out = new Array(y.length);
  let sum = 0;
  let known = 0;
  for (let i = 0; i < y.length; i += 1) {
    const value = y[i];
    if (value === null || value === undefined) {
      out[i] = value;
      continue;
    }
    const stays = weight ** (n ? n[i] : 1);
    sum = stays * sum + (1 - stays) * value;
    known = stays * known + (1 - stays);
    out[i] = known > 0 ? sum / known : value;
  }
  return { x, y: out };
}

/**
 * Mean and deviation of several series at the same places: `{x, mean, low, high, count, missing}`. `count`: how many are
 * in the mean there; `missing`: how many go on there without a number (null in `y`). What has ended, not begun, or rests
 * (undefined) is in neither.
 */
export function spread(series, places = 400) {
  const lines = series.filter(({ x }) => x.length);
  const grid = common(lines.map(({ x }) => x), places);
  const found = { x: grid, mean: [], low: [], high: [], count: [], missing: [] };
  const at = lines.map(() => 0);
  for (const place of grid) {
    const values = [];
    let missing = 0;
    lines.forEach(({ x, y }, i) => {
      if (place < x[0] || place > x[x.length - 1]) return;
      while (at[i] + 1 < x.length && x[at[i] + 1] <= place) at[i] += 1;
      const value = between(x, y, at[i], place);
      if (value === null) missing += 1;
      else if (value !== undefined) values.push(value);
    });
    const mean = values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
    const off = values.length > 1 ? Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1)) : 0;
    found.mean.push(mean);
    found.low.push(mean === null ? null : mean - off);
    found.high.push(mean === null ? null : mean + off);
    found.count.push(values.length);
    found.missing.push(missing);
  }
  return found;
}

function common(lists, places) {
  const all = [...new Set(lists.flat())].sort((a, b) => a - b);
  if (all.length <= places) return all;
  const first = all[0];
  const step = (all[all.length - 1] - first) / (places - 1);
  return Array.from({ length: places }, (_, i) => first + i * step);
}

function between(x, y, i, place) {
  if (i + 1 >= x.length || place <= x[i]) return y[i];
  if (y[i] === undefined || y[i + 1] === undefined) return undefined;
  if (y[i] === null || y[i + 1] === null) return null;
  const share = (place - x[i]) / (x[i + 1] - x[i]);
  return y[i] + share * (y[i + 1] - y[i]);
}

/** Index of the point of rising `x` that is nearest to a place; -1 where there is none. */
export function nearest(x, place) {
  let low = 0;
  let high = x.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= place) low = middle;
    else high = middle;
  }
  return Math.abs(x[low] - place) <= Math.abs(x[high] - place) ? low : high;
}

/** The series with what a logarithmic axis has no place for left out: gaps for `y`, no points for `x`. */
export function positive({ x, y, ...rest }, onX, onY) {
  let kept = { x, y };
  if (onX) {
    const places = [...x.keys()].filter((i) => x[i] > 0);
    kept = { x: places.map((i) => x[i]), y: places.map((i) => y[i]) };
  }
  if (onY) kept = { ...kept, y: kept.y.map((value) => (value > 0 ? value : value === undefined ? undefined : null)) };
  return { ...rest, ...kept };
}
