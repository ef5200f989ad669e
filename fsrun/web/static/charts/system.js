// What the machines did while a run ran: CPU, memory, disks, network and GPUs, by job, over time.

import { about, get, poll } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { bytes, number } from "../format.js";
import { bind } from "../keys.js";
import { place } from "./axis.js";
import { Chart } from "./chart.js";
import { linesOf } from "./lines.js";
import { load } from "./load.js";
import { onTheme } from "./palette.js";
import { csv, png, save } from "./take.js";

const SECONDS = 2;
const POINTS = 1200;
const MOST_CSV = 20_000;
const LOOK = { smoothing: 0, logX: false, logY: false, many: false, tags: 1, grouped: false };
const TITLES = {
  "job/cpu": ["CPU of the job", percent],
  "job/memory": ["Memory of the job", bytes],
  "job/processes": ["Processes of the job", number],
  "cgroup/cpu": ["CPU of the control group", percent],
  "cgroup/cpu_limit": ["CPUs of the control group", number],
  "cgroup/memory": ["Memory of the control group", bytes],
  "host/cpu": ["CPU of the host", percent],
  "host/load": ["Load of the host", number],
  "host/memory": ["Memory of the host", bytes],
  "disk/used": ["Disk used", bytes],
  "disk/read": ["Disks, read", rate],
  "disk/written": ["Disks, written", rate],
  "network/received": ["Network, received", rate],
  "network/sent": ["Network, sent", rate],
};
const LIMITS = { "cgroup/memory_limit": "cgroup/memory", "host/memory_total": "host/memory", "disk/total": "disk/used" };
const GPU = {
  util: ["GPUs, busy", percent],
  memory: ["GPUs, memory", bytes],
  memory_total: ["GPUs, memory", bytes],
  power: ["GPUs, power", (value) => `${number(value)} W`],
  temperature: ["GPUs, temperature", (value) => `${number(value)} °C`],
};
const ORDER = ["gpu", "job", "cgroup", "host", "disk", "network"];
let pages = 0;

function percent(value) {
  return `${number(value)} %`;
}

function rate(value) {
  return `${bytes(value)}/s`;
}

/** Charts of the machines of `run`, a key `project/run`. */
export function mount(container, { run }) {
  const place = h("div", { class: "charts" }, h("p", { class: "faint" }, "Reading the samples …"));
  container.append(place);
  let page = null;
  let gone = false;
  load().then(
    (uPlot) => {
      if (!gone) page = new Machines(place, uPlot, run);
    },
    (error) => replace(place, h("p", { class: "note charts-missing", role: "alert" }, error.message)),
  );
  return () => {
    gone = true;
    page?.close();
    place.remove();
  };
}

class Machines {
  constructor(container, uPlot, run) {
    this.uPlot = uPlot;
    this.run = run;
    this.sync = `fsrun-system-${(pages += 1)}`;
    this.charts = new Map();
    this._axis = "relative";
    this._range = null;
    this._control = new AbortController();
    this._extent = null;
    this.actions = [
      { name: "csv", text: "CSV", title: "Points as CSV (c)", run: (chart) => this._csv(chart) },
      { name: "png", text: "PNG", title: "Drawing as PNG (p)", run: (chart) => this._png(chart) },
      { name: "wide", text: "⤢", title: "Large or small (Enter)", run: (chart) => chart.setWide(!chart.wide) },
    ];
    this.select = h("select", { class: "field", "aria-label": "Axis below", onchange: () => this._turn(this.select.value) }, ["relative", "time"].map((name) => h("option", { value: name }, name === "time" ? "time" : "relative time")));
    this.zoomed = h("button", { type: "button", class: "button charts-zoom", hidden: true, onclick: () => this.zoom(null) });
    this.state = h("p", { class: "charts-state", role: "status" });
    this.grid = h("div", { class: "charts-grid" });
    replace(container, h("div", { class: "charts-bar" }, h("label", { class: "charts-box" }, "x", this.select), this.zoomed), this.state, this.grid);
    this._unlisten = onTheme(() => this.charts.forEach((chart) => chart.repaint()));
    this._unbind = bind(this._keys(), "Machines");
    this._stop = poll((options) => this._ask(options), SECONDS);
  }

  axis() {
    return this._axis;
  }

  range() {
    return this._range;
  }

  extent() {
    return this._extent;
  }

  zoom(range) {
    this._range = range;
    this.zoomed.hidden = !range;
    if (range) setText(this.zoomed, `${range.map((value) => place(value, this._axis)).join(" – ")}  ✕`);
    this.charts.forEach((chart) => chart.follow());
    this._stop.now();
  }

  _turn(axis) {
    this._axis = axis;
    this._extent = null;
    this.charts.forEach((chart) => chart.draw([], LOOK));
    this.zoom(null);
  }

  async _ask({ signal }, points = POINTS) {
    const axis = this._axis;
    const range = this._range;
    const [from, to] = range ?? [null, null];
    let answer;
    try {
      answer = await get(about(this.run, "/system", { x: axis, from, to, points }), { signal });
    } catch (error) {
      if (error.name !== "AbortError") setText(this.state, error.message);
      throw error;
    }
    if (axis !== this._axis || range !== this._range) return this._stop.now();
    const text = JSON.stringify([axis, range, answer.cursor]);
    if (text === this._shown) return undefined;
    this._shown = text;
    setText(this.state, answer.series.length ? "" : "No samples of the machine: the run records none, or has not yet.");
    if (!range) this._extent = extentOf(answer.series);
    this._show(chartsOf(answer.series));
    return undefined;
  }

  _show(charts) {
    const before = this.charts;
    this.charts = new Map();
    for (const { name, title, format, series } of charts) {
      const chart = before.get(name) ?? new Chart(this, name, title, format);
      this.charts.set(name, chart);
      chart.parts = series.map((one, order) => ({ run: this.run, key: this.run, name: "", at: 0, order, tag: one.label, series: one, group: "" }));
    }
    for (const [name, chart] of before) if (!this.charts.has(name)) chart.close();
    const elements = [...this.charts.values()].map((chart) => chart.element);
    if (elements.some((element, at) => this.grid.children[at] !== element)) replace(this.grid, elements);
    for (const chart of this.charts.values()) chart.draw(linesOf(chart.parts, LOOK), LOOK);
  }

  async _csv(chart) {
    try {
      const wanted = new Set(chart.parts.map((part) => `${part.series.job} ${part.series.tag}`));
      const axis = this._axis;
      const [from, to] = this._range ?? [null, null];
      const answer = await get(about(this.run, "/system", { x: axis, from, to, points: MOST_CSV }), { signal: this._control.signal });
      const series = answer.series.filter((one) => wanted.has(`${one.job} ${one.tag}`)).map((one) => ({ run: `${this.run} ${one.job}`, tag: one.tag, series: one }));
      save(`${chart.title}.csv`, new Blob([csv(series, axis)], { type: "text/csv" }));
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
    const on = (run) => () => (current() ? void run(current()) : false);
    const step = (by) => () => {
      const all = [...this.charts.values()];
      const at = all.indexOf(current());
      const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
      next?.element.focus();
      next?.element.scrollIntoView({ block: "nearest" });
    };
    return [
      { key: "j", does: "Next chart", run: step(1) },
      { key: "k", does: "Chart before", run: step(-1) },
      { key: "Enter", does: "Chart large or small", run: () => (document.activeElement?.matches?.("[data-chart]") ? on((chart) => chart.setWide(!chart.wide))() : false) },
      { key: "c", does: "Points of a chart as CSV", run: on((chart) => this._csv(chart)) },
      { key: "p", does: "Drawing of a chart as PNG", run: on((chart) => this._png(chart)) },
      { key: "0", does: "All of the axis", run: () => this.zoom(null) },
    ];
  }

  close() {
    this._stop();
    this._control.abort();
    this._unbind();
    this._unlisten();
    this.charts.forEach((chart) => chart.close());
  }
}

function extentOf(series) {
  const ends = series.filter((one) => one.x.length).flatMap((one) => [one.x[0], one.x[one.x.length - 1]]);
  return ends.length ? [Math.min(...ends), Math.max(...ends)] : null;
}

/** Which figures stand in one chart: a limit with what it limits, all GPUs together, each job as a line. */
function chartsOf(series) {
  const jobs = new Set(series.map((one) => one.job));
  const found = new Map();
  for (const one of series) {
    const [kind, ...rest] = one.tag.split("/");
    const gpu = kind === "gpu" ? GPU[rest[1]] : null;
    const name = gpu ? `gpu/${rest[1] === "memory_total" ? "memory" : rest[1]}` : (LIMITS[one.tag] ?? one.tag);
    const [title, format] = gpu ?? TITLES[name] ?? [name, number];
    if (!found.has(name)) found.set(name, { name, title, format, series: [] });
    const what = gpu ? `GPU ${rest[0]}${rest[1] === "memory_total" ? " (has)" : ""}` : one.tag in LIMITS ? "limit" : "";
    // A host's figures come from whichever job measures them: its name says more.
    const who = kind === "job" || kind === "cgroup" ? one.job : one.host || one.job;
    found.get(name).series.push({ ...one, label: [who, what].filter(Boolean).join(" · ") + (kind !== "job" && kind !== "cgroup" && jobs.size > 1 ? ` (${one.job})` : "") });
  }
  const rank = (name) => (ORDER.indexOf(name.split("/")[0]) + ORDER.length + 1) % (ORDER.length + 1);
  return [...found.values()].sort((a, b) => rank(a.name) - rank(b.name) || a.title.localeCompare(b.title));
}
