// Which rows the table shows, and in what order. Pure: ten thousand rows in a few milliseconds.

import { column } from "./columns.js";
import { compile } from "./query.js";
import { natural } from "./store.js";

/**
 * The lines of the table: `{kind: "row", row}` and `{kind: "group", name, rows, open, means}`.
 * `sort`: `{by: column id, down: bool}`. `group`: id of a column, or "". `closed`: names of groups that are folded.
 */
export function arrange(rows, { query = "", sort, group = "", closed = new Set(), columns = [] }) {
  const fits = compile(query);
  const shown = fits ? rows.filter(fits) : [...rows];
  const sorted = order(shown, sort);
  if (!group) return { items: sorted.map((row) => ({ kind: "row", row })), shown: sorted };
  return { items: grouped(sorted, group, closed, columns), shown: sorted };
}

/** Rows in order. What is missing comes last either way; equal ones stay in the order in which they were given. */
export function order(rows, { by, down }) {
  const value = column(by)?.value ?? column("name").value;
  const keyed = rows.map((row) => ({ row, key: sortable(value(row)) }));
  const turn = down ? -1 : 1;
  keyed.sort((a, b) => compare(a.key, b.key, turn));
  return keyed.map(({ row }) => row);
}

function sortable(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return null;
  if (typeof value === "boolean") return value ? 1 : 0;
  return typeof value === "number" ? value : natural(value);
}

function compare(a, b, turn) {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  if (typeof a !== typeof b) return typeof a === "number" ? -turn : turn;
  return a < b ? -turn : turn;
}

function grouped(rows, by, closed, columns) {
  const { text, value } = column(by) ?? column("project");
  const groups = new Map();
  for (const row of rows) {
    const name = text(row);
    const found = groups.get(name);
    if (found) found.rows.push(row);
    else groups.set(name, { name, key: sortable(value(row)), rows: [row] });
  }
  const numeric = columns.map(column).filter((one) => one?.numeric && one.id !== "age");
  const items = [];
  for (const group of [...groups.values()].sort((a, b) => compare(a.key, b.key, 1) || (a.name < b.name ? -1 : 1))) {
    const open = !closed.has(group.name);
    items.push({ kind: "group", name: group.name, rows: group.rows, open, means: means(group.rows, numeric) });
    if (open) for (const row of group.rows) items.push({ kind: "row", row });
  }
  return items;
}

/** Mean, deviation and number of finite values of each column, and how many are none (`odd`: NaN, infinities). */
function means(rows, columns) {
  const found = new Map();
  for (const { id, value } of columns) {
    let [times, mean, squares, odd] = [0, 0, 0, 0];
    for (const row of rows) {
      const one = value(row);
      if (typeof one !== "number" || !Number.isFinite(one)) {
        if (one !== null && one !== undefined && !Number.isFinite(Number(one))) odd += 1;
        continue;
      }
      times += 1;
      const off = one - mean;
      mean += off / times;
      squares += off * (one - mean);
    }
    const deviation = times > 1 ? Math.sqrt(squares / (times - 1)) : null;
    if (times || odd) found.set(id, { mean: times ? mean : NaN, deviation, times, odd });
  }
  return found;
}

/** Settings by which rows can be grouped: such with at least two values, and few enough of them. */
export function groupings(rows, most = 200) {
  const values = new Map();
  for (const row of rows) {
    for (const [key, value] of Object.entries(row.config)) {
      let seen = values.get(key);
      if (!seen) values.set(key, (seen = new Set()));
      if (seen.size <= most) seen.add(value);
    }
  }
  return [...values]
    .filter(([, seen]) => seen.size >= 2 && seen.size <= most)
    .map(([key]) => key)
    .sort();
}
