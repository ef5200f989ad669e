// All runs: the bar with filter, groups and columns, the table, and what is selected.

import { h, replace, setText } from "../dom.js";
import { bind } from "../keys.js";
import { go, setParams, toCompare, toRun } from "../route.js";
import { keep, recall } from "../storage.js";
import { column, usual } from "./columns.js";
import { arrange, groupings } from "./model.js";
import { explain, notes, selection, tally } from "./notes.js";
import { pickColumns } from "./picker.js";
import { Table } from "./table.js";

const SORT = { by: "age", down: false };
const MOST_COMPARED = 100;

export function mount(container, { store, params }) {
  const page = new Page(container, store, params);
  return Object.assign(() => page.close(), { update: (route) => page.update(route.params) });
}

class Page {
  constructor(container, store, params) {
    document.title = "Runs · fsrun";
    this.store = store;
    this.closed = new Set();
    this.picked = recall("columns", null);
    this.widths = recall("widths", {});
    this.shown = [];
    this._build(container);
    this._read(params);
    this.table = new Table(this.place, {
      sort: (id) => this._sortBy(id),
      open: (key) => go(toRun(key)),
      select: (index, range) => this._select(index, range),
      selectGroup: (rows, on) => this._selectAll(rows, on),
      selectAll: (on) => this._selectAll(this.shown, on),
      fold: (name) => this._fold(name),
      move: (id, by) => this._moveColumn(id, by),
      resize: (id, px) => this._setWidths({ ...this.widths, [id]: px }),
    });
    this.unbind = bind(this._keys(), "Runs");
    this.unlisten = store.listen(() => this._soon());
    this.timer = setInterval(() => this.table.tick(), 1000);
    this._paint();
    if (store.place) this.table.goTo(store.place);
    if (matchMedia("(pointer: fine)").matches) this.table.element.focus({ preventScroll: true });
  }

  close() {
    this.store.place = this.table.place;
    this.unbind();
    this.unlisten();
    clearInterval(this.timer);
    cancelAnimationFrame(this.frame);
    this.table.close();
  }

  update(params) {
    this._read(params);
    this._paint();
    return true;
  }

  _read(params) {
    this.query = params.get("q") ?? "";
    const sort = params.get("sort") ?? "";
    this.sort = sort ? { by: sort.replace(/^-/, ""), down: sort.startsWith("-") } : SORT;
    this.group = params.get("group") ?? "";
    if (this.filter.value !== this.query) this.filter.value = this.query;
    this._remember();
  }

  _build(container) {
    this.filter = h("input", {
      type: "search",
      class: "field filter",
      placeholder: "Filter: name  status:running  eval/acc>0.9",
      "aria-label": "Filter the runs",
      spellcheck: "false",
      autocomplete: "off",
      enterkeyhint: "search",
      oninput: () => this._setQuery(this.filter.value),
      onkeydown: (event) => this._inFilter(event),
    });
    this.groups = h("select", {
      class: "field",
      "aria-label": "Group by",
      onchange: () => this._setGroup(this.groups.value),
      onpointerdown: () => this._offerGroups(),
      onfocus: () => this._offerGroups(),
    });
    this.sorts = h("select", {
      class: "field only-narrow",
      "aria-label": "Sort by",
      onchange: () => this._setSort(JSON.parse(this.sorts.value)),
    });
    this.tally = h("span", { class: "tally", role: "status", "aria-live": "polite" });
    this.notes = h("div", { class: "notes" });
    this.place = h("div", { class: "table-place" });
    this.chosen = h("div", { class: "chosen", role: "region", "aria-label": "Selection", hidden: true });
    container.append(
      h(
        "div",
        { class: "page page-runs" },
        h("h1", { class: "unseen" }, "Runs"),
        h(
          "div",
          { class: "bar" },
          this.filter,
          h(
            "button",
            {
              type: "button",
              class: "button quiet help-button",
              "aria-label": "How to filter",
              title: "How to filter",
              onclick: explain,
            },
            "?",
          ),
          h("label", { class: "labelled" }, h("span", { class: "faint" }, "Group"), this.groups),
          this.sorts,
          h("button", { type: "button", class: "button", onclick: () => this._pick() }, "Columns"),
          h("span", { class: "grow" }),
          this.tally,
        ),
        this.notes,
        this.place,
        this.chosen,
      ),
    );
  }

  _columns() {
    this.usual ??= this.store.scanning ? null : usual([...this.store.rows.values()]);
    const ids = this.picked ?? this.usual ?? usual([...this.store.rows.values()]);
    const known = ids.filter((id) => column(id));
    return known.includes("name") ? known : ["name", ...known];
  }

  _soon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this._paint();
    });
  }

  _paint() {
    const columns = this._columns();
    const rows = this.store.newest();
    const { items, shown } = arrange(rows, {
      query: this.query,
      sort: this.sort,
      group: this.group,
      closed: this.closed,
      columns,
    });
    this.shown = shown;
    this.table.show({ items, columns, widths: this.widths, sort: this.sort, selected: this.store.selected });
    this._offerGroups();
    this._offerSorts(columns);
    this._tell(rows);
    this._tellChosen();
  }

  _tell(rows) {
    setText(this.tally, tally(this.store, rows, this.shown));
    const found = notes(this.store, rows, this.shown, () => this._setQuery(""));
    const text = found.map((one) => one.textContent).join("\n");
    if (text === this.noted) return;
    this.noted = text;
    replace(this.notes, found);
  }

  _tellChosen() {
    const { selected } = this.store;
    this.chosen.hidden = !selected.size;
    replace(
      this.chosen,
      selection(
        selected.size,
        MOST_COMPARED,
        () => this._compare(),
        () => this._selectNone(),
      ),
    );
  }

  _offerSorts(columns) {
    const now = JSON.stringify(this.sort);
    const offers = columns.flatMap((id) => [true, false].map((down) => ({ by: id, down })));
    if (!offers.some((one) => JSON.stringify(one) === now)) offers.unshift(this.sort);
    const key = JSON.stringify(offers);
    if (key !== this.sortsKey) {
      this.sortsKey = key;
      replace(
        this.sorts,
        offers.map((one) =>
          h("option", { value: JSON.stringify(one) }, `${column(one.by)?.title ?? one.by} ${one.down ? "↓" : "↑"}`),
        ),
      );
    }
    this.sorts.value = now;
  }

  /** Fills the list of groupings anew where runs have changed: only while it is needed, since it reads all settings. */
  _offerGroups() {
    const needed =
      document.activeElement === this.groups || this.groups.matches(":hover") || !this.groups.options.length;
    if (this.offered !== this.store.version && needed) {
      this.offered = this.store.version;
      const settings = groupings([...this.store.rows.values()]).map((key) => `config:${key}`);
      const ids = ["", "project", "status", "host", ...settings];
      if (!ids.includes(this.group)) ids.push(this.group);
      const key = JSON.stringify(ids);
      if (key !== this.groupsKey && document.activeElement !== this.groups) {
        this.groupsKey = key;
        replace(
          this.groups,
          ids.map((id) => h("option", { value: id }, id ? (column(id)?.title ?? id) : "no groups")),
        );
      }
    }
    if (![...this.groups.options].some((option) => option.value === this.group))
      this.groups.append(h("option", { value: this.group }, column(this.group)?.title ?? this.group));
    if (document.activeElement !== this.groups) this.groups.value = this.group;
  }

  _setQuery(text) {
    this.query = text;
    if (this.filter.value !== text) this.filter.value = text;
    setParams({ q: text });
    this.table.element.scrollTop = 0;
    this._remember();
    this._paint();
  }

  _setSort(sort) {
    this.sort = sort;
    setParams({ sort: sort.by === SORT.by && sort.down === SORT.down ? null : `${sort.down ? "-" : ""}${sort.by}` });
    this._remember();
    this._paint();
  }

  _sortBy(id) {
    const first = column(id).descending ?? Boolean(column(id).numeric);
    if (this.sort.by !== id) this._setSort({ by: id, down: first });
    else this._setSort({ by: id, down: !this.sort.down });
  }

  _setGroup(id) {
    this.group = id;
    this.closed.clear();
    this.table.element.scrollTop = 0;
    setParams({ group: id });
    this._remember();
    this._paint();
  }

  _remember() {
    keep("runs", location.hash || "#/");
  }

  _setWidths(widths) {
    this.widths = widths;
    keep("widths", widths);
    this._paint();
  }

  _setColumns(ids) {
    this.picked = ids;
    keep("columns", ids);
    this._paint();
  }

  _moveColumn(id, by) {
    const ids = [...this._columns()];
    const at = ids.indexOf(id);
    const to = at + by;
    if (at < 1 || to < 1 || to >= ids.length) return;
    ids.splice(to, 0, ...ids.splice(at, 1));
    this._setColumns(ids);
  }

  _pick() {
    pickColumns({
      rows: [...this.store.rows.values()],
      now: () => this._columns(),
      set: (ids) => this._setColumns(ids),
      usual: () => this._setColumns(null),
    });
  }

  _select(index, range) {
    const { items } = this.table;
    const item = items[index];
    if (item?.kind !== "row") return;
    const on = !this.store.selected.has(item.row.key);
    const from = range && this.lastIndex !== undefined ? this.lastIndex : index;
    for (let at = Math.min(from, index); at <= Math.max(from, index); at += 1)
      if (items[at]?.kind === "row") this._put(items[at].row.key, on);
    this.lastIndex = index;
    this._paint();
  }

  _put(key, on) {
    if (on) this.store.selected.add(key);
    else this.store.selected.delete(key);
  }

  _selectAll(rows, on) {
    for (const row of rows) this._put(row.key, on);
    this._paint();
  }

  _selectNone() {
    this.store.selected.clear();
    this._paint();
    this.table.element.focus();
  }

  _fold(name) {
    if (!this.closed.delete(name)) this.closed.add(name);
    this._paint();
  }

  _compare() {
    const keys = this.shown.map((row) => row.key).filter((key) => this.store.selected.has(key));
    const rest = [...this.store.selected].filter((key) => !keys.includes(key));
    const all = [...keys, ...rest];
    if (all.length && all.length <= MOST_COMPARED) go(toCompare(all, "", { group: this.group }));
  }

  _inFilter(event) {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      this.table.element.focus();
      this.table.move(0);
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (this.filter.value) this._setQuery("");
      else this.table.element.focus();
    }
  }

  _keys() {
    const { table } = this;
    const inTable = () =>
      !(document.activeElement instanceof HTMLButtonElement || document.activeElement?.matches("a, .chip, summary"));
    const act = (work) => (event) => (inTable(event) ? void work() : false);
    return [
      { key: "/", does: "Filter", run: () => this.filter.select() },
      { key: "j", does: "Next run", run: () => table.step(1) },
      { key: "k", does: "Run before", run: () => table.step(-1) },
      { key: "ArrowDown", hidden: true, run: act(() => table.step(1)) },
      { key: "ArrowUp", hidden: true, run: act(() => table.step(-1)) },
      { key: "PageDown", hidden: true, run: act(() => table.page(1)) },
      { key: "PageUp", hidden: true, run: act(() => table.page(-1)) },
      { key: "Home", hidden: true, run: act(() => table.move(0)) },
      { key: "End", hidden: true, run: act(() => table.move(table.items.length - 1)) },
      { key: "g", does: "First run", run: () => table.move(0) },
      { key: "G", does: "Last run", run: () => table.move(table.items.length - 1) },
      { key: "Enter", does: "Open the run, or fold the group", run: act(() => this._enter()) },
      { key: "x", does: "Select it", run: () => this._toggle() },
      { key: " ", hidden: true, run: act(() => this._toggle()) },
      {
        key: "X",
        does: "Select all that are shown, or none",
        run: () => this._selectAll(this.shown, !this.shown.every((row) => this.store.selected.has(row.key))),
      },
      { key: "c", does: "Compare what is selected", run: () => this._compare() },
      { key: "Escape", does: "Clear filter, then selection", run: () => this._escape() },
    ];
  }

  _enter() {
    const item = this.table.activeItem;
    if (item?.kind === "group") this._fold(item.name);
    else if (item) go(toRun(item.row.key));
  }

  _toggle() {
    const item = this.table.activeItem;
    if (item?.kind === "group") this._selectAll(item.rows, !item.rows.every((row) => this.store.selected.has(row.key)));
    else if (item) this._select(this.table.active, false);
  }

  _escape() {
    if (this.query) this._setQuery("");
    else if (this.store.selected.size) this._selectNone();
    else return false;
  }
}
