// One chart: a title with its buttons, the drawing, and below it what each line is and its value at the cursor.
//
// Leaves to others: which lines there are (lines.js), fetching (grid.js, system.js), the drawing itself (uPlot).

import { cut, h, replace, setText } from "../dom.js";
import { number } from "../format.js";
import { SPANS, clocks, place, short } from "./axis.js";
import { isolated } from "./lines.js";
import { nearest } from "./maths.js";
import { ground } from "./palette.js";
import { drawSessions, labelSessions } from "./resumed.js";
import { watchTouch } from "./touch.js";

const HEIGHT = 210;
const HEIGHT_WIDE = 420;
const POINT = 6;
const MARK = 5;
const MOST_LEGEND = 60;

/**
 * `host`: what charts on one page share: {uPlot, sync, axis(), range(), extent(), zoom(range), sessions?()}, and
 * `actions`, the buttons: [{name, text, title, run(chart)}]. `format(value)`: a value as text.
 */
export class Chart {
  constructor(host, name, title, format = number) {
    this.host = host;
    this.name = name;
    this.title = title;
    this.format = format;
    this.lines = [];
    this.look = {};
    this.logY = false;
    this.wide = false;
    this.visible = false;
    this.plot = null;
    this._shape = "";
    this._hidden = new Set();
    this._build();
  }

  _build() {
    const action = ({ name, text, title, run }) =>
      h("button", { type: "button", class: "button quiet chart-button", title, "aria-label": `${title}: ${this.title}`, dataset: { action: name }, onclick: () => run(this) }, text);
    this.box = h("div", { class: "chart-box" });
    this.legend = h("ul", { class: "chart-legend" });
    this.state = h("p", { class: "chart-state", role: "status" });
    this.buttons = h("span", { class: "chart-buttons" }, this.host.actions.map(action));
    this.element = h(
      "section",
      { class: "chart", tabIndex: 0, "aria-label": this.title, dataset: { chart: this.name } },
      h("header", { class: "chart-head" }, h("h3", { title: this.title }, this.title), this.buttons),
      this.box,
      this.state,
      this.legend,
    );
    this._endTouch = watchTouch(this.box, () => this.plot);
    this._resize = new ResizeObserver(() => this._fit());
    this._resize.observe(this.box);
  }

  /** Draw these lines. `look`: {logX, logY}. */
  draw(lines, look) {
    this.lines = lines;
    this.look = look;
    const drawn = lines.filter((line) => line.x.length);
    const seen = drawn.some((line) => line.y.some((value) => Number.isFinite(value)));
    this.say(seen ? "" : drawn.length ? this._unseen(drawn) : lines.length ? "Nothing here that this axis can show" : "No points yet");
    this._paintLegend();
    if (!drawn.length) {
      this._clear();
      return;
    }
    const shape = JSON.stringify([look.logX, look.logY, this.host.axis(), lines.map((line) => [line.label, line.colour, line.width, line.points, line.band, line.dash])]);
    this._data = this._columns();
    if (this.plot && shape === this._shape) {
      this.plot.setData(this._data, true);
      this._value(this.plot);
      return;
    }
    this._clear();
    this._shape = shape;
    this.plot = new this.host.uPlot(this._options(), this._data, this.box);
    this._hide();
  }

  _columns() {
    const tables = this.lines.map(({ x, y }) => [x, y]);
    return tables.length === 1 ? [tables[0][0], tables[0][1]] : this.host.uPlot.join(tables);
  }

  /** A sentence in the place of the drawing; empty: none. */
  say(text) {
    setText(this.state, text);
    this.state.hidden = !text;
  }

  /** Draw anew, as when the page has turned dark. */
  repaint() {
    this._shape = "";
    if (this.lines.length) this.draw(this.lines, this.look);
  }

  /** Why nothing is drawn of lines that have points. */
  _unseen(lines) {
    const odd = lines.some((line) => line.part.series?.special?.length);
    if (this.host.range()) return "No points in this part";
    return odd ? "Only NaN and infinities were logged" : "Nothing here that this axis can show";
  }

  /** Follow the range that all charts share. */
  follow() {
    this.plot?.setData(this._data, true);
  }

  setWide(wide) {
    this.wide = wide;
    this.element.classList.toggle("is-wide", wide);
    this._fit();
  }

  width() {
    return Math.max(120, this.box.clientWidth);
  }

  _fit() {
    const size = { width: this.width(), height: this.wide ? HEIGHT_WIDE : HEIGHT };
    if (this.plot && (this.plot.width !== size.width || this.plot.height !== size.height)) this.plot.setSize(size);
  }

  _options() {
    const { host, look } = this;
    const paint = ground();
    const axis = { stroke: paint.text, grid: { stroke: paint.line, width: 1 }, ticks: { stroke: paint.line, width: 1, size: 4 }, font: `11px ${paint.font}` };
    return {
      width: this.width(),
      height: this.wide ? HEIGHT_WIDE : HEIGHT,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: host.axis() === "time", distr: look.logX ? 3 : 1, range: (plot, low, high) => spanOf(host.range() ?? host.extent(look.logX) ?? [low, high], look.logX, low) },
        y: { distr: look.logY ? 3 : 1, range: (plot, low, high) => this._upright(low, high) },
      },
      axes: [
        { ...axis, space: 60, ...below(host.axis()) },
        { ...axis, size: (plot, values) => 16 + 6.2 * Math.max(4, ...(values ?? []).map((text) => text.length)), values: (plot, values) => values.map((value) => mark(value, this.format)) },
      ],
      series: [{}, ...this.lines.map((line) => seriesOf(line))],
      bands: this.lines.flatMap((line, at) => (line.band ? [{ series: [at + 1, at + 2], fill: line.band }] : [])),
      cursor: {
        sync: { key: host.sync, setSeries: false },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        points: { size: 6 },
        bind: { dblclick: () => () => host.zoom(null) },
      },
      hooks: {
        setSelect: [(plot) => this._select(plot)],
        // A drawing that was put off may be done after another one took its place: the lines are not its own then.
        setCursor: [(plot) => plot === this.plot && this._value(plot)],
        draw: [(plot) => plot === this.plot && this._marks(plot, paint)],
      },
    };
  }

  /** From where to where the axis on the left goes; it has marks also where there is no number to show. */
  _upright(low, high) {
    const { uPlot } = this.host;
    if (this.look.logY) return low === null ? [1, 10] : uPlot.rangeLog(low, high, 10, false);
    return low === null ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true);
  }

  _select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.host.zoom(range);
  }

  /** Where a series has no finite number, on the edge: what is out of every axis is shown too. Late points: a ring. */
  _marks(plot, paint) {
    const { ctx, bbox } = plot;
    const scale = window.devicePixelRatio || 1;
    const sessions = this.host.sessions?.() ?? [];
    drawSessions(plot, sessions, paint);
    labelSessions(plot, sessions);
    ctx.save();
    ctx.font = `${10 * scale}px ${paint.font}`;
    ctx.textAlign = "center";
    this.lines.forEach((line, at) => {
      if (!line.legend || this._hidden.has(line.label)) return;
      const { series } = line.part;
      for (const { x, value } of series?.special ?? []) {
        const left = plot.valToPos(x, "x", true);
        if (!(left >= bbox.left && left <= bbox.left + bbox.width)) continue;
        ctx.fillStyle = value === "NaN" ? paint.text : paint.bad;
        triangle(ctx, left, value === "Infinity" ? bbox.top + 1 : bbox.top + bbox.height - 1, value === "Infinity" ? 1 : -1, MARK * scale);
      }
      if (line.points) this._rings(plot, at + 1, line, paint, scale);
    });
    ctx.restore();
  }

  _rings(plot, at, line, paint, scale) {
    const { series } = line.part;
    if (!series?.lag) return;
    const late = new Set(series.x.filter((x, i) => series.lag[i] > 0));
    const { ctx } = plot;
    plot.data[0].forEach((x, i) => {
      const y = plot.data[at][i];
      if (y === null || y === undefined || !late.has(x)) return;
      ctx.beginPath();
      ctx.arc(plot.valToPos(x, "x", true), plot.valToPos(y, "y", true), (POINT / 2 - 1) * scale, 0, 2 * Math.PI);
      ctx.fillStyle = paint.surface;
      ctx.fill();
    });
  }

  _paintLegend() {
    const shown = this.lines.filter((line) => line.legend);
    const text = JSON.stringify(shown.map((line) => [line.label, line.colour, line.dash, line.plain, this._hidden.has(line.label)]));
    if (text === this._legendText) {
      this._items.forEach((item, at) => (item.line = shown[at]));
      this._value(this.plot);
      return;
    }
    this._legendText = text;
    this._items = shown.slice(0, MOST_LEGEND).map((line) => {
      const value = h("span", { class: "chart-value" });
      const hidden = this._hidden.has(line.label);
      const button = h(
        "button",
        { type: "button", class: "chart-key", "aria-pressed": !hidden, title: `${line.label}: show or hide`, onclick: () => this._toggle(line.label) },
        h("span", { class: ["chart-swatch", line.points && "is-point", line.dash?.length && "is-dashed"], style: { "--swatch": line.colour } }),
        h("span", { class: "chart-label cut" }, cut(line.label)),
      );
      const plain = line.plain && h("span", { class: "chart-plain", title: "Evaluations are drawn as they were logged: they are few, and each stands for itself" }, "not smoothed");
      return { line, value, element: h("li", { class: hidden && "is-off" }, button, plain, value) };
    });
    const more = shown.length - this._items.length;
    replace(this.legend, this._items.map((item) => item.element), more > 0 && h("li", { class: "faint" }, `and ${more} more`));
    this._value(this.plot);
  }

  _toggle(label) {
    if (!this._hidden.delete(label)) this._hidden.add(label);
    this._hide();
    this._paintLegend();
  }

  _hide() {
    this.lines.forEach((line, at) => {
      const show = !this._hidden.has(line.label);
      if (this.plot && this.plot.series[at + 1].show !== show) this.plot.setSeries(at + 1, { show });
    });
  }

  /** Values at the cursor, else the last ones. */
  _value(plot) {
    const left = plot?.cursor.left ?? -1;
    const x = left >= 0 ? plot.posToVal(left, "x") : null;
    for (const { line, value, element } of this._items ?? []) {
      const { text, title, odd } = this._says(line, x);
      setText(value, text);
      value.title = title ?? "";
      element.classList.toggle("is-odd", Boolean(odd));
    }
  }

  /** What is said of a line at a place, or of its end: `{text, title, odd}`. */
  _says(line, x) {
    const at = (where) => ` @ ${place(where, this.host.axis())}`;
    const odd = oddAt(line, x);
    if (odd) {
      const last = lastOf(line.y);
      const title = last < 0 ? "never a number" : `the last number: ${this.format(line.y[last])}${at(line.x[last])}`;
      return { text: odd.word + (x === null ? "" : at(odd.x)) + (line.told ? among(line.told, odd.x) : ""), title, odd };
    }
    const i = x === null ? lastOf(line.y) : near(line, x);
    if (i < 0) return { text: "" };
    let text = this.format(line.y[i]);
    if (x !== null) text += at(line.x[i]);
    const behind = line.points ? lagAt(line, i) : 0;
    if (behind > 0) text += `, ${number(behind)} steps late`;
    return { text: text + (line.told ? among(line.told, line.x[i]) : "") };
  }

  _clear() {
    this.plot?.destroy();
    this.plot = null;
    this._shape = "";
  }

  close() {
    this._resize.disconnect();
    this._endTouch();
    this._clear();
    this.element.remove();
  }
}

function seriesOf(line) {
  const show = Boolean(line.points);
  return {
    label: line.label,
    stroke: line.colour,
    width: line.width,
    dash: line.dash?.length ? line.dash : undefined,
    spanGaps: false,
    points: {
      show,
      size: show ? POINT + 2 : 4,
      width: 1.5,
      stroke: line.colour,
      fill: line.colour,
      ...(show ? {} : { filter: (plot, at) => isolated(plot.data[at]) }),
    },
  };
}

/** How places below are marked. */
function below(axis) {
  if (axis === "time") return { values: (plot, all) => clocks(all), size: 40 };
  const values = (plot, all) => all.map((value) => mark(value, (one) => short(one, axis)));
  return { values, size: 28, ...(axis === "relative" ? { incrs: SPANS } : {}) };
}

function mark(value, format) {
  return value === null ? "" : format(value).replace(/\.0+(?=e)/, "");
}

function spanOf([low, high], log, least) {
  if (log) {
    const from = low > 0 && Number.isFinite(low) ? low : least > 0 ? least : 1;
    return [from, high > from ? high : from * 10];
  }
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

function near(line, x) {
  const at = nearest(line.x, x);
  if (at < 0) return -1;
  // A gap next to the cursor is told as one; a chart of which the cursor is far outside has no value there.
  if (isBeyond(line.x, x)) return -1;
  return line.y[at] === null || line.y[at] === undefined ? -1 : at;
}

/** Whether a line has no number at a place, or at its end: `{word, x}`, else null. */
function oddAt(line, x) {
  const { told } = line;
  const series = told ? { x: told.x, y: told.count.map((count, i) => (count || !told.missing[i] ? 0 : null)) } : line.part.series;
  if (!series?.x.length) return null;
  const i = x === null ? series.x.length - 1 : nearest(series.x, x);
  if (x !== null && isBeyond(series.x, x)) return null;
  if (series.y[i] !== null || series.breaks?.includes(series.x[i])) return null;
  const special = series.special ?? [];
  const word = special[nearest(special.map((one) => one.x), x ?? series.x[i])]?.value ?? "NaN";
  return { word: number(word), x: series.x[i] };
}

/** How many runs are in a mean at a place, where not all of them are. */
function among({ x, count, missing, of }, at) {
  const i = nearest(x, at);
  if (i < 0 || count[i] === of) return "";
  return ` (${count[i]} of ${of}${missing[i] ? `, ${missing[i]} NaN` : ""})`;
}

/** Whether a place is far outside of a line. */
function isBeyond(xs, x) {
  const width = xs[xs.length - 1] - xs[0];
  return x < xs[0] - width * 0.02 - 0.5 || x > xs[xs.length - 1] + width * 0.02 + 0.5;
}

function lastOf(y) {
  for (let at = y.length - 1; at >= 0; at -= 1) if (y[at] !== null && y[at] !== undefined) return at;
  return -1;
}

function lagAt(line, at) {
  const { series } = line.part;
  return series?.lag?.[nearest(series.x, line.x[at])] ?? 0;
}

function triangle(ctx, x, y, way, size) {
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(x - size * 0.7, y + way * size * 1.3);
  ctx.lineTo(x + size * 0.7, y + way * size * 1.3);
  ctx.closePath();
  ctx.fill();
}
