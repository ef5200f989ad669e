// The window in which columns are chosen: scalars and settings of all runs, with how many runs have each.

import { open } from "../dialog.js";
import { h, replace } from "../dom.js";
import { count } from "../format.js";
import { column, NAMES, tally } from "./columns.js";

const MOST = 300;

/** `now()`: ids of the columns; `set(ids)`: those from now on; `usual()`: back to what nobody chose. */
export function pickColumns({ rows, now, set, usual }) {
  const offers = [
    ...NAMES.map((id) => ({ id, kind: "Run", times: null })),
    ...[...tally(rows, "summary")].map(([name, times]) => ({ id: `tag:${name}`, kind: "Scalars", times })),
    ...[...tally(rows, "config")].map(([name, times]) => ({ id: `config:${name}`, kind: "Settings", times })),
  ].map((one) => ({ ...one, title: column(one.id).title }));
  const known = new Set(offers.map((one) => one.id));
  const chosen = h("ol", { class: "picker-chosen" });
  const list = h("div", { class: "picker-list" });
  const field = h("input", {
    type: "search",
    class: "field",
    placeholder: "Find a scalar or a setting",
    "aria-label": "Find a column",
    autofocus: true,
    oninput: () => paintOffers(),
  });

  const change = (ids) => {
    set(ids);
    paintChosen();
  };
  const toggle = (id, on) => change(on ? [...now(), id] : now().filter((one) => one !== id));
  const takeAway = (id) => {
    toggle(id, false);
    paintOffers();
    chosen.querySelector("button:not(:disabled)")?.focus();
  };
  const move = (id, by) => {
    const ids = [...now()];
    const at = ids.indexOf(id);
    const to = Math.max(1, Math.min(ids.length - 1, at + by));
    ids.splice(to, 0, ...ids.splice(at, 1));
    change(ids);
    [...chosen.querySelectorAll("button")]
      .find((button) => button.dataset.id === id && button.dataset.by === String(by))
      ?.focus();
  };

  const paintChosen = () => {
    const ids = now();
    replace(
      chosen,
      ids.map((id, index) =>
        h(
          "li",
          null,
          h("span", { class: "picker-name", title: id }, column(id).title),
          !known.has(id) && h("span", { class: "faint" }, "no run has it"),
          id !== "name" && [
            h(
              "button",
              {
                type: "button",
                class: "button quiet tiny",
                disabled: index <= 1,
                "aria-label": `${column(id).title}: to the left`,
                dataset: { id, by: "-1" },
                onclick: () => move(id, -1),
              },
              "↑",
            ),
            h(
              "button",
              {
                type: "button",
                class: "button quiet tiny",
                disabled: index === ids.length - 1,
                "aria-label": `${column(id).title}: to the right`,
                dataset: { id, by: "1" },
                onclick: () => move(id, 1),
              },
              "↓",
            ),
            h(
              "button",
              {
                type: "button",
                class: "button quiet tiny",
                "aria-label": `${column(id).title}: take away`,
                onclick: () => takeAway(id),
              },
              "✕",
            ),
          ],
        ),
      ),
    );
  };
  const paintOffers = () => {
    const ids = now();
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = offers.filter(
      (one) => one.id !== "name" && words.every((word) => one.title.toLowerCase().includes(word)),
    );
    const shown = fitting.slice(0, MOST);
    const kinds = [...new Set(shown.map((one) => one.kind))];
    replace(
      list,
      kinds.map((kind) =>
        h(
          "fieldset",
          null,
          h("legend", null, kind),
          shown
            .filter((one) => one.kind === kind)
            .map((one) =>
              h(
                "label",
                { class: "picker-offer" },
                h("input", {
                  type: "checkbox",
                  checked: ids.includes(one.id),
                  onchange: (event) => toggle(one.id, event.target.checked),
                }),
                h("span", { class: "picker-name" }, one.title),
                one.times !== null && h("span", { class: "faint" }, count(one.times)),
              ),
            ),
        ),
      ),
      fitting.length > MOST &&
        h("p", { class: "faint" }, `${count(fitting.length - MOST)} more: type a part of the name`),
      !fitting.length && h("p", { class: "faint" }, "Nothing has that in its name."),
    );
  };
  paintChosen();
  paintOffers();
  const reset = () => {
    usual();
    paintChosen();
    paintOffers();
  };
  open(
    "Columns",
    h(
      "div",
      { class: "picker" },
      h("div", null, field, list),
      h(
        "div",
        null,
        h(
          "div",
          { class: "picker-head" },
          h("h3", null, "Shown, from left to right"),
          h("button", { type: "button", class: "button quiet", onclick: reset }, "Usual ones"),
        ),
        chosen,
      ),
    ),
    { wide: true },
  );
}
