// What tabs of content share: a place that shows why there is nothing, and buttons for one page after the other.

import { h, replace, setText } from "../dom.js";
import { count } from "../format.js";

/** Say in a place that there is nothing, or why it cannot be shown. */
export function say(place, text, bad = false) {
  replace(place, h("p", { class: ["content-none", bad && "bad"], role: bad ? "alert" : null }, text));
}

/** What could not be read, as notes. */
export function problems(found) {
  return (found ?? []).length
    ? h(
        "details",
        { class: "content-problems" },
        h("summary", null, `Some of it could not be read (${found.length})`),
        h(
          "ul",
          { class: "mono" },
          found.map((text) => h("li", null, text)),
        ),
      )
    : null;
}

/** Buttons for pages of rows: `turn(offset)`. Its `show({offset, rows, total})` says where one is. */
export function pager(size, turn) {
  let at = { offset: 0, rows: 0, total: 0 };
  const button = (name, title, to) =>
    h("button", { class: "button", type: "button", title, "aria-label": title, onclick: () => turn(to()) }, name);
  const first = button("«", "First page", () => 0);
  const before = button("‹", "Page before", () => Math.max(0, at.offset - size));
  const next = button("›", "Next page", () => at.offset + at.rows);
  const last = button("»", "Last page", () => Math.max(0, Math.floor((at.total - 1) / size) * size));
  const where = h("span", { class: "number faint" });
  const element = h("span", { class: "pager" }, first, before, where, next, last);
  element.show = (shown) => {
    at = shown;
    const end = at.offset + at.rows;
    setText(
      where,
      at.total ? `${count(at.rows ? at.offset + 1 : at.offset)} – ${count(end)} of ${count(at.total)}` : "none",
    );
    first.disabled = before.disabled = at.offset <= 0;
    next.disabled = last.disabled = end >= at.total;
  };
  element.show(at);
  return element;
}

/** A select of [value, name] pairs; what is chosen stays chosen. */
export function select(label, changed) {
  const element = h("select", {
    class: "field",
    "aria-label": label,
    title: label,
    onchange: () => changed(element.value),
  });
  element.show = (pairs, chosen) => {
    const text = JSON.stringify(pairs);
    if (element.shown !== text) {
      element.shown = text;
      replace(
        element,
        pairs.map(([value, name]) => h("option", { value: String(value) }, name)),
      );
    }
    element.value = String(chosen);
  };
  return element;
}
