// The bar above the charts: filter, axis, smoothing, logarithms, grouping. What was chosen is kept by the browser.

import { h, replace, setText } from "../dom.js";
import { keep, recall } from "../storage.js";

const AXES = ["step", "time", "relative"];
const STEPS = [0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999];
const WAIT = 150;

function weightOf(value) {
  const weight = Number(value);
  if (!(weight > 0)) return 0;
  return STEPS.reduce((best, one) => (Math.abs(one - weight) < Math.abs(best - weight) ? one : best));
}

/** `many`: of several runs. `settings`: names by which they can be grouped. `changed(name)`: something was chosen. */
export class Bar {
  constructor(many, settings, params, changed) {
    const kept = recall("charts", {});
    const axis = params.get("x") ?? kept.axis;
    this.look = {
      filter: params.get("tag") ?? "",
      axis: AXES.includes(axis) ? axis : "step",
      smoothing: weightOf(params.get("smooth") ?? kept.smoothing),
      logX: kept.logX === true,
      logY: kept.logY === true,
      together: kept.together !== false,
      group: "",
    };
    // The table of runs says by what it was grouped.
    const group = params.get("group") ?? "";
    this._asked = group === "all" ? group : `by:${group.replace(/^config:/, "")}`;
    this._changed = changed;
    this._build(many);
    this.offer(settings);
  }

  /** Names of settings by which the runs can be grouped; they are known once the list of runs has come. */
  offer(settings) {
    const text = JSON.stringify(settings);
    if (text === this._offered) return;
    this._offered = text;
    const names = ["", "all", ...settings.map((name) => `by:${name}`)];
    const wanted = names.includes(this._asked) ? this._asked : this.look.group;
    const chosen = names.includes(wanted) ? wanted : "";
    const words = (name) => (name === "" ? "each run" : name === "all" ? "mean of all" : `mean by ${name.slice("by:".length)}`);
    replace(this.group, names.map((name) => h("option", { value: name, selected: name === chosen }, words(name))));
    if (this.group.isConnected) this._set("group", chosen);
    else if (this._many) this.look.group = chosen;
  }

  _build(many) {
    const { look } = this;
    this._many = many;
    this.filter = h("input", {
      type: "search", class: "field charts-filter", placeholder: "Filter: loss|acc", "aria-label": "Filter charts by a regular expression", value: look.filter,
      oninput: () => {
        clearTimeout(this._timer);
        this._timer = setTimeout(() => this._set("filter", this.filter.value.trim()), WAIT);
      },
      onkeydown: (event) => event.key === "Escape" && this.filter.blur(),
    });
    this.axis = h("select", { class: "field", "aria-label": "Axis below", onchange: () => this._set("axis", this.axis.value) }, AXES.map((name) => h("option", { value: name, selected: name === look.axis }, name === "relative" ? "relative time" : name)));
    this.smoothing = h("input", { type: "range", min: 0, max: STEPS.length - 1, step: 1, "aria-label": "Smoothing", value: STEPS.indexOf(look.smoothing), oninput: () => this._set("smoothing", STEPS[this.smoothing.value]) });
    this.weight = h("output", { class: "charts-weight" }, String(look.smoothing));
    this.boxes = {};
    const box = (name, text, title) => {
      this.boxes[name] = h("input", { type: "checkbox", checked: look[name], onchange: () => this._set(name, this.boxes[name].checked) });
      return h("label", { class: "charts-box", title }, this.boxes[name], text);
    };
    this.group = h("select", { class: "field", "aria-label": "Runs one by one, or their mean", onchange: () => this._choose(this.group.value) });
    this.element = h(
      "div",
      { class: "charts-bar", role: "toolbar", "aria-label": "Charts" },
      this.filter,
      h("label", { class: "charts-box" }, "x", this.axis),
      h("label", { class: "charts-box", title: "Exponential moving average (+ and -); evaluations stay as they were logged" }, "smooth", this.smoothing, this.weight),
      box("logY", "log y", "Logarithmic axis on the left (l)"),
      box("logX", "log x", "Logarithmic axis below"),
      box("together", "train & eval together", "train/loss and eval/loss in one chart"),
      many && h("label", { class: "charts-box", title: "Mean and standard deviation" }, "show", this.group),
    );
  }

  /** What was typed last counts no more. */
  close() {
    clearTimeout(this._timer);
  }

  _choose(group) {
    this._asked = null;
    this._set("group", group);
  }

  focus() {
    this.filter.focus();
    this.filter.select();
  }

  turn(name) {
    this.boxes[name].checked = !this.boxes[name].checked;
    this._set(name, this.boxes[name].checked);
  }

  turnAxis() {
    const next = AXES[(AXES.indexOf(this.look.axis) + 1) % AXES.length];
    this.axis.value = next;
    this._set("axis", next);
  }

  smoother(by) {
    const at = Math.min(STEPS.length - 1, Math.max(0, STEPS.indexOf(this.look.smoothing) + by));
    this.smoothing.value = at;
    this._set("smoothing", STEPS[at]);
  }

  _set(name, value) {
    if (this.look[name] === value) return;
    this.look[name] = value;
    setText(this.weight, this.look.smoothing);
    const { axis, smoothing, logX, logY, together } = this.look;
    keep("charts", { axis, smoothing, logX, logY, together });
    this._changed(name);
  }
}
