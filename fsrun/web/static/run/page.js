// The page of one run: who and how far on top, tabs below; each tab is a module of its own, loaded when it is opened.

import { AnswerError, about, get, poll } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { age, ago, count, duration, isWild, number, time } from "../format.js";
import { bind } from "../keys.js";
import { go, toRun, toRuns } from "../route.js";
import { badge, chips } from "../runs/chips.js";
import { isSilent, silence } from "../runs/store.js";
import { recall } from "../storage.js";

const TABS = [
  { id: "overview", title: "Overview", load: () => import("./overview.js") },
  { id: "charts", title: "Charts", load: () => import("./charts.js") },
  { id: "evaluation", title: "Evaluation", load: () => import("./board.js") },
  { id: "samples", title: "Samples", load: () => import("./samples.js") },
  { id: "console", title: "Console", load: () => import("./console.js") },
  { id: "system", title: "System", load: () => import("./system.js") },
  { id: "media", title: "Media", load: () => import("./media.js") },
  { id: "tables", title: "Tables", load: () => import("./tables.js") },
  { id: "artifacts", title: "Artifacts", load: () => import("./artifacts.js") },
  { id: "settings", title: "Settings", load: () => import("./settings.js") },
  { id: "files", title: "Files", load: () => import("./files.js") },
];
const OTHER_NAMES = { board: "evaluation", evals: "evaluation" };
const EVERY_LIVE = 2;
const EVERY = 15;
const WILD = 3;

export function mount(container, { key, tab, params, store }) {
  const page = new RunPage(container, key, store);
  page.show(tab, params);
  return Object.assign(() => page.close(), { update: (route) => page.show(route.tab, route.params) });
}

/** What tabs get of the run beside its key: `state`, the object of /api/runs/RUN, and word of each new one. */
class Watched {
  constructor() {
    this.state = null;
    this._listeners = new Set();
  }

  /** Call `listener(state)` now, if it is there already, and with each new one. Returns a function that ends it. */
  listen(listener) {
    this._listeners.add(listener);
    if (this.state) listener(this.state);
    return () => this._listeners.delete(listener);
  }

  take(state) {
    this.state = state;
    for (const listener of [...this._listeners]) listener(state);
  }
}

class RunPage {
  constructor(container, key, store) {
    this.key = key;
    this.store = store;
    this.watched = new Watched();
    this.tab = null;
    this.turn = 0;
    this.line = h("div", { class: "run-line" });
    this.facts = h("div", { class: "run-facts" });
    this.notes = h("div", { class: "notes" });
    this.tabs = h("div", {
      class: "tabs",
      role: "tablist",
      "aria-label": "About this run",
      onkeydown: (event) => this._arrow(event),
    });
    this.body = h("div", { class: "tab-body", role: "tabpanel", id: "tab-body", tabIndex: -1 });
    container.append(
      h(
        "div",
        { class: "page page-run" },
        h("header", { class: "run-head" }, this.line, this.facts, this.notes, this.tabs),
        this.body,
      ),
    );
    this.buttons = new Map(
      TABS.map((one) => [
        one.id,
        h(
          "a",
          { class: "tab", role: "tab", id: `tab-${one.id}`, "aria-controls": "tab-body", href: toRun(key, one.id) },
          one.title,
          h("span", { class: "tab-count" }),
        ),
      ]),
    );
    this.failed = h("span", { class: "tab-count is-bad" });
    this.buttons.get("evaluation").append(this.failed);
    this.tabs.append(...this.buttons.values());
    this.unlisten = store.listen(({ changed, gone }) => (changed.includes(key) || gone.includes(key)) && this._paint());
    this.timer = setInterval(() => this._paintFacts(), 1000);
    this.unbind = bind(this._keys(), "A run");
    this.stop = poll((options) => this._ask(options), EVERY_LIVE);
    this.asked = 0;
    this._paint();
  }

  close() {
    this.turn += 1;
    this.unmount?.();
    this.unlisten();
    this.unbind();
    this.stop();
    clearInterval(this.timer);
  }

  show(wanted, params) {
    const id = OTHER_NAMES[wanted] ?? (wanted || "overview");
    const tab = TABS.find((one) => one.id === id) ?? TABS[0];
    for (const [name, button] of this.buttons) {
      button.setAttribute("aria-selected", String(name === tab.id));
      button.tabIndex = name === tab.id ? 0 : -1;
    }
    this.body.setAttribute("aria-labelledby", `tab-${tab.id}`);
    this.buttons.get(tab.id).scrollIntoView({ block: "nearest", inline: "nearest" });
    this.tab = tab;
    this.params = params;
    this._title(tab);
    this._load(tab, params);
    return true;
  }

  async _load(tab, params) {
    const mine = ++this.turn;
    let module;
    try {
      module = await tab.load();
    } catch (error) {
      console.error(error);
      if (mine === this.turn && !this.absent) this._missing(tab, error);
      return;
    }
    // What is said of a run that is not there stays, whichever came first.
    if (mine !== this.turn || this.absent) return;
    this._clear();
    try {
      this.unmount = module.mount(this.body, { run: this.key, params, store: this.store, watched: this.watched });
    } catch (error) {
      console.error(error);
      this._missing(tab, error);
    }
  }

  _clear() {
    try {
      this.unmount?.();
    } catch (error) {
      console.error(error);
    }
    this.unmount = null;
    this.body.replaceChildren();
    this.body.scrollTop = 0;
  }

  /** Where there is no such run, that is all there is to say, until it comes. */
  _found(absent) {
    if ((this.absent ?? null) === absent) return;
    this.absent = absent;
    this.tabs.hidden = absent !== null;
    this._clear();
    if (absent === null) this._load(this.tab, this.params);
    else
      this.body.append(
        h(
          "div",
          { class: "missing", role: "alert" },
          h("h2", null, "There is no such run"),
          h("p", null, absent),
          h("p", null, "It appears here as soon as it begins. ", h("a", { href: toRuns() }, "All runs")),
        ),
      );
  }

  _missing(tab, error) {
    this._clear();
    this.body.append(
      h(
        "div",
        { class: "missing", role: "alert" },
        h("h2", null, `${tab.title} cannot be shown`),
        h("p", null, "A part of the page did not load. If fsrun was renewed while this page was open, load it again."),
        h("p", { class: "mono faint" }, error.message),
      ),
    );
  }

  async _ask(options) {
    const row = this.store.row(this.key);
    const live = !row || row.jobs.some((job) => job.status === "running") || row.waiting > 0 || row.claimed > 0;
    const now = performance.now();
    if (this.watched.state && !live && now - this.asked < 1000 * EVERY && this.version === row) return;
    this.asked = now;
    this.version = row;
    try {
      this.watched.take(await get(about(this.key), options));
      this.problem = null;
      this._found(null);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.problem = error instanceof AnswerError ? error.message : "this run could not be shown";
      if (error.status === 404 && !this.watched.state) this._found(this.problem);
      this._paint();
      throw error;
    }
    this._paint();
  }

  _paint() {
    const row = this.store.row(this.key);
    const run = this.watched.state?.run;
    const [project, folder] = [this.key.slice(0, this.key.indexOf("/")), this.key.slice(this.key.indexOf("/") + 1)];
    const title = row?.title ?? (run?.name || folder);
    const status = row?.status ?? run?.status;
    const main = row?.jobs.find((job) => job.job === "main");
    const parts = JSON.stringify([title, status, row?.received, row?.reason, run?.reason]);
    if (parts !== this.painted) {
      this.painted = parts;
      replace(
        this.line,
        h("a", { class: "crumb", href: recall("runs", toRuns()), title: "All runs (u)" }, "Runs"),
        h("span", { class: "crumb", "aria-hidden": "true" }, "/"),
        h("a", { class: "crumb", href: toRuns({ q: `project:${project}` }) }, project),
        h("span", { class: "crumb", "aria-hidden": "true" }, "/"),
        h("h1", null, title),
        status &&
          badge(status, { silent: main ? isSilent(main, row.received) : false, reason: row?.reason ?? run?.reason }),
        row && chips(row),
      );
    }
    const state = this.watched.state;
    const problems = [
      this.absent ? null : this.problem,
      state?.run.problem ?? row?.problem,
      state?.queue?.problem,
    ].filter(Boolean);
    replace(
      this.notes,
      problems.map((text) => h("p", { class: "note note-bad", role: "alert" }, text)),
    );
    this._paintFacts();
    this._counts();
    this._title(this.tab ?? TABS[0]);
  }

  _paintFacts() {
    const row = this.store.row(this.key);
    const run = this.watched.state?.run;
    const best = row?.best ?? this.watched.state?.best;
    // Since the first session, as fsrun show says it: what lies between sessions is part of it.
    const started = row?.started ?? (run?.session === 1 ? run.opened : null);
    const ended = row?.ended ?? run?.ended;
    const main = row?.jobs.find((job) => job.job === "main");
    const quiet = main ? silence(main, row.received) : null;
    const folder = this.key.slice(this.key.indexOf("/") + 1);
    const lasted = started ? ((ended ? Date.parse(ended) : Date.now()) - Date.parse(started)) / 1000 : null;
    const scalars = row?.summary ?? this.watched.state?.newest ?? {};
    const wild = Object.keys(scalars).filter((tag) => isWild(scalars[tag]));
    const pairs = [
      row && row.title !== folder && ["folder", folder, null],
      ["step", count(row?.step ?? run?.step), null],
      started && ["started", ago(started), `${time(started)}, the first session`],
      lasted !== null &&
        (ended || row?.status === "running") && [
          ended ? "took" : "runs for",
          duration(lasted),
          ended ? `since the first session was opened; ended ${time(ended)}` : "since the first session was opened",
        ],
      best && [`best ${best.tag}`, `${number(best.score)} at step ${count(best.step)}`, best.entry],
      quiet !== null &&
        isSilent(main, row.received) && [
          "last sign",
          `${age(quiet)} ago`,
          "No heartbeat for longer than it should take",
        ],
      (row?.reason ?? run?.reason) && ["reason", row?.reason ?? run?.reason, null],
      wild.length > 0 && [
        "not finite now",
        wild.slice(0, WILD).join(", ") + (wild.length > WILD ? " …" : ""),
        wild.map((tag) => `${tag} ${number(scalars[tag])}`).join("\n"),
        "bad",
      ],
    ].filter(Boolean);
    const text = JSON.stringify(pairs);
    if (text === this.factsText) return;
    this.factsText = text;
    replace(
      this.facts,
      pairs.map(([name, value, hint, mark]) => h("span", { title: hint, class: mark }, `${name} `, h("b", null, value))),
    );
  }

  /** Numbers beside the names of the tabs. */
  _counts() {
    const state = this.watched.state;
    if (!state) return;
    const recorded = state.recorded ?? [];
    const many = (kinds) => recorded.filter((one) => kinds(one.kind)).reduce((sum, one) => sum + one.count, 0);
    const counts = {
      evaluation: new Set(state.evals.filter((one) => one.state === "done").map((one) => one.entry)).size,
      samples: state.evals.filter((one) => one.samples).length,
      media: many((kind) => kind !== "table" && kind !== "artifact"),
      tables: many((kind) => kind === "table"),
      artifacts: many((kind) => kind === "artifact"),
    };
    for (const [id, value] of Object.entries(counts))
      setText(this.buttons.get(id).querySelector(".tab-count"), value || "");
    const failed = state.queue.failed ?? 0;
    setText(this.failed, failed ? `${count(failed)} failed` : "");
  }

  _title(tab) {
    const row = this.store.row(this.key);
    document.title = `${row?.title ?? this.key} · ${tab.title} · fsrun`;
  }

  _arrow(event) {
    const ids = TABS.map((one) => one.id);
    const at = ids.indexOf(document.activeElement?.id?.slice(4));
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const id = ids[(to + ids.length) % ids.length];
    this.buttons.get(id).focus();
    go(toRun(this.key, id));
  }

  _beside(by) {
    const ids = TABS.map((one) => one.id);
    const at = ids.indexOf(this.tab?.id ?? "overview");
    go(toRun(this.key, ids[(at + by + ids.length) % ids.length]));
  }

  _keys() {
    return [
      { key: "]", does: "Next tab", run: () => this._beside(1) },
      { key: "[", does: "Tab before", run: () => this._beside(-1) },
      ...TABS.slice(0, 9).map((one, at) => ({
        key: String(at + 1),
        shown: "1 … 9",
        does: "Tab by its place",
        hidden: at > 0,
        run: () => go(toRun(this.key, one.id)),
      })),
      // 0 and - are the axis and the smoothing of the charts.
      { key: "s", does: "Settings", run: () => go(toRun(this.key, "settings")) },
      { key: "F", does: "Files", run: () => go(toRun(this.key, "files")) },
      { key: "u", does: "Back to all runs", run: () => go(recall("runs", toRuns())) },
    ];
  }
}
