// Asking the server: JSON by address, and again every second while the page is seen.

const SLOWEST = 30;
const listeners = new Set();
const state = { online: true, message: "" };

/** An answer that is no success. `status`: of HTTP; 0 where there was no answer at all. */
export class AnswerError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "AnswerError";
    this.status = status;
  }
}

/** The JSON at `path`. Throws `AnswerError` with the server's own words, and `AbortError` where `signal` says so. */
export async function get(path, { signal } = {}) {
  let response;
  try {
    response = await fetch(path, { signal, headers: { Accept: "application/json" }, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tell(false, "no answer from the server");
    throw new AnswerError("no answer from the server: is fsrun up still running?", 0);
  }
  tell(true, "");
  let value = null;
  try {
    value = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (response.ok) throw new AnswerError(`${path}: the answer is no JSON`, response.status);
  }
  if (!response.ok)
    throw new AnswerError(value?.error ?? `${path}: ${response.status} ${response.statusText}`, response.status);
  return value;
}

/** Address of something about a run: `about("speech/big", "/series", {tag: ["a", "b"], points: 1000})`. */
export function about(key, tail = "", query = {}) {
  return `/api/runs/${quoted(key)}${tail}${search(query)}`;
}

/** Address of a file of a run. `path`: inside the run. */
export function fileAddress(key, path) {
  return `/files/${quoted(key)}/${quoted(path)}`;
}

/** A path with each of its parts quoted. */
export function quoted(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

/** A query, with its question mark; values that are null or undefined are left out, lists are repeated. */
export function search(query) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined) pairs.append(name, one);
  }
  const text = pairs.toString();
  return text && `?${text}`;
}

/**
 * Call `fn({signal})` now and again, `seconds` after it was done; not while the page is hidden, and more seldom where it
 * fails. Returns a function that ends it; its `now` calls at once.
 */
export function poll(fn, seconds) {
  const control = new AbortController();
  let timer = 0;
  let failures = 0;
  let busy = false;
  let again = false;

  const run = async () => {
    clearTimeout(timer);
    if (control.signal.aborted) return;
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    again = false;
    try {
      await fn({ signal: control.signal });
      failures = 0;
    } catch (error) {
      if (error.name === "AbortError") return;
      failures += 1;
      if (!(error instanceof AnswerError)) console.error(error);
    } finally {
      busy = false;
    }
    if (control.signal.aborted || document.hidden) return;
    timer = setTimeout(run, again ? 0 : 1000 * Math.min(SLOWEST, seconds * 2 ** Math.min(failures, 6)));
  };
  const seen = () => (document.hidden ? clearTimeout(timer) : run());
  const back = ({ online }) => online && failures && run();
  document.addEventListener("visibilitychange", seen);
  listeners.add(back);
  run();
  const stop = () => {
    control.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
    listeners.delete(back);
  };
  stop.now = () => {
    failures = 0;
    run();
  };
  return stop;
}

/** Be told `{online, message}` now and whenever it changes. Returns a function that ends it. */
export function onConnection(listener) {
  listeners.add(listener);
  listener(state);
  return () => listeners.delete(listener);
}

function tell(online, message) {
  if (state.online === online) return;
  Object.assign(state, { online, message });
  for (const listener of listeners) listener(state);
}
