// The charts of one run, or of several one over the other: all on one axis, with one range and one cursor.
//
// Leaves to others: what is asked when (feed.js, here only for what is seen), one chart (chart.js), its lines (lines.js).

import { h, replace, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { bind } from "../keys.js";
import { setParams } from "../route.js";
import { Bar } from "./bar.js";
import { place, rangeOf } from "./axis.js";
import { Chart } from "./chart.js";
import { Feed } from "./feed.js";
import { linesOf } from "./lines.js";
import { load } from "./load.js";
import { colour, onTheme } from "./palette.js";
import { matcher, sectionsOf } from "./sections.js";
import { csv, png, save } from "./take.js";

const MOST = 48;
const MOST_POINTS = 4000;
const MOST_CSV = 20_000;
let grids = 0;

/**
 * Charts of `runs`, keys `project/run`. `params`: a URLSearchParams. `store`: knows names and settings of runs. `hidden`: a
 * set of keys that are left out; after it was changed call `hid()` of what this returns. `coloured(colours)` is told the
 * colour of each run, a Map by key, whenever that changes.
 */
export function mount(container, { runs, params = new URLSearchParams(), store = null, hidden = new Set(), coloured = null }) {
  const place = h("div", { class: "charts" }, h("p", { class: "faint" }, "Reading the series …"));
  container.append(place);
  let grid = null;
  let gone = false;
  load().then(
    (uPlot) => {
      if (!gone) grid = new Grid(place, uPlot, { runs, params, store, hidden, coloured });
    },
    (error) => replace(place, h("p", { class: "note charts-missing", role: "alert" }, error.message)),
  );
  const end = () => {
    gone = true;
    grid?.close();
    place.remove();
  };
  return Object.assign(end, { hid: () => grid?.repaint() });
}

class Grid {
  constructor(container, uPlot, { runs, params, store, hidden, coloured }) {
    this.uPlot = uPlot;
    this.hidden = hidden;
    this.coloured = coloured;
    this.sync = `fsrun-${(grids += 1)}`;
    this.runs = runs;
    this.store = store;
    this.charts = new Map();
    this.cache = new Map();
    this._range = rangeOf(params);
    this._extent = null;
    this._open = new Map();
    this._busy = new Map();
    this._control = new AbortController();
    this._layout = "";
    this.actions = [
      { name: "log", text: "log", title: "Logarithmic axis (l)", run: (chart) => this._log(chart) },
      { name: "csv", text: "CSV", title: "Points as CSV (c)", run: (chart) => this._csv(chart) },
      { name: "png", text: "PNG", title: "Drawing as PNG (p)", run: (chart) => this._png(chart) },
      { name: "wide", text: "⤢", title: "Large or small (Enter)", run: (chart) => this._wide(chart) },
    ];
    this.bar = new Bar(runs.length > 1, this._settings(), params, (name) => this._changed(name));
    this.state = h("p", { class: "charts-state", role: "status" });
    this.zoomed = h("button", { type: "button", class: "button charts-zoom", hidden: true, title: "All of it (0, or double click)", onclick: () => this.zoom(null) });
    this.body = h("div", { class: "charts-body" });
    this.bar.element.append(this.zoomed);
    this.cut = h("p", { class: "charts-state charts-cut", role: "status" });
    replace(container, this.bar.element, this.state, this.cut, this.body);
    this.container = container;
    this._watch = new IntersectionObserver((seen) => this._seen(seen), { rootMargin: "300px" });
    this._unbind = bind(this._keys(), "Charts");
    const listening = [onTheme(() => this.repaint()), store?.listen?.((change) => this._told(change))];
    this._unlisten = () => listening.forEach((end) => end?.());
    this._tell();
    this._note();
    this.feeds = runs.map((key) => new Feed(key, () => this._listed(), (feed, error) => this._failed(feed, error)));
  }

  axis() {
    return this.bar.look.axis;
  }

  range() {
    return this._range;
  }

  /** From where to where the axis goes; `log`: from the first place that a logarithm has. */
  extent(log) {
    return this._extent && log ? [this._positive, this._extent[1]] : this._extent;
  }

  /** Where runs were resumed: `[{x, name, title, colour}]`. */
  sessions() {
    const axis = this.axis();
    const shown = this.feeds?.filter((feed) => !this.hidden.has(feed.key)) ?? [];
    return shown.flatMap((feed) =>
      feed.sessions.map(({ session, step, time }) => {
        const whose = this.runs.length > 1 ? ` of ${this._name(feed.key)}` : "";
        return {
          x: axis === "step" ? step : axis === "time" ? time : time === null ? null : time - (feed.start ?? 0),
          name: `session ${session}`,
          title: `Session ${session}${whose} began here, with step ${count(step)}`,
          colour: this.runs.length > 1 ? colour(this._rank(feed.key, this.runs.indexOf(feed.key))) : null,
        };
      }),
    ).filter(({ x }) => x !== null).sort((a, b) => a.x - b.x);
  }

  /** Show a part of the axis in all charts, with its details; null: all. */
  zoom(range) {
    this._range = range;
    this._note();
    this.charts.forEach((chart) => chart.follow());
    this._fetch();
  }

  /** Put into the address what is shown, so that it can be kept and sent: what the browser of another one keeps differs. */
  _note() {
    const { axis, smoothing, group } = this.bar.look;
    const range = this._range;
    this.zoomed.hidden = !range;
    if (range) setText(this.zoomed, `${range.map((value) => place(Math.round(value * 1000) / 1000, axis)).join(" – ")}  ✕`);
    const [from, to] = range?.map((value) => Number(value.toPrecision(13))) ?? [null, null];
    const told = (value, usual) => (value === usual && !this._noted ? null : value);
    setParams({ x: told(axis, "step"), smooth: told(smoothing, 0), from, to });
    if (this._noted && this.runs.length > 1) setParams({ group: group.replace(/^by:/, "config:") });
    this._noted = true;
  }

  /** Draw all anew: other colours, other groups, other runs are hidden. */
  repaint() {
    this._tell();
    this.charts.forEach((chart) => this._paint(chart));
  }

  /** Tell which colour each run has: its own, or that of its group. */
  _tell() {
    this.coloured?.(new Map(this.runs.map((key, at) => [key, colour(this._rank(key, at))])));
  }

  _rank(key, at) {
    if (!this._grouped()) return at;
    return [...new Set(this.runs.map((one) => this._group(one)))].indexOf(this._group(key));
  }

  _grouped() {
    return Boolean(this.bar.look.group) && this.runs.length > 1;
  }

  /** Config keys in which the runs differ, for grouping. */
  _settings() {
    const configs = this.runs.map((key) => this.store?.row?.(key)?.config ?? {});
    const names = new Set(configs.flatMap((config) => Object.keys(config)));
    return [...names].filter((name) => new Set(configs.map((config) => JSON.stringify(config[name]))).size > 1).sort();
  }

  /** Something of the list of runs changed: names and settings may be known only now. */
  _told({ changed }) {
    if (!this.runs.some((key) => changed.includes(key))) return;
    const names = JSON.stringify(this.runs.map((key) => [this._name(key), this.store.row(key)?.config]));
    if (names === this._names) return;
    this._names = names;
    this.bar.offer(this._settings());
    this.repaint();
  }

  _name(key) {
    const names = this.runs.map((one) => this.store?.row?.(one)?.name || one.slice(one.indexOf("/") + 1));
    const own = names[this.runs.indexOf(key)];
    return names.filter((name) => name === own).length > 1 ? key : own;
  }

  _group(key) {
    const by = this.bar.look.group;
    if (by === "all") return "all runs";
    const value = this.store?.row?.(key)?.config?.[by.slice("by:".length)];
    return `${by.slice("by:".length)} = ${value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value)}`;
  }

  _failed(feed, error) {
    feed.problem = error?.message ?? null;
    const told = this.feeds?.filter((one) => one.problem).map((one) => (this.runs.length > 1 ? `${one.key}: ${one.problem}` : one.problem)) ?? [];
    if (told.length) setText(this.state, told.join("; "));
    else if (this.state.textContent && this.feeds?.every((one) => !one.problem)) this._say();
  }

  /** A list of tags came, or the filter changed: which charts there are. */
  _listed() {
    if (this._control.signal.aborted) return;
    const tags = new Set(this.feeds?.flatMap((feed) => [...feed.tags.keys()]) ?? []);
    const wanted = matcher(this.bar.look.filter);
    this.total = tags.size;
    const sections = sectionsOf([...tags].filter(wanted), this.bar.look.together);
    const layout = JSON.stringify([sections, [...this._open]]);
    if (layout !== this._layout) {
      this._layout = layout;
      this._arrange(sections);
    }
    this._say();
    this._fetch();
  }

  _say() {
    const cut = this.feeds?.filter((one) => one.cut).map((one) => (this.runs.length > 1 ? `${this._name(one.key)}: ${one.cut}` : one.cut)) ?? [];
    setText(this.cut, cut.join("; "));
    const known = this.feeds?.some((feed) => feed.known);
    const shown = [...this.charts.values()].length;
    setText(this.state, !known ? "Reading the series …" : !this.total ? "No scalars yet: they appear here as soon as the first one is logged." : !shown ? `None of ${plural(this.total, "series", "series")} matches the filter.` : "");
  }

  _arrange(sections) {
    const before = this.charts;
    this.charts = new Map();
    const focused = this.container.contains(document.activeElement) ? document.activeElement : null;
    const made = sections.map((section) => {
      const state = this._open.get(section.name) ?? { open: true, most: MOST };
      const shown = state.open ? section.charts.slice(0, state.most) : [];
      const charts = shown.map(({ name, title, tags }) => {
        const chart = before.get(name) ?? this._make(name, title);
        chart.tags = tags;
        this.charts.set(name, chart);
        return chart.element;
      });
      const turn = (change) => {
        this._open.set(section.name, { ...state, ...change });
        this._listed();
      };
      const more = section.charts.length - shown.length;
      return h(
        "section",
        { class: "charts-section" },
        h("h2", null, h("button", { type: "button", class: "charts-fold", "aria-expanded": state.open, onclick: () => turn({ open: !state.open }) }, h("span", { class: "charts-arrow" }, state.open ? "▾" : "▸"), section.name, " ", h("span", { class: "faint" }, String(section.charts.length)))),
        state.open && h("div", { class: "charts-grid" }, charts),
        state.open && more > 0 && h("button", { type: "button", class: "button", onclick: () => turn({ most: state.most + 4 * MOST }) }, `Show ${plural(more, "more chart", "more charts")}`),
      );
    });
    for (const [name, chart] of before) if (!this.charts.has(name)) this._drop(chart);
    replace(this.body, made);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
  }

  _make(name, title) {
    const chart = new Chart(this, name, title);
    this._watch.observe(chart.element);
    return chart;
  }

  _drop(chart) {
    this._watch.unobserve(chart.element);
    chart.close();
  }

  _seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const chart = this.charts.get(target.dataset.chart);
      if (chart) chart.visible = isIntersecting;
    }
    this._fetch();
  }

  _view() {
    const visible = [...this.charts.values()].filter((chart) => chart.visible);
    const width = Math.max(300, ...visible.map((chart) => chart.width()));
    const points = Math.min(MOST_POINTS, Math.ceil((4 * width) / 400) * 400);
    const [from, to] = this._range ?? [null, null];
    return { x: this.axis(), from, to, points };
  }

  /** Fetch what is seen and is not there as it is now. */
  _fetch() {
    if (this._soon || !this.feeds || this._control.signal.aborted) return;
    this._soon = true;
    queueMicrotask(() => {
      this._soon = false;
      const view = this._view();
      const key = JSON.stringify(view);
      const visible = [...this.charts.values()].filter((chart) => chart.visible);
      for (const feed of this.feeds) {
        const tags = [...new Set(visible.flatMap((chart) => chart.tags))].filter((tag) => {
          const version = feed.version(tag);
          const had = this.cache.get(`${feed.key}\n${tag}`);
          return version >= 0 && (had?.version !== version || had.view !== key);
        });
        if (tags.length) this._ask(feed, tags, view, key);
      }
      // What scrolled into sight and was there already.
      visible.filter((chart) => !chart.painted).forEach((chart) => this._paint(chart));
    });
  }

  async _ask(feed, tags, view, key) {
    const running = this._busy.get(feed);
    if (running?.key === key) return void (running.again = true);
    running?.control.abort();
    const mine = { key, control: new AbortController(), again: false };
    this._busy.set(feed, mine);
    this._control.signal.addEventListener("abort", () => mine.control.abort(), { once: true, signal: mine.control.signal });
    const versions = new Map(tags.map((tag) => [tag, feed.version(tag)]));
    try {
      const found = await feed.fetch(tags, view, mine.control.signal);
      for (const tag of tags) this.cache.set(`${feed.key}\n${tag}`, { version: versions.get(tag), view: key, series: found.get(tag) ?? null });
      this._measure();
      for (const chart of this.charts.values()) if (chart.tags.some((tag) => versions.has(tag))) this._paint(chart);
    } catch (error) {
      // The feed asks every second and tells of it; its next answer has this fetched again.
      if (error.name !== "AbortError") this._failed(feed, error);
    } finally {
      // With it goes what it hung at the signal of the whole page, which lives longer.
      mine.control.abort();
      if (this._busy.get(feed) === mine) {
        this._busy.delete(feed);
        if (mine.again) this._fetch();
      }
    }
  }

  /** From where to where all series go; kept while a part is shown. */
  _measure() {
    if (this._range) return;
    let low = Infinity;
    let high = -Infinity;
    let positive = Infinity;
    for (const { series } of this.cache.values()) {
      if (!series?.x.length) continue;
      low = Math.min(low, series.x[0]);
      high = Math.max(high, series.x[series.x.length - 1]);
      positive = Math.min(positive, series.x.find((x) => x > 0) ?? Infinity);
    }
    const next = low <= high ? [low, high] : null;
    if (JSON.stringify([next, positive]) === JSON.stringify([this._extent, this._positive])) return;
    this._extent = next;
    this._positive = positive;
    this.charts.forEach((chart) => chart.visible && chart.follow());
  }

  _paint(chart) {
    const { look } = this.bar;
    const parts = this.runs.flatMap((key, at) => {
      const one = { key, run: key, name: this._name(key), at, rank: this._rank(key, at), group: look.group ? this._group(key) : "" };
      return chart.tags.map((tag, order) => ({ ...one, tag, order, series: this.cache.get(`${key}\n${tag}`)?.series }));
    });
    chart.painted = parts.some((part) => part.series);
    if (!chart.painted) return;
    const shown = { ...look, logY: look.logY !== chart.logY, many: this.runs.length > 1, tags: chart.tags.length, grouped: this._grouped() };
    chart.element.querySelector('[data-action="log"]').setAttribute("aria-pressed", shown.logY);
    chart.draw(linesOf(parts.filter((part) => !this.hidden.has(part.key)), shown), shown);
    if (!chart.lines.length) chart.say("Its runs are hidden");
  }

  _changed(name) {
    if (this._control.signal.aborted) return;
    if (name === "filter") {
      setParams({ tag: this.bar.look.filter });
      this._listed();
    } else if (name === "together") {
      this._listed();
    } else if (name === "axis") {
      this.cache.clear();
      this._extent = null;
      this.zoom(null);
    } else {
      this._note();
      this.repaint();
    }
  }

  _log(chart) {
    chart.logY = !chart.logY;
    this._paint(chart);
  }

  _wide(chart) {
    chart.setWide(!chart.wide);
    this._fetch();
    chart.element.scrollIntoView({ block: "nearest" });
  }

  async _csv(chart) {
    try {
      const view = { ...this._view(), points: MOST_CSV };
      const answers = await Promise.all(this.feeds.map((feed) => feed.fetch(chart.tags, view, this._control.signal)));
      const all = this.runs.flatMap((run, at) => [...answers[at]].map(([tag, one]) => ({ run, tag, series: one })));
      const series = all.filter(({ run }) => !this.hidden.has(run));
      save(`${chart.title}.csv`, new Blob([csv(series, this.axis())], { type: "text/csv" }));
    } catch (error) {
      if (error.name !== "AbortError") setText(this.state, error.message);
    }
  }

  async _png(chart) {
    try {
      save(`${chart.title}.png`, await png(chart));
    } catch (error) {
      setText(this.state, error.message);
    }
  }

  _keys() {
    const current = () => this.charts.get(document.activeElement?.closest?.("[data-chart]")?.dataset.chart);
    const on = (run) => () => {
      const chart = current();
      if (!chart) return false;
      run(chart);
      return true;
    };
    const step = (by) => () => {
      const all = [...this.charts.values()];
      if (!all.length) return false;
      const at = all.indexOf(current());
      const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
      next.element.focus();
      next.element.scrollIntoView({ block: "nearest" });
      return true;
    };
    return [
      { key: "/", does: "Filter charts", run: () => this.bar.focus() },
      { key: "j", does: "Next chart", run: step(1) },
      { key: "k", does: "Chart before", run: step(-1) },
      { key: "Enter", does: "Chart large or small", run: (event) => document.activeElement?.matches?.("[data-chart]") ? on((chart) => this._wide(chart))(event) : false },
      { key: "l", does: "Logarithmic axis of a chart, else of all", run: () => on((chart) => this._log(chart))() || this.bar.turn("logY") },
      { key: "c", does: "Points of a chart as CSV", run: on((chart) => this._csv(chart)) },
      { key: "p", does: "Drawing of a chart as PNG", run: on((chart) => this._png(chart)) },
      { key: "x", does: "Step, time or relative time", run: () => this.bar.turnAxis() },
      { key: "+", does: "Smoother", run: () => this.bar.smoother(1) },
      { key: "-", does: "Less smooth", run: () => this.bar.smoother(-1) },
      { key: "0", does: "All of the axis", run: () => this.zoom(null) },
      { key: "Escape", does: "All of the axis", hidden: true, run: () => (this._range ? this.zoom(null) : false) },
    ];
  }

  close() {
    this.feeds.forEach((feed) => feed.stop());
    this._control.abort();
    this.bar.close();
    this._unbind();
    this._unlisten();
    this._watch.disconnect();
    this.charts.forEach((chart) => chart.close());
  }
}
