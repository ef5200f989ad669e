// Tables that a run logged: one by name and step, a page of rows at a time.

import { about, fileAddress, get } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { bytes, count, number } from "../format.js";
import { setParams } from "../route.js";
import { pager, problems, say, select } from "./pages.js";

const SIZE = 100;

export function mount(container, { run, params, watched }) {
  const control = new AbortController();
  const chosen = { name: params.get("name"), step: params.get("step"), offset: 0 };
  let tables = [];
  let turn = 0;
  const names = select("Table", (name) => change({ name, step: null }));
  const steps = select("Step", (step) => change({ step }));
  const pages = pager(SIZE, (offset) => change({ offset }));
  const told = h("span", { class: "faint" });
  const keep = h("a", { class: "button quiet", hidden: true, download: "" }, "Download");
  const notes = h("div");
  const body = h("div");
  const bar = h(
    "div",
    { class: "content-bar is-stuck", hidden: true },
    names,
    steps,
    told,
    h("span", { class: "grow" }),
    pages,
    keep,
  );
  container.append(bar, notes, body);

  function change(changes) {
    Object.assign(chosen, { offset: 0 }, changes);
    setParams({ name: chosen.name, step: chosen.step });
    read();
  }

  async function list() {
    try {
      const answer = await get(about(run, "/tables"), { signal: control.signal });
      tables = answer.tables;
      replace(notes, problems(answer.problems));
      bar.hidden = !tables.length;
      if (tables.length) await read();
      else say(body, "No tables were logged.");
    } catch (error) {
      if (error.name !== "AbortError") say(body, error.message, true);
    }
  }

  async function read() {
    const mine = ++turn;
    const one = tables.find((table) => table.name === chosen.name) ?? tables[0];
    const step = one.steps.map(String).includes(String(chosen.step)) ? chosen.step : one.steps.at(-1);
    names.show(
      tables.map((table) => [table.name, table.count > 1 ? `${table.name} (${count(table.count)})` : table.name]),
      one.name,
    );
    steps.show(
      [...one.steps].reverse().map((at) => [at, `step ${count(at)}`]),
      step,
    );
    try {
      const query = { name: one.name, step, offset: chosen.offset, limit: SIZE };
      const answer = await get(about(run, "/table", query), { signal: control.signal });
      if (mine !== turn) return;
      pages.show({ offset: answer.offset, rows: answer.rows.length, total: answer.total });
      const hidden = answer.hidden_columns ? `, ${count(answer.hidden_columns)} columns more in the file` : "";
      setText(told, `${count(answer.total)} × ${count(answer.columns.length)}${hidden}`);
      keep.hidden = false;
      keep.setAttribute("href", `${fileAddress(run, answer.path)}?download`);
      keep.title = `Parquet${one.step === step ? `, ${bytes(one.size)}` : ""}`;
      replace(body, shown(answer));
    } catch (error) {
      if (error.name !== "AbortError" && mine === turn) say(body, error.message, true);
    }
  }

  let many = null;
  const unlisten = watched.listen((state) => {
    const now = (state.recorded ?? []).filter((one) => one.kind === "table").reduce((sum, one) => sum + one.count, 0);
    if (many !== null && now !== many) list();
    many = now;
  });
  list();
  return () => {
    unlisten();
    control.abort();
  };
}

function shown({ columns, rows, offset }) {
  const numeric = columns.map((column) => /^(u?int|float|double|halffloat|decimal)/.test(column.type));
  return h(
    "div",
    { class: "content data-rows" },
    h(
      "table",
      { class: "table" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col", class: "is-number" }, "#"),
          columns.map((column, at) =>
            h("th", { scope: "col", class: numeric[at] && "is-number", title: column.type }, column.name),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row, place) =>
          h(
            "tr",
            null,
            h("td", { class: "is-number faint" }, count(offset + place + 1)),
            row.map((value, at) => h("td", { class: numeric[at] && "is-number" }, cell(value))),
          ),
        ),
      ),
    ),
  );
}

function cell(value) {
  if (value === null) return h("span", { class: "faint" }, "null");
  if (typeof value === "number") return number(value, 6);
  return typeof value === "string" ? value : JSON.stringify(value);
}
