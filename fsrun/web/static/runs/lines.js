// The lines of the table as elements: a run in cells, a run as a card where there is little room, a group.

import { h } from "../dom.js";
import { number, plural } from "../format.js";
import { toRun } from "../route.js";
import { badge, chips } from "./chips.js";
import { isSilent } from "./store.js";

const ON_TOP = new Set(["name", "status", "jobs", "project"]);
const ON_CARD = 3;

/** A line. `look`: `{index, columns, selected, active, narrow}`; `selected` is the set of keys of selected runs. */
export function line(item, look) {
  return item.kind === "group" ? groupLine(item, look) : runLine(item.row, look);
}

/** What a line looks like, but for its run: where that changes it is drawn anew. */
export function looks(item, look) {
  if (item?.kind === "row") return `${look.active} ${look.selected.has(item.row.key)} ${silences(item.row)}`;
  if (item?.kind !== "group") return "";
  const chosen = item.rows.filter((row) => look.selected.has(row.key)).length;
  return JSON.stringify([look.active, item.name, item.open, item.rows.length, chosen, [...item.means.values()]]);
}

function silences(row) {
  return row.jobs.map((job) => (isSilent(job, row.received) ? 1 : 0)).join("");
}

function runLine(row, { index, columns, selected, active, narrow }) {
  const chosen = selected.has(row.key);
  const attributes = {
    class: ["grid-row", active && "is-active", chosen && "is-selected", row.problem && "is-damaged"],
    role: "row",
    id: `row-${index}`,
    "aria-rowindex": index + 2,
    "aria-selected": String(chosen),
    dataset: { index, key: row.key },
  };
  const box = select({ checked: chosen, "aria-label": `Select ${row.title}` });
  return h("div", attributes, box, narrow ? card(columns, row, active) : columns.map((one) => cell(one, row, active)));
}

function select(props) {
  const box = h("input", { type: "checkbox", tabIndex: -1, ...props });
  return h("span", { class: "cell cell-select", role: "gridcell" }, box);
}

function cell(one, row, active) {
  const attributes = { class: ["cell", one.numeric && "is-number"], role: "gridcell" };
  if (one.id === "name") return h("span", { ...attributes, class: "cell cell-name" }, link(row), flag(row));
  if (one.id === "status") return h("span", { ...attributes, class: "cell cell-status" }, state(row));
  if (one.id === "jobs")
    return h("span", { ...attributes, class: "cell cell-chips" }, chips(row, { reachable: active }));
  const text = one.text(row);
  const ages = one.id === "age" || (one.id === "duration" && row.status === "running");
  return h(
    "span",
    {
      ...attributes,
      title: one.hint?.(row) ?? (text.length > 12 ? text : null),
      dataset: ages ? { ages: one.id } : {},
    },
    text,
  );
}

/** A row where there is little room: two lines. */
function card(columns, row, active) {
  const rest = columns.filter((one) => !ON_TOP.has(one.id)).slice(0, ON_CARD);
  return h(
    "span",
    { class: "cell narrow-card", role: "gridcell" },
    h("span", { class: "narrow-line" }, link(row), flag(row), h("span", { class: "grow" }), state(row)),
    h(
      "span",
      { class: "narrow-line narrow-facts" },
      h("span", { class: "narrow-project" }, row.project),
      rest.map((one) => h("span", null, h("span", { class: "faint" }, `${one.title} `), one.text(row))),
    ),
    h("span", { class: "narrow-line narrow-chips" }, chips(row, { reachable: active })),
  );
}

function groupLine(item, { index, columns, selected, active, narrow }) {
  const chosen = item.rows.filter((row) => selected.has(row.key)).length;
  const running = item.rows.filter((row) => row.status === "running").length;
  const label = h(
    "button",
    { type: "button", class: "fold", tabIndex: -1, "aria-expanded": String(item.open), dataset: { fold: "1" } },
    h("span", { class: "fold-sign", "aria-hidden": "true" }, item.open ? "▾" : "▸"),
    h("strong", null, item.name),
    h("span", { class: "faint" }, ` ${plural(item.rows.length, "run")}${running ? `, ${running} running` : ""}`),
  );
  return h(
    "div",
    {
      class: ["grid-row", "grid-group", active && "is-active"],
      role: "row",
      id: `row-${index}`,
      "aria-rowindex": index + 2,
      dataset: { index },
    },
    select({
      checked: chosen === item.rows.length,
      indeterminate: chosen > 0 && chosen < item.rows.length,
      "aria-label": `Select the runs of ${item.name}`,
    }),
    h("span", { class: "cell cell-name", role: "gridcell" }, label),
    narrow ? null : columns.slice(1).map((one) => mean(item.means.get(one.id))),
  );
}

function mean(found) {
  if (!found) return h("span", { class: "cell", role: "gridcell" });
  const deviation = found.deviation === null ? "" : `, deviation ${number(found.deviation)}`;
  const all = found.times + found.odd;
  const title = `mean of ${found.times}${found.odd ? ` of ${all}: ${found.odd} NaN or infinite` : ""}${deviation}`;
  const part = found.odd > 0 && h("span", { class: "faint" }, ` ${found.times} of ${all}`);
  return h("span", { class: "cell is-number", role: "gridcell", title }, number(found.mean), part);
}

function link(row) {
  return h(
    "a",
    {
      class: "run-link",
      href: toRun(row.key),
      tabIndex: -1,
      title: row.title === row.run ? row.title : `${row.title} (${row.run})`,
    },
    row.title,
  );
}

function flag(row) {
  return (
    row.problem &&
    h("span", { class: "flag", role: "img", "aria-label": `damaged: ${row.problem}`, title: row.problem }, "!")
  );
}

function state(row) {
  const main = row.jobs.find((job) => job.job === "main");
  return badge(row.status, { silent: main ? isSilent(main, row.received) : false, reason: row.reason });
}
