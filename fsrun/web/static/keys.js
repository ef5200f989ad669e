// Keys that do something, and the list of them. A key does nothing while one writes, or while a dialog is open.

import { h } from "./dom.js";

const bound = [];

/**
 * Bind keys: `[{key: "j", does: "Next run", run: (event) => ...}]`. What is bound last comes first; `run` may return
 * false: not mine. `hidden`: not in the list. `writing`: also while one writes. Returns a function that unbinds them.
 */
export function bind(keys, group = "") {
  const set = { keys, group };
  bound.unshift(set);
  return () => {
    const at = bound.indexOf(set);
    if (at >= 0) bound.splice(at, 1);
  };
}

/** Begin to listen. */
export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const writing = isWriting(event.target);
    for (const set of bound) {
      for (const one of set.keys) {
        if (one.key !== event.key || (writing && !one.writing)) continue;
        if (one.run(event) === false) continue;
        event.preventDefault();
        return;
      }
    }
  });
}

/** Whether keys go into a field there. */
export function isWriting(element) {
  return (
    element instanceof Element &&
    element.matches(
      "input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable]",
    )
  );
}

/** The list of all keys, for the dialog of help. */
export function list() {
  const groups = new Map();
  for (const set of bound) {
    const shown = set.keys.filter((one) => !one.hidden);
    if (shown.length) groups.set(set.group, [...(groups.get(set.group) ?? []), ...shown]);
  }
  return [...groups].map(([group, keys]) =>
    h(
      "section",
      null,
      h("h3", null, group),
      h(
        "dl",
        { class: "keys" },
        keys.map((one) => h("div", null, h("dt", null, h("kbd", null, one.shown ?? one.key)), h("dd", null, one.does))),
      ),
    ),
  );
}
