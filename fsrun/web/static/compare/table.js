// The numbers of several runs side by side: a line each for what the table of runs knows, the best value marked.

import { h, replace } from "../dom.js";
import { count, duration, NONE, number, time } from "../format.js";
import { toRun } from "../route.js";
import { badge } from "../runs/chips.js";

const SMALLER = /loss|error|perplexity|ppl|_ms$|(?<!per)_s$|\/(failed|truncated|stderr|ungraded|duration_s|lag_steps)$/;
const LARGER = /_per_s$|acc|reward|score|f1|bleu|rouge|pass@|auc|recall|precision|^eval\/[^/]+$/;

export function mount(container, { runs, store }) {
  const field = h("input", {
    type: "search",
    class: "field filter",
    placeholder: "Find a scalar",
    "aria-label": "Find a scalar",
    oninput: () => paint(),
  });
  const place = h("div", { class: "panel" });
  container.append(h("div", { class: "settings-bar" }, field), place);
  const paint = () => {
    const rows = runs.map((key) => store.row(key) ?? { key, title: key, summary: {}, jobs: [], missing: true });
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (name) => words.every((word) => name.toLowerCase().includes(word));
    const at = place.firstChild?.scrollLeft ?? 0;
    replace(place, table(rows, fits));
    place.firstChild.scrollLeft = at;
  };
  paint();
  return store.listen(({ changed, gone }) => [...changed, ...gone].some((key) => runs.includes(key)) && paint());
}

function table(rows, fits) {
  const lasted = (row) => (row.startedAt && row.endedAt ? row.endedAt - row.startedAt : null);
  const facts = [
    ["status", (row) => (row.missing ? "no such run" : badge(row.status))],
    ["project", (row) => row.project],
    ["step", (row) => count(row.step)],
    ["started", (row) => time(row.started)],
    ["duration", (row) => duration(lasted(row))],
    ["host", (row) => row.jobs[0]?.host ?? NONE],
    [
      "best",
      (row) => (row.best ? `${number(row.best.score, 5)} (${row.best.tag}, step ${count(row.best.step)})` : NONE),
    ],
  ].filter(([name]) => fits(name));
  const tags = [...new Set(rows.flatMap((row) => Object.keys(row.summary)))].filter(fits).sort();
  return h(
    "div",
    { class: "scroll-x" },
    h(
      "table",
      { class: "table diff" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, ""),
          rows.map((row) => h("th", { scope: "col" }, h("a", { href: toRun(row.key) }, row.title))),
        ),
      ),
      h(
        "tbody",
        null,
        facts.map(([name, of]) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, name),
            rows.map((row) => h("td", null, of(row))),
          ),
        ),
        tags.map((tag) => scalar(tag, rows)),
      ),
    ),
  );
}

function scalar(tag, rows) {
  const values = rows.map((row) => (Object.hasOwn(row.summary, tag) ? row.summary[tag] : undefined));
  const best = bestOf(tag, rows, values);
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "mono" }, tag),
    values.map((value) =>
      h(
        "td",
        { class: ["number", best !== null && value === best && "is-best"] },
        value === undefined ? NONE : number(value, 5),
      ),
    ),
  );
}

/** The best of the values, where the rule of a run or the name says which way is better; null where nothing does. */
function bestOf(tag, rows, values) {
  const mode =
    rows.find((row) => row.best?.tag === tag)?.best.mode ??
    (SMALLER.test(tag) ? "min" : LARGER.test(tag) ? "max" : null);
  const finite = values.filter((value) => typeof value === "number");
  if (!mode || finite.length < 2 || new Set(finite).size < 2) return null;
  return mode === "min" ? Math.min(...finite) : Math.max(...finite);
}
