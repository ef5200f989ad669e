// A chip for each job: its name, a pulsing ring while it runs, a cross where it crashed or failed; more on a card.

import { h, replace, svg } from "../dom.js";
import { age, ago, time } from "../format.js";
import { isSilent, silence } from "./store.js";

const WORDS = { running: "running", finished: "finished", failed: "failed", crashed: "crashed", unknown: "unknown" };
const PATHS = {
  finished: "M2.5 6.4 5 8.9 9.6 3.4",
  failed: "M3 3 9 9M9 3 3 9",
  crashed: "M3 3 9 9M9 3 3 9",
};
const DELAY = 120;
/** Milliseconds of one pulse; in style.css too. */
const PULSE = 1600;

/** Which of the known states a status is. */
export function stateOf(status) {
  return status in WORDS ? status : "unknown";
}

/** The sign of a status: ring, tick or cross. For eyes only. */
export function sign(status) {
  const state = stateOf(status);
  // In step with all other rings, also where it is drawn anew.
  const delay = `${-Math.round(performance.now() % PULSE)}ms`;
  if (state === "running") return h("span", { class: "ring", "aria-hidden": "true", style: { "--delay": delay } });
  if (state === "unknown") return h("span", { class: "sign sign-unknown", "aria-hidden": "true" }, "?");
  return svg(
    "svg",
    { class: `sign sign-${state}`, viewBox: "0 0 12 12", "aria-hidden": "true" },
    svg("path", { d: PATHS[state] }),
  );
}

/** A status as sign and word. */
export function badge(status, { silent = false, reason = null } = {}) {
  const state = stateOf(status);
  const word = silent ? "silent" : state === "unknown" ? status || "unknown" : WORDS[state];
  return h(
    "span",
    { class: ["badge", `is-${state}`, silent && "is-silent"], dataset: { status: state }, title: reason },
    sign(state),
    word,
  );
}

/** The chip of a job. `row`: of the store. */
export function chip(row, job, { reachable = true } = {}) {
  const state = stateOf(job.status);
  const silent = isSilent(job, row.received);
  return h(
    "span",
    {
      class: ["chip", `is-${state}`, silent && "is-silent"],
      dataset: { key: row.key, job: job.job, status: state },
      role: "button",
      tabIndex: reachable ? 0 : -1,
      "aria-label": `${job.job}: ${silent ? "silent" : WORDS[state]}`,
    },
    sign(state),
    h("span", { class: "chip-name" }, job.job),
  );
}

/** The chips of a row, side jobs first: main says what the row's status says. `all`: with main. */
export function chips(row, { all = false, reachable = true } = {}) {
  return row.jobs.filter((job) => all || job.job !== "main").map((job) => chip(row, job, { reachable }));
}

/** Show a card beside the chip that the pointer or the focus is on, anywhere in the page. */
export function watchChips(store) {
  const card = h("div", { class: "card-over", id: "chip-card", role: "tooltip", hidden: true });
  document.body.append(card);
  let shown = null;
  let timer = 0;

  const hide = () => {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    card.hidden = true;
  };
  const show = (element) => {
    const row = store.row(element.dataset.key);
    const job = store.job(element.dataset.key, element.dataset.job);
    if (!job || !element.isConnected) return hide();
    if (shown !== element) shown?.removeAttribute("aria-describedby");
    shown = element;
    element.setAttribute("aria-describedby", card.id);
    replace(card, facts(row, job));
    card.hidden = false;
    place(card, element);
  };
  const later = (element) => {
    clearTimeout(timer);
    timer = setTimeout(() => show(element), DELAY);
  };
  const chipOf = (target) => (target instanceof Element ? target.closest(".chip[data-job]") : null);
  const over = (event) => {
    const element = chipOf(event.target);
    if (element) later(element);
    else if (!(event.target instanceof Node && card.contains(event.target))) {
      clearTimeout(timer);
      if (shown && shown !== document.activeElement) timer = setTimeout(hide, DELAY);
    }
  };
  const focus = (event) => {
    const element = chipOf(event.target);
    if (element) show(element);
    else hide();
  };
  const key = (event) => {
    if (event.key !== "Escape" || !shown) return;
    event.preventDefault();
    hide();
  };
  document.addEventListener("pointerover", over);
  document.addEventListener("focusin", focus);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", key, true);
  // A chip is drawn anew where its job changes: the card then speaks of the new one.
  store.listen(({ changed }) => {
    if (!shown || !changed.includes(shown.dataset.key)) return;
    const { key: run, job } = shown.dataset;
    requestAnimationFrame(() => {
      const again = [...document.querySelectorAll(".chip[data-job]")].find(
        (one) => one.dataset.key === run && one.dataset.job === job,
      );
      if (again) show(again);
      else hide();
    });
  });
}

function facts(row, job) {
  const quiet = silence(job, row.received);
  const beat = job.heartbeat
    ? `${time(job.heartbeat)}, ${ago(job.heartbeat)}`
    : quiet !== null
      ? `${age(quiet)} ago`
      : null;
  const pairs = [
    ["host", job.host],
    ["process", job.pid],
    ["session", job.session],
    ["step", job.step],
    ["last heartbeat", job.status === "running" ? beat : null],
    ["ended", job.ended ? `${time(job.ended)}, ${ago(job.ended)}` : null],
    ["reason", job.reason],
  ];
  return [
    h(
      "div",
      { class: "card-over-head" },
      h("strong", null, job.job),
      badge(job.status, { silent: isSilent(job, row.received) }),
    ),
    h(
      "dl",
      { class: "facts" },
      pairs
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
    ),
    job.error_line && h("p", { class: "error-line" }, job.error_line),
  ];
}

function place(card, element) {
  const at = element.getBoundingClientRect();
  const own = card.getBoundingClientRect();
  const room = 8;
  const left = Math.max(room, Math.min(at.left, innerWidth - own.width - room));
  const below = at.bottom + 6 + own.height < innerHeight;
  card.style.left = `${left}px`;
  card.style.top = `${below ? at.bottom + 6 : Math.max(room, at.top - own.height - 6)}px`;
}
