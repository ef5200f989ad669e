// The life of every checkpoint, from hand-over to verdict: the queue as a board, and all attempts below.

import { about, get, poll } from "../api.js";
import { open } from "../dialog.js";
import { h, replace } from "../dom.js";
import { ago, bytes, count, duration, number, plural, time } from "../format.js";
import { toRun } from "../route.js";

const EVERY = 1;
const FIRST = 30;
const LANES = [
  ["waiting", "Waiting", "handed over, not yet taken; the next one first"],
  ["claimed", "Claimed", "being evaluated now"],
  ["done", "Evaluated", "scored; not among the best"],
  ["kept", "Kept", "scored, and in best/"],
  ["failed", "Failed", "given up after its last attempt"],
  ["skipped", "Skipped", "not evaluated, on purpose"],
];

export function mount(container, { run }) {
  const head = h("div", { class: "settings-bar" });
  const lanes = h("div", { class: "board", role: "group", "aria-label": "Queue" });
  const attempts = h("div", { class: "section" });
  container.append(h("div", { class: "content" }, head, lanes, attempts));
  const more = new Set();
  let all = FIRST;
  let text = "";
  let found = null;

  const paint = () => {
    replace(head, summary(found));
    const at = lanes.scrollLeft;
    replace(
      lanes,
      LANES.map((lane) => column(run, found, lane, more.has(lane[0]), () => void (more.add(lane[0]), paint()))),
    );
    lanes.scrollLeft = at;
    replace(
      attempts,
      history(run, found, all, () => void ((all += 10 * FIRST), paint())),
    );
  };
  const stop = poll(async (options) => {
    try {
      const answer = await get(about(run, "/evals"), options);
      const next = JSON.stringify(answer);
      if (next === text) return;
      text = next;
      found = answer;
    } catch (error) {
      if (error.name !== "AbortError" && !found)
        replace(head, h("p", { class: "note note-bad", role: "alert" }, error.message));
      throw error;
    }
    const focused = lanes.contains(document.activeElement) ? document.activeElement.dataset.entry : null;
    paint();
    if (focused) [...lanes.querySelectorAll("[data-entry]")].find((one) => one.dataset.entry === focused)?.focus();
  }, EVERY);
  const timer = setInterval(() => {
    for (const one of lanes.querySelectorAll("[data-since]")) one.textContent = ago(one.dataset.since);
  }, 1000);
  return () => {
    stop();
    clearInterval(timer);
  };
}

function summary(found) {
  const { rule, best } = found;
  return [
    best
      ? h(
          "span",
          null,
          h("span", { class: "star", "aria-hidden": "true" }, "★ "),
          "Best: ",
          h("strong", null, best.entry),
          ` with ${best.tag} `,
          h("strong", { class: "number" }, number(best.score, 5)),
          ` at step ${count(best.step)}`,
        )
      : h(
          "span",
          { class: "faint" },
          rule ? "Nothing is kept yet" : "No rule says what is best: entries are evaluated and removed",
        ),
    rule && h("span", { class: "faint" }, `${rule.mode} of ${rule.tag}; ${plural(rule.keep ?? 1, "checkpoint")} kept`),
    h("span", { class: "grow" }),
    found.main_step !== undefined &&
      found.main_step !== null &&
      h("span", { class: "faint" }, `training is at step ${count(found.main_step)}`),
    found.finished && h("span", { class: "faint" }, "all are handed over"),
    found.problem && h("span", { class: "note note-bad" }, found.problem),
  ];
}

function column(run, found, [id, title, hint], whole, more) {
  const items = id === "waiting" || id === "claimed" ? found.board[id] : [...found.board[id]].reverse();
  const shown = whole ? items : items.slice(0, FIRST);
  return h(
    "section",
    { class: ["lane", !items.length && "is-none"], dataset: { lane: id }, "aria-label": `${title}: ${items.length}` },
    h("header", { title: hint }, h("h2", null, title), h("span", { class: "lane-count" }, count(items.length))),
    shown.map((item) => entry(run, found, id, item)),
    !items.length && h("p", { class: "lane-none" }, hint),
    items.length > shown.length &&
      h(
        "button",
        { type: "button", class: "button quiet", onclick: more },
        `${count(items.length - shown.length)} more`,
      ),
  );
}

function entry(run, found, lane, item) {
  const score = found.rule ? item.scores?.[found.rule.tag] : undefined;
  const isBest = found.best?.entry === item.entry;
  const lag = lagOf(item, found, lane);
  const facts = [
    item.step !== null && item.step !== undefined && `step ${count(item.step)}`,
    lag !== null && `lag ${count(lag)}`,
    item.duration_s !== null && item.duration_s !== undefined && duration(item.duration_s),
    item.attempt > 1 && `attempt ${item.attempt}`,
    item.size && bytes(item.size),
  ].filter(Boolean);
  const who = lane === "claimed" ? [item.job, item.host].filter(Boolean).join(" on ") : null;
  const error = errorLine(item);
  return h(
    "button",
    {
      type: "button",
      class: ["entry", `is-${lane}`],
      dataset: { entry: item.entry },
      onclick: () => details(run, found, item),
    },
    h(
      "span",
      { class: "entry-name", title: item.entry },
      isBest && h("span", { class: "star", role: "img", "aria-label": "best" }, "★ "),
      item.entry,
    ),
    h(
      "span",
      { class: "entry-head" },
      h("span", { class: "entry-facts" }, facts.join(" · ")),
      score !== undefined && h("span", { class: "entry-score" }, number(score)),
    ),
    (who || item.since) &&
      h(
        "span",
        { class: "entry-facts" },
        who,
        who && item.since && ", ",
        item.since && h("span", { dataset: { since: item.since } }, ago(item.since)),
      ),
    lane === "failed" && error && h("span", { class: "entry-error" }, error),
    lane === "skipped" && item.reason && h("span", { class: "entry-facts" }, item.reason),
  );
}

/** Steps that training is ahead: as the outcome says, or by now where there is none yet. */
function lagOf(item, found, lane) {
  if (item.lag_steps !== null && item.lag_steps !== undefined) return item.lag_steps;
  const waits = lane === "waiting" || lane === "claimed";
  if (!waits || !Number.isFinite(found.main_step) || !Number.isFinite(item.step)) return null;
  return Math.max(0, found.main_step - item.step);
}

function errorLine(item) {
  const lines = String(item.error?.traceback ?? "")
    .split("\n")
    .filter((line) => line.trim());
  if (lines.length) return lines.at(-1).trim();
  return item.error?.message ? `${item.error.type ?? "error"}: ${item.error.message}` : (item.reason ?? null);
}

/** All that is known of an entry: its attempts, scores, and what it failed of. */
function details(run, found, item) {
  const attempts = found.outcomes.filter((one) => one.entry === item.entry).sort((a, b) => b.attempt - a.attempt);
  const shown = attempts.length ? attempts : [item];
  open(
    item.entry,
    shown.map((one) => attempt(run, one)),
    { wide: true },
  );
}

function attempt(run, one) {
  const scores = Object.entries(one.scores ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const pairs = [
    ["step", count(one.step)],
    ["state", one.state ?? "open"],
    ["reason", one.reason],
    ["job", one.job && `${one.job}, session ${one.session}`],
    ["host", one.host],
    ["since", one.since && time(one.since)],
    ["started", one.started && time(one.started)],
    ["ended", one.ended && time(one.ended)],
    ["duration", one.duration_s !== null && one.duration_s !== undefined ? duration(one.duration_s) : null],
    ["lag", one.lag_steps !== null && one.lag_steps !== undefined ? `${count(one.lag_steps)} steps` : null],
    ["size", one.size ? bytes(one.size) : null],
    ["engine", one.engine ? h("span", { class: "mono" }, JSON.stringify(one.engine)) : null],
    [
      "samples",
      one.samples
        ? h(
            "a",
            {
              href: toRun(run, "samples", { entry: one.entry, attempt: one.attempt }),
              onclick: (event) => event.target.closest("dialog").close(),
            },
            plural(one.samples.rows, "answer"),
          )
        : null,
    ],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "section",
    null,
    one.attempt && h("h3", null, `Attempt ${one.attempt}`),
    h(
      "dl",
      { class: "facts" },
      pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
    ),
    scores.length > 0 &&
      h(
        "div",
        { class: "scroll-x section" },
        h(
          "table",
          { class: "table" },
          h(
            "tbody",
            null,
            scores.map(([tag, value]) =>
              h("tr", null, h("th", { scope: "row" }, tag), h("td", { class: "is-number" }, number(value, 6))),
            ),
          ),
        ),
      ),
    one.error &&
      h(
        "pre",
        { class: "trace", tabIndex: 0 },
        String(one.error.traceback ?? `${one.error.type ?? "error"}: ${one.error.message ?? ""}`),
      ),
  );
}

function history(run, found, most, more) {
  const outcomes = [...found.outcomes].reverse();
  if (!outcomes.length) return null;
  const tag = found.rule?.tag ?? mostCommon(outcomes);
  const shown = outcomes.slice(0, most);
  return [
    h("h2", null, "All attempts, newest first"),
    h(
      "div",
      { class: "scroll-x" },
      h(
        "table",
        { class: "table attempts" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ["Ended", "Entry", "Step", "Attempt", "State", "Job", "Lag", "Duration", tag ?? ""].map((name, at) =>
              h("th", { scope: "col", class: at === 2 || at === 3 || at > 5 ? "is-number" : null }, name),
            ),
          ),
        ),
        h(
          "tbody",
          null,
          shown.map((one) => attemptRow(run, found, one, tag)),
        ),
      ),
    ),
    outcomes.length > shown.length &&
      h("button", { type: "button", class: "button", onclick: more }, `${count(outcomes.length - shown.length)} more`),
    found.total > outcomes.length &&
      h("p", { class: "faint" }, `The newest ${count(outcomes.length)} of ${count(found.total)} attempts.`),
  ];
}

function attemptRow(run, found, one, tag) {
  const bad = one.state === "failed" || one.state === "lost";
  return h(
    "tr",
    null,
    h("td", { class: "number" }, time(one.ended)),
    h(
      "th",
      { scope: "row" },
      h("button", { type: "button", class: "as-link", onclick: () => details(run, found, one) }, one.entry),
    ),
    h("td", { class: "is-number" }, count(one.step)),
    h("td", { class: "is-number" }, one.attempt),
    h("td", { class: bad ? "bad" : null, title: errorLine(one) }, one.state),
    h("td", null, one.job),
    h("td", { class: "is-number" }, count(one.lag_steps)),
    h("td", { class: "is-number" }, duration(one.duration_s)),
    h("td", { class: "is-number" }, tag ? number(one.scores?.[tag]) : ""),
  );
}

function mostCommon(outcomes) {
  const counts = new Map();
  for (const one of outcomes)
    for (const tag of Object.keys(one.scores ?? {})) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0]?.[0];
}
