// The table itself: only the rows in sight are elements, so that ten thousand are as fast as ten.

import { h, replace, setText } from "../dom.js";
import { column } from "./columns.js";
import { line, looks } from "./lines.js";

const BEYOND = 6;
const SELECT_WIDTH = 34;
/** Pixels; `pin`: of the line of a group that stays in sight. As in runs.css. */
const WIDE = { row: 32, head: 32, pin: 32 };
const NARROW = { row: 74, head: 0, pin: 40 };
const LEAST_WIDTH = 48;

export class Table {
  /** `on`: `{sort(id), open(key), select(key, range), selectGroup(rows, on), fold(name), move(id, by), resize(id, px)}`. */
  constructor(container, on) {
    this._on = on;
    this.items = [];
    this.columns = [];
    this._groups = [];
    this.widths = {};
    this.sort = { by: "", down: false };
    this.selected = new Set();
    this.active = -1;
    this._activeKey = null;
    this._drawn = new Map();
    this._narrow = matchMedia("(max-width: 640px)");
    this._body = h("div", { class: "grid-body", role: "rowgroup" });
    this._head = h("div", { class: "grid-row grid-head", role: "row", "aria-rowindex": 1 });
    // The group that one is amid, for eyes and the pointer; its own line says it to others.
    this._pinned = h("div", { class: "grid-pinned", "aria-hidden": "true" });
    this._scroll = h(
      "div",
      {
        class: "grid",
        role: "grid",
        tabIndex: 0,
        "aria-label": "Runs",
        "aria-multiselectable": "true",
        dataset: { list: "runs" },
      },
      h("div", { class: "grid-head-group", role: "rowgroup" }, this._head, this._pinned),
      this._body,
    );
    container.append(this._scroll);
    this._frame = 0;
    this._refocus = null;
    this._later = () => {
      this._frame ||= requestAnimationFrame(() => {
        this._frame = 0;
        this._draw();
      });
    };
    this._refit = () => this.refresh();
    this._scroll.addEventListener("scroll", this._later, { passive: true });
    this._scroll.addEventListener("click", (event) => this._click(event));
    this._scroll.addEventListener("dblclick", (event) => this._open(event));
    this._scroll.addEventListener("focus", () => {
      if (this.active < 0 && this.items.length) this.move(this._first());
    });
    this._narrow.addEventListener("change", this._refit);
    this._watch = new ResizeObserver(this._later);
    this._watch.observe(this._scroll);
  }

  close() {
    this._narrow.removeEventListener("change", this._refit);
    this._watch.disconnect();
    cancelAnimationFrame(this._frame);
    this._scroll.remove();
  }

  get element() {
    return this._scroll;
  }

  /** Where one reads: to be given to `goTo` when the table is built anew. */
  get place() {
    return { top: this._scroll.scrollTop, active: this._activeKey };
  }

  /** Go where one was. */
  goTo({ top, active }) {
    this._activeKey = active;
    this.active = this.items.findIndex((item) => keyOf(item) === active);
    this._body.style.height = `${this.items.length * this._sizes().row}px`;
    this._scroll.scrollTop = top;
    this.refresh();
  }

  /** Show other lines, columns or order. The place where one reads stays. */
  show({ items, columns, widths, sort, selected }) {
    Object.assign(this, { items, widths, sort, selected, columns: columns.map(column).filter(Boolean) });
    this._groups = items.flatMap((item, index) => (item.kind === "group" ? [index] : []));
    if (this._activeKey !== null) this.active = items.findIndex((item) => keyOf(item) === this._activeKey);
    const frame = JSON.stringify([columns, widths, sort]);
    if (frame !== this._shownFrame) {
      this._shownFrame = frame;
      this.refresh();
      return;
    }
    // What did not change stays, with the pointer and the focus in it.
    for (const [index, element] of this._drawn) {
      if (element.sign !== looks(items[index], this._look(index)) || element.row !== items[index]?.row)
        this._redraw(index);
    }
    this._heading();
    this._draw();
  }

  _look(index) {
    const { columns, selected } = this;
    return { index, columns, selected, active: index === this.active, narrow: this._narrow.matches };
  }

  /** Draw all that is in sight anew. */
  refresh() {
    this._drawn.clear();
    this._body.replaceChildren();
    this._heading();
    this._draw();
  }

  /** Ages that went on, and silences that began. */
  tick() {
    for (const [index, element] of this._drawn) {
      const item = this.items[index];
      if (item?.kind !== "row") continue;
      if (element.sign !== looks(item, this._look(index))) this._redraw(index);
      else
        for (const cell of element.querySelectorAll("[data-ages]"))
          setText(cell, column(cell.dataset.ages).text(item.row));
    }
    this._draw();
  }

  /** Make a line the active one. */
  move(index) {
    if (!this.items.length) return;
    const before = this.active;
    this.active = Math.max(0, Math.min(this.items.length - 1, index));
    this._activeKey = keyOf(this.items[this.active]);
    this._reveal();
    for (const at of [before, this.active]) this._redraw(at);
    this._draw();
    this._scroll.setAttribute("aria-activedescendant", `row-${this.active}`);
  }

  step(by) {
    this.move(this.active < 0 ? this._first() : this.active + by);
  }

  page(by) {
    this.step(by * Math.max(1, Math.floor((this._scroll.clientHeight - this._sizes().head) / this._sizes().row) - 1));
  }

  get activeItem() {
    return this.items[this.active] ?? null;
  }

  _first() {
    return Math.round(this._scroll.scrollTop / this._sizes().row);
  }

  _sizes() {
    return this._narrow.matches ? NARROW : WIDE;
  }

  _reveal() {
    const { row, head, pin } = this._sizes();
    const top = this.active * row;
    const height = this._scroll.clientHeight - head;
    const above = this._groups.length && this.items[this.active].kind === "row" ? pin : 0;
    if (top - above < this._scroll.scrollTop) this._scroll.scrollTop = top - above;
    else if (top + row > this._scroll.scrollTop + height) this._scroll.scrollTop = top + row - height;
  }

  _redraw(index) {
    const element = this._drawn.get(index);
    const focused = element?.contains(document.activeElement) ? document.activeElement.closest(".chip") : null;
    if (focused) this._refocus = { ...focused.dataset };
    element?.remove();
    this._drawn.delete(index);
  }

  /** The focus goes to the chip that stands for the one that had it. */
  _focusAgain() {
    const wanted = this._refocus;
    this._refocus = null;
    if (!wanted) return;
    const chips = [...this._body.querySelectorAll(".chip")];
    const again = chips.find((chip) => chip.dataset.key === wanted.key && chip.dataset.job === wanted.job);
    (again ?? this._scroll).focus({ preventScroll: true });
  }

  _draw() {
    const { row, head } = this._sizes();
    this._body.style.height = `${this.items.length * row}px`;
    const first = Math.max(0, Math.floor(this._scroll.scrollTop / row) - BEYOND);
    const last = Math.min(
      this.items.length,
      Math.ceil((this._scroll.scrollTop + this._scroll.clientHeight - head) / row) + BEYOND,
    );
    for (const [index, element] of this._drawn) {
      if (index >= first && index < last) continue;
      // A row that has the focus stays, or the keyboard would be lost.
      if (element.contains(document.activeElement)) continue;
      element.remove();
      this._drawn.delete(index);
    }
    const fresh = document.createDocumentFragment();
    for (let index = first; index < last; index += 1) {
      if (this._drawn.has(index)) continue;
      const element = line(this.items[index], this._look(index));
      element.style.transform = `translateY(${index * row}px)`;
      Object.assign(element, { row: this.items[index].row, sign: looks(this.items[index], this._look(index)) });
      this._drawn.set(index, element);
      fresh.append(element);
    }
    this._body.append(fresh);
    this._pin();
    this._focusAgain();
    this._scroll.setAttribute("aria-rowcount", this.items.length + 1);
    this._scroll.setAttribute("aria-colcount", this.columns.length + 1);
  }

  /** Keep the line of the group that one is amid in sight; the next one pushes it out. */
  _pin() {
    const { row, pin } = this._sizes();
    const top = this._scroll.scrollTop;
    const place = this._groups.findLastIndex((index) => index * row < top);
    const index = place < 0 ? -1 : this._groups[place];
    const item = this.items[index];
    const sign = index < 0 ? "" : `${index} ${looks(item, this._look(index))} ${this._shownFrame} ${this._narrow.matches}`;
    if (sign !== this._pinnedSign) {
      this._pinnedSign = sign;
      replace(this._pinned, index < 0 ? [] : line(item, this._look(index)));
      this._pinned.firstChild?.removeAttribute("id");
    }
    const next = this._groups[place + 1];
    const push = index < 0 || next === undefined ? 0 : Math.min(0, next * row - top - pin);
    this._pinned.style.transform = push ? `translateY(${push}px)` : "";
  }

  _heading() {
    const widths = this.columns.map((one) => this.widths[one.id] ?? one.width);
    this._scroll.style.setProperty("--columns", [SELECT_WIDTH, ...widths].map((px) => `${px}px`).join(" "));
    this._scroll.style.setProperty("--whole", `${SELECT_WIDTH + widths.reduce((a, b) => a + b, 0)}px`);
    this._scroll.classList.toggle("is-narrow", this._narrow.matches);
    const focused = this._head.contains(document.activeElement) ? document.activeElement.dataset.column : null;
    const rows = this.items.filter((item) => item.kind === "row");
    const chosen = rows.length > 0 && rows.every((item) => this.selected.has(item.row.key));
    const some = !chosen && rows.some((item) => this.selected.has(item.row.key));
    replace(
      this._head,
      h(
        "span",
        { class: "cell cell-select", role: "columnheader" },
        h("input", {
          type: "checkbox",
          "aria-label": "Select all that are shown",
          tabIndex: -1,
          checked: chosen,
          indeterminate: some,
          dataset: { all: "1" },
        }),
      ),
      this.columns.map((one) => this._headCell(one)),
    );
    if (focused)
      [...this._head.querySelectorAll("button")].find((button) => button.dataset.column === focused)?.focus();
  }

  _headCell(one) {
    const sorted = this.sort.by === one.id;
    const keys = (event) => {
      if (!event.shiftKey || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault();
      this._on.move(one.id, event.key === "ArrowLeft" ? -1 : 1);
    };
    return h(
      "span",
      {
        class: ["cell", one.numeric && "is-number", one.kind && `is-${one.kind}`],
        role: "columnheader",
        "aria-sort": sorted ? (this.sort.down ? "descending" : "ascending") : "none",
      },
      h(
        "button",
        {
          type: "button",
          class: "head-button",
          title: `${one.title}: sort; Shift with an arrow moves the column`,
          dataset: { column: one.id },
          onclick: () => this._on.sort(one.id),
          onkeydown: keys,
        },
        h("span", { class: "head-title" }, one.title),
        sorted && h("span", { class: "head-sort", "aria-hidden": "true" }, this.sort.down ? "↓" : "↑"),
      ),
      h("span", { class: "head-edge", "aria-hidden": "true", onpointerdown: (event) => this._resize(event, one) }),
    );
  }

  _resize(event, one) {
    event.preventDefault();
    const edge = event.currentTarget;
    const [from, began] = [event.clientX, this.widths[one.id] ?? one.width];
    edge.setPointerCapture(event.pointerId);
    const width = (move) => Math.max(LEAST_WIDTH, Math.round(began + move.clientX - from));
    const move = (now) => {
      this.widths = { ...this.widths, [one.id]: width(now) };
      const widths = this.columns.map((each) => this.widths[each.id] ?? each.width);
      this._scroll.style.setProperty("--columns", [SELECT_WIDTH, ...widths].map((px) => `${px}px`).join(" "));
      this._scroll.style.setProperty("--whole", `${SELECT_WIDTH + widths.reduce((a, b) => a + b, 0)}px`);
    };
    edge.addEventListener("pointermove", move);
    edge.addEventListener(
      "pointerup",
      (up) => {
        edge.removeEventListener("pointermove", move);
        this._on.resize(one.id, width(up));
      },
      { once: true },
    );
  }

  _click(event) {
    const { target } = event;
    if (target.dataset?.all) return this._on.selectAll(target.checked);
    const line = target.closest("[data-index]");
    if (!line || target.closest("a")) return;
    const index = Number(line.dataset.index);
    const item = this.items[index];
    if (!item) return;
    if (target.matches("input[type=checkbox]")) {
      if (item.kind === "group") this._on.selectGroup(item.rows, target.checked);
      else this._on.select(index, event.shiftKey);
      this._activeKey = keyOf(item);
      this.active = index;
      return;
    }
    if (item.kind === "group") {
      // What is folded from amid its rows stays in sight.
      if (this._pinned.contains(line)) this._scroll.scrollTop = index * this._sizes().row;
      return this._on.fold(item.name);
    }
    if (target.closest(".chip")) return;
    if (this._narrow.matches) this._on.open(item.row.key);
    else this.move(index);
  }

  _open(event) {
    const line = event.target.closest("[data-key]");
    if (line && !event.target.closest("input, a, .chip")) this._on.open(line.dataset.key);
  }
}

function keyOf(item) {
  return item === undefined || item === null ? null : item.kind === "row" ? item.row.key : `group ${item.name}`;
}
