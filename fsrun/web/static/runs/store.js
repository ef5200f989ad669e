// All runs, kept up to date by asking every second for what changed. Pages listen to it.

import { get, poll, search } from "../api.js";
import { seconds } from "../format.js";

const EVERY = 1;

export class Store {
  constructor() {
    this.rows = new Map();
    this.scanning = true;
    this.loaded = false;
    this.problem = null;
    this.strays = { count: 0, names: [] };
    this.selected = new Set();
    /** Where one read in the table, while it is not shown. */
    this.place = null;
    this.version = 0;
    this._cursor = "";
    this._listeners = new Set();
    this._stop = null;
    this._order = null;
    this._doubtful = new Set();
  }

  start() {
    this._stop ??= poll((options) => this._ask(options), EVERY);
  }

  /** Ask at once. */
  refresh() {
    this._stop?.now();
  }

  /** Call `listener({changed: [key], gone: [key]})` whenever something changed. Returns a function that ends it. */
  listen(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  row(key) {
    return this.rows.get(key);
  }

  /** All rows, newest first. The order changes only where runs come and go, so that it is not made every second. */
  newest() {
    this._order ??= [...this.rows.values()].sort(newer).map((row) => row.key);
    return this._order.map((key) => this.rows.get(key));
  }

  /** A job of a run, by its key and name. */
  job(key, name) {
    return this.rows.get(key)?.jobs.find((job) => job.job === name);
  }

  async _ask(options) {
    let answer;
    try {
      answer = await get(`/api/runs${search({ since: this._cursor || null })}`, options);
    } catch (error) {
      if (error.name !== "AbortError" && this.problem !== error.message) {
        this.problem = error.message;
        this._tell({ changed: [], gone: [] });
      }
      throw error;
    }
    this._take(answer);
  }

  _take(answer) {
    const changed = answer.runs.map((row) => prepare(row));
    if (answer.full ?? !this._cursor) this._doubtful = new Set(this.rows.keys());
    for (const row of changed) this._doubtful.delete(row.key);
    const gone = (answer.gone ?? []).filter((key) => this.rows.has(key));
    // A server that was started again finds its runs one after the other: none is gone until it has looked everywhere.
    if (!answer.scanning) {
      gone.push(...this._doubtful);
      this._doubtful.clear();
    }
    for (const key of gone) {
      this.rows.delete(key);
      this.selected.delete(key);
    }
    if (gone.length || changed.some((row) => this.rows.get(row.key)?.startedAt !== row.startedAt)) this._order = null;
    for (const row of changed) this.rows.set(row.key, row);
    const problem =
      answer.problem ??
      (answer.stalled_s ? `the file system has not answered for ${Math.round(answer.stalled_s)} s` : null);
    const strays = answer.strays ?? { count: 0, names: [] };
    const news =
      changed.length ||
      gone.length ||
      !this.loaded ||
      this.scanning !== answer.scanning ||
      this.problem !== problem ||
      this.strays.count !== strays.count;
    Object.assign(this, { _cursor: answer.cursor, scanning: answer.scanning, problem, strays, loaded: true });
    if (news) this._tell({ changed: changed.map((row) => row.key), gone });
  }

  _tell(change) {
    this.version += 1;
    for (const listener of [...this._listeners]) {
      try {
        listener(change);
      } catch (error) {
        console.error(error);
      }
    }
  }
}

function newer(a, b) {
  return (b.startedAt ?? 0) - (a.startedAt ?? 0) || (a.key < b.key ? -1 : 1);
}

/** Add to a row what the table asks for ten thousand times. */
function prepare(row) {
  row.title = row.name || row.run;
  row.received = Date.now() / 1000;
  row.startedAt = seconds(row.started);
  row.endedAt = seconds(row.ended);
  row.words = `${row.title} ${row.run} ${row.project} ${row.status}`.toLowerCase();
  row.order = natural(row.title);
  return row;
}

/** A text such that texts in this form sort as people expect: run-2 before run-10, without regard to case. */
export function natural(text) {
  return String(text)
    .toLowerCase()
    .replace(/\d+/g, (digits) => digits.padStart(12, "0"));
}

/** Seconds since the last sign of a job, now; null where that means nothing. */
export function silence(job, received) {
  if (job.status !== "running" || job.silent_s === null || job.silent_s === undefined) return null;
  return job.silent_s + Math.max(0, Date.now() / 1000 - received);
}

/** Whether a job that runs has given no sign for longer than it should. */
export function isSilent(job, received) {
  const seconds = silence(job, received);
  return seconds !== null && seconds > job.silent_after_s;
}
