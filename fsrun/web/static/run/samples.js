// Samples of evaluations: prompt, answer and grade; wrong ones alone; the same samples of another entry beside them.

import { about, get } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { count, duration, number } from "../format.js";
import { bind } from "../keys.js";
import { setParams } from "../route.js";
import { pager, problems, say, select } from "./pages.js";

const SIZE = 25;
const ALL = [
  ["all", "All samples"],
  ["wrong", "Wrong ones"],
];
const TOLD = new Set(["set", "row", "sample", "prompt", "answer", "label", "extracted", "score", "correct", "error"]);
const SHORT = 900;

export function mount(container, { run, params, watched }) {
  const view = new SamplesView(container, run, params);
  let shown = null;
  const unlisten = watched.listen((state) => {
    const many = state.evals.filter((one) => one.samples).length;
    if (shown !== null && shown !== many) view.ask();
    shown = many;
  });
  return () => {
    unlisten();
    view.close();
  };
}

class SamplesView {
  constructor(container, run, params) {
    this.run = run;
    this.control = new AbortController();
    this.turn = 0;
    this.chosen = {
      entry: params.get("entry"),
      attempt: params.get("attempt"),
      set: params.get("set"),
      only: params.get("only") ?? "all",
      beside: params.get("beside"),
      offset: 0,
    };
    this.entries = select("Entry", (value) => this._entry(value));
    this.sets = select("Set", (set) => this._change({ set: set || null }));
    this.only = select("Which samples", (only) => this._change({ only }));
    this.beside = select("Beside it", (beside) =>
      this._change({
        beside: beside || null,
        only: !beside && this.chosen.only === "changed" ? "all" : this.chosen.only,
      }),
    );
    this.pager = pager(SIZE, (offset) => this._change({ offset }));
    this.told = h("span", { class: "faint number" });
    this.body = h("div", { class: "samples" });
    this.notes = h("div");
    this.bar = h(
      "div",
      { class: "content-bar is-stuck", hidden: true },
      this.entries,
      this.sets,
      this.only,
      h("span", { class: "labelled faint" }, "beside", this.beside),
      this.told,
      h("span", { class: "grow" }),
      this.pager,
    );
    container.append(this.bar, this.notes, this.body);
    this.unbind = bind(
      [
        {
          key: "w",
          does: "Wrong samples alone, or all",
          run: () => this._change({ only: this.chosen.only === "wrong" ? "all" : "wrong" }),
        },
      ],
      "Samples",
    );
    this.ask();
  }

  close() {
    this.turn += 1;
    this.control.abort();
    this.unbind();
  }

  _entry(value) {
    const [entry, attempt] = JSON.parse(value);
    this._change({ entry, attempt });
  }

  _change(changes) {
    // The address may be that of another page by now.
    if (this.control.signal.aborted) return;
    Object.assign(this.chosen, { offset: 0 }, changes);
    const { offset, only, ...rest } = this.chosen;
    setParams({ ...rest, only: only === "all" ? null : only });
    this.ask(true);
  }

  async ask(toTop = false) {
    const mine = ++this.turn;
    // Where a question takes the place of one that would have gone to the top, its answer does.
    this.toTop ||= toTop;
    const { beside, ...rest } = this.chosen;
    const [other, attempt] = beside ? JSON.parse(beside) : [null, null];
    const query = { ...rest, beside: other, beside_attempt: attempt, limit: SIZE };
    try {
      const answer = await get(about(this.run, "/samples", query), { signal: this.control.signal });
      if (mine === this.turn) this._paint(answer);
    } catch (error) {
      if (error.name !== "AbortError" && mine === this.turn) say(this.body, error.message, true);
    }
  }

  _paint(answer) {
    const name = (one) =>
      `${one.step === null ? "" : `step ${count(one.step)} · `}${one.entry}${one.attempt > 1 ? ` (${one.attempt})` : ""}${one.state === "done" ? "" : ` ${one.state}`}`;
    const pairs = [...answer.entries].reverse().map((one) => [JSON.stringify([one.entry, one.attempt]), name(one)]);
    this.bar.hidden = !answer.entries.length;
    replace(this.notes, problems(answer.problems));
    this.entries.show(pairs, JSON.stringify([answer.entry, answer.attempt]));
    this.beside.show([["", "nothing"], ...pairs], this.chosen.beside ?? "");
    this.sets.show(
      [["", "All sets"], ...answer.sets.map((one) => [one.set, `${one.set || "without a name"} (${count(one.total)})`])],
      this.chosen.set ?? "",
    );
    this.only.show(this.chosen.beside ? [...ALL, ["changed", "Changed ones"]] : ALL, this.chosen.only);
    const counted = answer.sets.filter((one) => !this.chosen.set || one.set === this.chosen.set);
    const total = counted.reduce((sum, one) => sum + one.total, 0);
    const wrong = counted.reduce((sum, one) => sum + one.wrong, 0);
    setText(this.told, total ? `${count(wrong)} of ${count(total)} wrong` : "");
    this.pager.show({ offset: answer.offset ?? 0, rows: answer.rows.length, total: answer.total });
    if (!answer.entries.length) say(this.body, "No samples were kept. An evaluation with --keep-samples keeps them.");
    else if (!answer.rows.length) say(this.body, "There are no such samples.");
    else {
      const others = answer.beside;
      replace(
        this.body,
        answer.rows.map((row, at) => {
          const facts = named(answer.columns, row);
          const other = others && others.rows[at] && named(others.columns, others.rows[at]);
          return card(facts, answer, others, other);
        }),
      );
    }
    if (this.toTop) this.body.parentElement.scrollTop = 0;
    this.toTop = false;
  }
}

function named(columns, row) {
  return Object.fromEntries(columns.map((name, at) => [name, row[at]]));
}

function right(facts) {
  if (facts.correct === true || facts.correct === false) return facts.correct;
  return typeof facts.score === "number" ? facts.score >= 1 : null;
}

function card(facts, answer, others, other) {
  const columns = [answers(facts, others ? answer : null)];
  if (others)
    columns.push(other ? answers(other, others) : h("div", { class: "faint" }, `no such sample in ${others.entry}`));
  return h(
    "article",
    { class: "sample panel" },
    h(
      "header",
      { class: "sample-head" },
      h("b", null, facts.set),
      h(
        "span",
        { class: "faint number" },
        `row ${count(facts.row)}${facts.sample ? `, answer ${count(facts.sample)}` : ""}`,
      ),
      facts.label !== null &&
        facts.label !== undefined &&
        h("span", null, h("span", { class: "faint" }, "label "), h("code", null, facts.label)),
    ),
    facts.prompt !== undefined && part("Prompt", facts.prompt),
    h("div", { class: ["sample-answers", others && "is-two"] }, columns),
  );
}

function answers(facts, of) {
  const good = right(facts);
  const rest = Object.entries(facts).filter(([name, value]) => !TOLD.has(name) && value !== null && value !== "");
  return h(
    "div",
    { class: ["sample-answer", good === true && "is-good", good !== true && "is-wrong"] },
    h(
      "div",
      { class: "sample-head" },
      of && h("span", null, of.step === null ? of.entry : `step ${count(of.step)}`),
      h(
        "b",
        { class: good === true ? "good" : "bad" },
        good === true ? "right" : good === false ? "wrong" : "no grade",
      ),
      facts.score !== null &&
        facts.score !== undefined &&
        h("span", { class: "number" }, `score ${number(facts.score)}`),
      facts.extracted !== null &&
        facts.extracted !== undefined &&
        h("span", null, h("span", { class: "faint" }, "found "), h("code", null, facts.extracted)),
    ),
    part("Answer", facts.answer),
    facts.error && h("p", { class: "bad" }, String(facts.error)),
    rest.length > 0 &&
      h(
        "p",
        { class: "sample-facts faint" },
        rest.map(([name, value]) => h("span", null, `${name.replaceAll("_", " ")} ${fact(name, value)}`)),
      ),
  );
}

function fact(name, value) {
  if (name === "seconds" && typeof value === "number") return duration(value);
  if (typeof value === "number") return number(value);
  return typeof value === "string" ? value.slice(0, 300) : JSON.stringify(value).slice(0, 300);
}

/** A text; a long one opens. */
function part(title, value) {
  if (value === null || value === undefined) return h("p", { class: "faint" }, `no ${title.toLowerCase()}`);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const pre = h("pre", { class: ["sample-text", text.length > SHORT && "is-cut"], title }, text);
  if (text.length <= SHORT) return pre;
  const more = h(
    "button",
    {
      type: "button",
      class: "as-link",
      onclick: () => setText(more, pre.classList.toggle("is-cut") ? "all of it" : "less"),
    },
    "all of it",
  );
  return h("div", null, pre, more);
}
