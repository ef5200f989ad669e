// The columns that the table of runs can have: what each is called, how wide, what it holds of a row.

import { age, count, duration, NONE, number, setting, time } from "../format.js";

const PLAIN = {
  name: { title: "Run", width: 244, text: (row) => row.title, value: (row) => row.order },
  status: { title: "Status", width: 102, value: (row) => row.status },
  jobs: { title: "Jobs", width: 146, value: (row) => row.jobs.length - 1 },
  project: { title: "Project", width: 112, value: (row) => row.project },
  run: { title: "Folder", width: 190, value: (row) => row.run },
  step: { title: "Step", width: 84, numeric: true, value: (row) => row.step, text: (row) => count(row.step) },
  age: {
    title: "Age",
    width: 76,
    numeric: true,
    descending: false,
    value: (row) => since(row.startedAt),
    text: (row) => age(since(row.startedAt)),
    hint: (row) => time(row.started),
  },
  duration: { title: "Duration", width: 104, numeric: true, value: lasted, text: (row) => duration(lasted(row)) },
  ended: { title: "Ended", width: 150, value: (row) => row.ended, text: (row) => time(row.ended) },
  best: {
    title: "Best",
    width: 96,
    numeric: true,
    value: (row) => real(row.best?.score),
    text: (row) => number(row.best?.score),
    hint: (row) => (row.best ? `${row.best.tag}, ${row.best.entry} at step ${count(row.best.step)}` : null),
  },
  waiting: {
    title: "Waiting",
    width: 84,
    numeric: true,
    value: (row) => row.waiting,
    text: (row) => count(row.waiting),
  },
  claimed: {
    title: "Claimed",
    width: 84,
    numeric: true,
    value: (row) => row.claimed,
    text: (row) => count(row.claimed),
  },
  failed: { title: "Failed", width: 76, numeric: true, value: (row) => row.failed, text: (row) => count(row.failed) },
  host: { title: "Host", width: 130, value: (row) => row.jobs[0]?.host },
  reason: { title: "Reason", width: 150, value: (row) => row.reason },
};
export const NAMES = Object.keys(PLAIN);
const FIRST = ["name", "status", "jobs", "project", "step", "age", "best"];
const MINOR =
  /\/(stderr|truncated|failed|ungraded|response_tokens|pass@\d+|lag_steps|duration_s|pause_s)$|_(low|high)$|^eval\/(lag_steps|duration_s|pause_s)$/;
const FLAT = 3;

/** A column by its id: a name above, `tag:<scalar>` or `config:<setting>`. */
export function column(id) {
  if (Object.hasOwn(PLAIN, id)) return { id, text: (row) => plain(PLAIN[id].value(row)), ...PLAIN[id] };
  const at = id.indexOf(":");
  const [kind, name] = [id.slice(0, at), id.slice(at + 1)];
  if (kind === "tag") {
    return {
      id,
      kind,
      title: name,
      width: 112,
      numeric: true,
      value: (row) => real(own(row.summary, name)),
      text: (row) => number(own(row.summary, name)),
    };
  }
  if (kind === "config") {
    const text = (row) =>
      typeof own(row.config, name) === "number" ? number(own(row.config, name), 6) : setting(own(row.config, name));
    return { id, kind, title: name, width: 120, value: (row) => own(row.config, name), text, numeric: false };
  }
  return null;
}

/** The value of a column, by its id; undefined where there is no such column. */
export function valueOf(id, row) {
  return column(id)?.value(row);
}

function own(object, name) {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

/** NaN and infinities travel as words. */
function real(value) {
  return typeof value === "string" ? Number(value) : value;
}

function plain(value) {
  return value === null || value === undefined ? NONE : String(value);
}

function since(at) {
  return at === null ? null : Math.max(0, Date.now() / 1000 - at);
}

function lasted(row) {
  if (row.startedAt === null) return null;
  if (row.endedAt !== null) return row.endedAt - row.startedAt;
  return row.status === "running" ? since(row.startedAt) : null;
}

/** The columns of somebody who chose none: the plain ones, and the scalars that most runs have. */
export function usual(rows) {
  const counts = tally(rows, "summary");
  const ruled = new Map();
  for (const row of rows) if (row.best) ruled.set(row.best.tag, (ruled.get(row.best.tag) ?? 0) + 1);
  const weight = ([tag, times]) =>
    times * (MINOR.test(tag) ? 0.1 : tag.startsWith("eval/") ? 2 : /loss|reward/.test(tag) ? 1.8 : 1) +
    (ruled.get(tag) ?? 0);
  const tags = [...counts].sort((a, b) => weight(b) - weight(a) || (a[0] < b[0] ? -1 : 1)).slice(0, FLAT);
  return [...FIRST, ...tags.map(([tag]) => `tag:${tag}`)];
}

/** Names of scalars, what people look for first: what is best by the rule, losses and rewards, evaluations, the rest. */
export function byWorth(tags, best) {
  const place = (tag) =>
    tag === best ? 0 : MINOR.test(tag) ? 4 : /loss|reward/.test(tag) ? 1 : tag.startsWith("eval/") ? 2 : 3;
  return [...tags].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

/** How many rows have each key of `summary` or `config`. */
export function tally(rows, part) {
  const counts = new Map();
  for (const row of rows) for (const key of Object.keys(row[part])) counts.set(key, (counts.get(key) ?? 0) + 1);
  return counts;
}
