// What the reader chose, kept by the browser; where that keeps nothing, it lasts as long as the page.

const memory = new Map();

/** A kept value, else `fallback`. */
export function recall(name, fallback = null) {
  try {
    const text = localStorage.getItem(`fsrun.${name}`);
    if (text !== null) return JSON.parse(text);
  } catch {
    // Storage that is switched off, or a value that somebody else put there.
  }
  return memory.has(name) ? memory.get(name) : fallback;
}

/** Keep a value; null forgets it. */
export function keep(name, value) {
  memory.set(name, value);
  try {
    if (value === null) localStorage.removeItem(`fsrun.${name}`);
    else localStorage.setItem(`fsrun.${name}`, JSON.stringify(value));
  } catch {
    // As above; or it is full.
  }
}
