// The first tab: the best checkpoint, the queue, jobs and what they died of, newest scalars; the charts below.

import { h, replace } from "../dom.js";
import { ago, count, duration, isWild, number, plural, time } from "../format.js";
import { toRun } from "../route.js";
import { badge } from "../runs/chips.js";
import { byWorth } from "../runs/columns.js";
import { endings } from "./sessions.js";

const SCALARS = 12;

export function mount(container, { run, params, store, watched }) {
  const panels = h("div", { class: "panels" }, h("p", { class: "faint" }, "Reading the run …"));
  const charts = h("div", { class: "section overview-charts" });
  container.append(h("div", { class: "content" }, panels, charts));
  const control = new AbortController();
  let text = "";
  let sessions = "";
  let before = new Map();
  const paint = (state) => {
    const { alive, silent_s, ...rest } = state.run;
    const newest = store.row(run)?.summary;
    const next = JSON.stringify([rest, state.jobs, state.queue, state.best, state.evaluation, state.recorded, newest, [...before]]);
    if (next === text) return;
    text = next;
    const open = new Set([...panels.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    replace(
      panels,
      [
        ...errors(state, open),
        best(run, state),
        queue(run, state),
        jobs(run, state, before),
        scalars(state, newest, open),
        recorded(run, state),
      ].filter(Boolean),
    );
  };
  const unlisten = watched.listen((state) => {
    paint(state);
    const opened = JSON.stringify(state.jobs.map((job) => [job.job, job.session]));
    if (opened === sessions) return;
    sessions = opened;
    endings(run, state.jobs, control.signal).then((found) => {
      if (control.signal.aborted || opened !== sessions) return;
      before = found;
      paint(watched.state);
    });
  });
  let unmount = null;
  let gone = false;
  import("../charts/grid.js")
    .then((module) => {
      if (!gone) unmount = module.mount(charts, { runs: [run], params, store });
    })
    .catch((error) => {
      console.error(error);
      replace(charts, h("p", { class: "note" }, `Charts cannot be shown: ${error.message}`));
    });
  return () => {
    gone = true;
    control.abort();
    unlisten();
    unmount?.();
  };
}

function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h2", null, title), children);
}

function facts(pairs) {
  const real = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    real.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}

function errors(state, open) {
  return state.jobs
    .filter((job) => job.error || (job.status === "crashed" && job.reason))
    .map((job) => {
      const error = job.error ?? {};
      const lines = String(error.traceback ?? "").trimEnd();
      const last =
        lines.split("\n").findLast((line) => line.trim()) ??
        (error.type ? `${error.type}: ${error.message ?? ""}` : job.reason);
      return h(
        "section",
        { class: "panel panel-wide panel-bad" },
        h("h2", null, job.job, " ", badge(job.status)),
        h("p", { class: "mono" }, last),
        h(
          "p",
          { class: "faint" },
          [
            job.reason !== last && job.reason,
            job.host && `on ${job.host}`,
            job.pid !== null && `process ${job.pid}`,
            job.step !== null && `step ${count(job.step)}`,
            job.ended && `ended ${time(job.ended)}`,
            job.exit_code !== null && `exit code ${job.exit_code}`,
          ]
            .filter(Boolean)
            .join(", "),
        ),
        lines &&
          h(
            "details",
            { dataset: { name: job.job }, open: open.has(job.job) },
            h("summary", null, "Traceback"),
            h("pre", { class: "trace", tabIndex: 0 }, lines),
          ),
      );
    });
}

function best(run, { best: found }) {
  if (!found) return null;
  return panel(
    "Best checkpoint",
    h("div", { class: "big" }, number(found.score, 5)),
    facts([
      ["by", `${found.mode} of ${found.tag}, ${found.keep ?? 1} kept`],
      ["entry", found.entry],
      ["step", count(found.step)],
      [
        "files",
        h("a", { class: "mono", href: toRun(run, "files", { path: `best/${found.entry}` }) }, `best/${found.entry}`),
      ],
    ]),
  );
}

function queue(run, { queue: places, evals, evaluation }) {
  const states = evaluation?.states ?? {};
  if (!evals.length && !places.waiting && !places.claimed && !places.failed) return null;
  const cell = (name, value) => h("div", null, h("b", null, count(value)), h("span", { class: "faint" }, name));
  return panel(
    h("a", { href: toRun(run, "evaluation") }, "Evaluation"),
    h(
      "div",
      { class: "queue-strip" },
      cell("waiting", places.waiting),
      cell("claimed", places.claimed),
      cell("evaluated", states.done ?? 0),
      cell("failed", places.failed),
      cell("skipped", states.skipped ?? 0),
    ),
    evaluation &&
      facts([
        [
          "lag",
          evaluation.lag_steps &&
            `median ${count(Math.round(evaluation.lag_steps.median))} steps, at most ${count(evaluation.lag_steps.max)}`,
        ],
        [
          "duration",
          evaluation.duration_s &&
            `median ${duration(evaluation.duration_s.median)}, at most ${duration(evaluation.duration_s.max)}`,
        ],
        ["training stood still", evaluation.pause_s?.total !== undefined ? duration(evaluation.pause_s.total) : null],
        ["queue", places.finished ? "finished: nothing more is handed over" : null],
      ]),
  );
}

function jobs(run, state, before) {
  return h(
    "section",
    { class: "panel" },
    h("h2", null, "Jobs"),
    h(
      "ul",
      { class: "jobs" },
      state.jobs.map((job) =>
        h(
          "li",
          null,
          h("a", { href: toRun(run, "console", { job: job.job }), title: "Its console" }, job.job),
          " ",
          badge(job.status, { reason: job.reason }),
          h(
            "div",
            { class: "faint" },
            [
              job.host,
              job.pid !== null && `process ${job.pid}`,
              job.session > 1 && `session ${job.session}`,
              job.ended ? `ended ${ago(job.ended)}` : job.opened && `opened ${ago(job.opened)}`,
            ]
              .filter(Boolean)
              .join(", "),
          ),
          before.has(job.job) &&
            h("div", null, h("a", { href: toRun(run, "settings"), title: "Its sessions" }, before.get(job.job))),
        ),
      ),
    ),
  );
}

/** `newest`: what the table of runs knows, which is looked at every second and holds some of very many tags. */
function scalars(state, newest, open) {
  const found = newest && Object.keys(newest).length >= Object.keys(state.newest).length ? newest : state.newest;
  const all = byWorth(Object.keys(found), state.best?.tag);
  if (!all.length) return null;
  const pairs = (part) =>
    h(
      "dl",
      { class: "facts scalars" },
      part.map((tag) => [
        h("dt", null, tag),
        h("dd", { class: ["number", isWild(found[tag]) && "bad"] }, number(found[tag], 5)),
      ]),
    );
  const hidden = all.slice(SCALARS);
  const wild = hidden.some((tag) => isWild(found[tag]));
  return panel(
    "Newest scalars",
    pairs(all.slice(0, SCALARS)),
    hidden.length > 0 &&
      h(
        "details",
        { dataset: { name: "scalars" }, open: open.has("scalars") },
        h("summary", { class: wild ? "bad" : null }, `${count(hidden.length)} more`),
        pairs(hidden),
      ),
  );
}

function recorded(run, state) {
  if (!state.recorded.length) return null;
  const tab = { table: "tables", artifact: "artifacts" };
  return panel(
    "Recorded",
    h(
      "ul",
      { class: "jobs" },
      state.recorded
        .slice(0, SCALARS)
        .map((one) =>
          h(
            "li",
            null,
            h("a", { href: toRun(run, tab[one.kind] ?? "media") }, one.name),
            h("span", { class: "faint" }, ` ${plural(one.count, one.kind)}`),
          ),
        ),
    ),
  );
}
