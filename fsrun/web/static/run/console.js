// The console of a job: its end, followed; further back and forth by pieces, as far as the file goes; a search in it.

import { about, fileAddress, get, poll } from "../api.js";
import { append, h, replace, setText } from "../dom.js";
import { bytes, count } from "../format.js";
import { bind } from "../keys.js";
import { setParams } from "../route.js";
import { badge } from "../runs/chips.js";
import { Terminal } from "./ansi.js";

const PIECE = 65536;
const MOST_LINES = 6000;
const EVERY = 1;
const NEAR = 40;

export function mount(container, { run, params }) {
  const view = new Console(container, run, params);
  return () => view.close();
}

class Console {
  constructor(container, run, params) {
    this.run = run;
    this.job = params.get("job") || "main";
    this.session = params.get("session") || null;
    this.control = new AbortController();
    this.turn = 0;
    this.jobs = h("select", {
      class: "field",
      "aria-label": "Job",
      onchange: () => this._choose(this.jobs.value, null),
    });
    this.sessions = h("select", {
      class: "field",
      "aria-label": "Session",
      onchange: () => this._choose(this.job, this.sessions.value),
    });
    this.find = h("input", {
      type: "search",
      class: "field",
      placeholder: "Find",
      "aria-label": "Find in the console",
    });
    this.follow = h("button", { class: "button", type: "button", onclick: () => this._toEnd() }, "Follow");
    this.wrap = h("input", { type: "checkbox", checked: true, onchange: () => this._wrapped() });
    this.where = h("span", { class: "faint number" });
    this.keep = h("a", { class: "button quiet", hidden: true, download: "" }, "Download");
    this.found = h("div", { class: "console-found", hidden: true });
    this.lines = h("div", { class: "console-lines" });
    this.end = h("div", { class: "console-end", hidden: true });
    this.screen = h(
      "div",
      { class: "console-screen is-wrapped", tabIndex: 0, role: "log", "aria-live": "off", "aria-label": "Console" },
      this.lines,
      this.end,
    );
    const form = h(
      "form",
      { class: "console-find", onsubmit: (event) => (event.preventDefault(), this._search(0)) },
      this.find,
      h("button", { class: "button" }, "Find"),
    );
    this.find.addEventListener("input", () => this.find.value || this._noSearch());
    container.append(
      h(
        "div",
        { class: "console" },
        h(
          "div",
          { class: "content-bar" },
          this.jobs,
          this.sessions,
          form,
          h("label", { class: "labelled" }, this.wrap, "wrap"),
          h("button", { class: "button", type: "button", onclick: () => this._at(0) }, "Start"),
          this.follow,
          h("span", { class: "grow" }),
          this.where,
          this.keep,
        ),
        this.found,
        this.screen,
      ),
    );
    this.resized = new ResizeObserver(() => this.following && this._bottom());
    this.resized.observe(this.screen);
    this.screen.addEventListener("scroll", () => this._scrolled(), { passive: true });
    this.unbind = bind(
      [
        { key: "f", does: "Find in the console", run: () => this.find.focus() },
        { key: "g", does: "Start of the console", run: () => void this._at(0) },
        { key: "G", does: "End of the console, followed", run: () => this._toEnd() },
      ],
      "Console",
    );
    this._toEnd();
    this.stop = poll((options) => this._more(options), EVERY);
  }

  close() {
    this.control.abort();
    this.resized.disconnect();
    this.stop();
    this.unbind();
  }

  _choose(job, session) {
    this.job = job;
    this.session = session;
    setParams({ job: job === "main" ? null : job, session });
    this._noSearch();
    this._toEnd();
  }

  _ask(query, signal = this.control.signal) {
    return get(about(this.run, "/console", { job: this.job, session: this.session, ...query }), { signal });
  }

  /** Forget what is shown, and begin at a byte; at the end where it is negative. */
  async _at(offset, mark = null) {
    const mine = ++this.turn;
    this._following(offset < 0);
    this.loading = true;
    try {
      const piece = await this._ask({ offset, limit: PIECE });
      if (mine !== this.turn) return;
      this.lines.replaceChildren();
      this.blocks = [];
      this.terminal = new Terminal();
      this.open = null;
      this.first = piece.offset;
      this._tell(piece);
      this._append(piece, mark);
      if (this.following) this._bottom();
      else {
        this.screen.scrollTop = 0;
        this.lines.querySelector(".is-found")?.scrollIntoView({ block: "center" });
      }
    } catch (error) {
      if (error.name !== "AbortError" && mine === this.turn) this._fail(error);
    } finally {
      if (mine === this.turn) this.loading = false;
    }
  }

  _toEnd() {
    this._at(-PIECE);
  }

  _following(yes) {
    this.following = yes;
    this.follow.setAttribute("aria-pressed", String(yes));
  }

  _bottom() {
    this.screen.scrollTop = this.screen.scrollHeight;
  }

  _wrapped() {
    this.screen.classList.toggle("is-wrapped", this.wrap.checked);
    if (this.following) this._bottom();
  }

  /** What came since. */
  async _more({ signal }) {
    if (this.loading || !this.following || this.next === undefined) {
      if (this.failed && !this.loading) await this._at(-PIECE);
      return;
    }
    const mine = this.turn;
    const piece = await this._ask({ offset: this.next, limit: PIECE }, signal);
    if (mine !== this.turn || this.loading) return;
    if (piece.size < this.next || String(piece.session) !== String(this.shownSession)) {
      this._toEnd();
      return;
    }
    this._tell(piece);
    if (!piece.text) return;
    this._append(piece);
    this._trim("first");
    this._bottom();
    if (piece.next < piece.size) this.stop.now();
  }

  async _scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.screen;
    const below = scrollHeight - clientHeight - scrollTop;
    if (this.following && below > NEAR && scrollTop < (this.lastTop ?? 0)) this._following(false);
    this.lastTop = scrollTop;
    if (this.loading || this.next === undefined) return;
    if (!this.following && below < NEAR && this.next >= this.size) this._following(true);
    else if (scrollTop < NEAR && this.first > 0) await this._page(() => this._before());
    else if (!this.following && below < NEAR * 5 && this.next < this.size) await this._page(() => this._after());
  }

  async _page(work) {
    this.loading = true;
    const mine = this.turn;
    try {
      await work(mine);
    } catch (error) {
      if (error.name !== "AbortError") this._fail(error, false);
    } finally {
      if (mine === this.turn) this.loading = false;
    }
  }

  async _before() {
    const mine = this.turn;
    const piece = await this._ask({ before: this.first, limit: PIECE });
    if (mine !== this.turn || piece.offset >= this.first) return;
    const terminal = new Terminal();
    const texts = piece.text.split("\n");
    if (texts.at(-1) === "") texts.pop();
    const block = h(
      "div",
      null,
      texts.map((text) => terminal.line(text)),
    );
    const height = this.screen.scrollHeight;
    this.first = piece.offset;
    this.blocks.unshift({ element: block, first: piece.offset, next: piece.next });
    this.lines.prepend(block);
    this.screen.scrollTop += this.screen.scrollHeight - height;
    this._following(false);
    this._trim("last");
    this._place();
  }

  async _after() {
    const mine = this.turn;
    const piece = await this._ask({ offset: this.next, limit: PIECE });
    if (mine !== this.turn) return;
    this._tell(piece);
    this._append(piece);
    const height = this.screen.scrollHeight;
    if (this._trim("first")) this.screen.scrollTop -= height - this.screen.scrollHeight;
  }

  /** Lines of a piece; a last one without an end is written anew when more of it comes. */
  _append(piece, mark = null) {
    const texts = piece.text.split("\n");
    if (this.open && piece.text) {
      const { row, style, text } = this.open;
      this.terminal.style = style;
      const whole = this.terminal.line(text + texts.shift());
      row.replaceWith(whole);
      this.open = texts.length ? null : { row: whole, style, text: text + piece.text };
    }
    const rest = texts.pop();
    const rows = texts.map((one) => this.terminal.line(one));
    if (rest) {
      const style = { ...this.terminal.style };
      const row = this.terminal.line(rest);
      rows.push(row);
      this.open = { row, style, text: rest };
    }
    // A line without an end is not gathered for ever.
    if (this.open && this.open.text.length >= PIECE) this.open = null;
    if (mark !== null && rows[0]) rows[0].classList.add("is-found");
    const last = this.blocks.at(-1);
    if (rows.length || !last) {
      const block = h("div", null, rows);
      this.blocks.push({ element: block, first: piece.offset, next: piece.next });
      this.lines.append(block);
    } else last.next = piece.next; // more of its last line: a progress bar writes for hours without an end
    this.next = piece.next;
    this._place();
  }

  /** Only so many lines stay in the page; whole pieces go, and are read again when one comes back to them. */
  _trim(end) {
    let many = this.blocks.reduce((sum, one) => sum + one.element.childElementCount, 0);
    const before = this.blocks.length;
    while (this.blocks.length > 1) {
      const one = end === "first" ? this.blocks[0] : this.blocks.at(-1);
      many -= one.element.childElementCount;
      if (many < MOST_LINES) break;
      one.element.remove();
      if (end === "first") this.blocks.shift();
      else this.blocks.pop();
    }
    if (this.blocks.length === before) return false;
    this.first = this.blocks[0].first;
    this.next = this.blocks.at(-1).next;
    if (end === "last") {
      this.open = null;
      this.terminal = new Terminal();
    }
    return true;
  }

  _tell(piece) {
    this.failed = false;
    this.size = piece.size;
    this.shownSession = piece.session;
    options(this.jobs, piece.jobs.includes(this.job) ? piece.jobs : [this.job, ...piece.jobs], this.job, (job) => job);
    const numbers = [...piece.sessions].reverse();
    options(this.sessions, numbers, String(piece.session), (number) => `session ${number}`);
    this.sessions.hidden = numbers.length < 2;
    this.jobs.hidden = this.jobs.options.length < 2;
    this.keep.hidden = !piece.path;
    if (piece.path) this.keep.setAttribute("href", `${fileAddress(this.run, piece.path)}?download`);
    this._none(piece);
    this._ended(piece.failure);
    this.done = piece.done;
  }

  /** Why there is nothing to read, where that is so. */
  _none({ session, size, done }) {
    const why =
      session === null
        ? "Nothing was printed, or the console was not recorded."
        : size > 0
          ? ""
          : done
            ? "Nothing was printed."
            : "Nothing was printed so far.";
    const told = this.lines.querySelector(".console-none");
    if (!why || this.lines.querySelector(".console-line")) told?.remove();
    else if (told) setText(told, why);
    else this.lines.append(h("p", { class: "console-none" }, why));
  }

  /** What the session failed of; it stands below the last line, since it was printed after the recording ended. */
  _ended(failure) {
    const text = JSON.stringify(failure ?? null);
    if (text === this.failure) return;
    this.failure = text;
    replace(this.end);
    if (!failure) return;
    const { type, message, traceback, status, reason, session } = failure;
    const said = type || message ? [type, message].filter(Boolean).join(": ") : reason;
    append(this.end, [
      h("p", { class: "console-end-head" }, `session ${session} `, badge(status, { reason }), said !== reason && reason),
      said && h("pre", { class: "console-end-error" }, said),
      traceback &&
        h("details", null, h("summary", null, "Traceback"), h("pre", { class: "trace", tabIndex: 0 }, traceback)),
    ]);
  }

  _place() {
    // Of the end nothing is said amid a console.
    this.end.hidden = this.failure === "null" || this.next < this.size;
    const whole = this.first === 0 && this.next >= this.size;
    const part = whole ? bytes(this.size) : `${bytes(this.first)} – ${bytes(this.next)} of ${bytes(this.size)}`;
    setText(this.where, this.done ? `${part}, ended` : part);
  }

  _fail(error, whole = true) {
    this.failed = true;
    if (whole) replace(this.lines, h("p", { class: "console-none bad", role: "alert" }, error.message));
    else setText(this.where, error.message);
  }

  _noSearch() {
    this.found.hidden = true;
    this.found.replaceChildren();
  }

  /** Places of a text, from a byte on. */
  async _search(offset) {
    const text = this.find.value;
    if (!text) {
      this._noSearch();
      return;
    }
    this.found.hidden = false;
    if (!offset) replace(this.found, h("p", { class: "faint" }, "Searching …"));
    try {
      const answer = await this._ask({ find: text, offset });
      if (this.find.value !== text) return;
      const terminal = new Terminal();
      const rows = answer.found.map((one) =>
        h(
          "button",
          { type: "button", class: "console-hit", onclick: () => this._at(one.offset, one) },
          h("span", { class: "faint number" }, count(one.at)),
          terminal.line(one.text),
        ),
      );
      if (!offset) this.found.replaceChildren();
      this.found.querySelector(".console-further")?.remove();
      this.found.append(...rows);
      if (!answer.done)
        this.found.append(
          h(
            "button",
            { type: "button", class: "button tiny console-further", onclick: () => this._search(answer.next) },
            `Search on behind ${bytes(answer.next)}`,
          ),
        );
      else if (!this.found.childElementCount) replace(this.found, h("p", { class: "faint" }, "Not found."));
    } catch (error) {
      if (error.name !== "AbortError") replace(this.found, h("p", { class: "bad", role: "alert" }, error.message));
    }
  }
}

function options(select, values, chosen, name) {
  const text = values.join(" ");
  if (select.dataset.values !== text) {
    select.dataset.values = text;
    replace(
      select,
      values.map((value) => h("option", { value: String(value) }, name(value))),
    );
  }
  select.value = chosen;
}
