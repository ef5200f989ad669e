// The sessions of a job before the newest one: who held it, from when until when, and how each ended.

import { fileAddress, get } from "../api.js";
import { h, replace } from "../dom.js";
import { count, plural, time } from "../format.js";
import { toRun } from "../route.js";
import { badge } from "../runs/chips.js";

const MOST = 50;
const LEFT = new Set(["preempted", "interrupted", "terminated"]);

/** A list that opens, and is only then read; null where no job was opened twice. */
export function earlierSessions(run, jobs, signal) {
  const several = jobs.filter((job) => job.session > 1);
  if (!several.length) return null;
  const times = several.reduce((sum, job) => sum + job.session - 1, 0);
  const place = h("div", { class: "scroll-x" });
  const element = h(
    "details",
    { dataset: { name: "sessions" } },
    h("summary", null, plural(times, "earlier session")),
    place,
  );
  let asked = false;
  element.addEventListener("toggle", async () => {
    if (asked || !element.open) return;
    asked = true;
    replace(place, h("p", { class: "faint" }, "Reading …"));
    const wanted = several.flatMap(({ job, session }) =>
      Array.from({ length: session - 1 }, (_, at) => ({ job, session: session - 1 - at })),
    );
    const rows = await Promise.all(wanted.slice(0, MOST).map((one) => read(run, one, signal)));
    replace(
      place,
      table(run, rows),
      wanted.length > MOST && h("p", { class: "faint" }, `and ${count(wanted.length - MOST)} more, in jobs/`),
    );
  });
  return element;
}

/** How sessions before the newest one ended, by job: "crashed once, preempted 2 times, resumed". Nothing where all was well. */
export async function endings(run, jobs, signal) {
  const found = new Map();
  for (const { job, session } of jobs) {
    const before = Array.from({ length: Math.min(MOST, session - 1) }, (_, at) => session - 1 - at);
    const ends = await Promise.all(before.map((number) => record(run, job, number, "end", signal)));
    const times = new Map();
    for (const end of ends) {
      const word = end.status === "failed" && LEFT.has(end.reason) ? end.reason : end.status;
      if (word === "crashed" || end.status === "failed") times.set(word, (times.get(word) ?? 0) + 1);
    }
    const said = [...times].map(([word, many]) => `${word} ${many === 1 ? "once" : `${count(many)} times`}`);
    if (said.length) found.set(job, [...said, "resumed"].join(", "));
  }
  return found;
}

function record(run, job, session, kind, signal) {
  return get(fileAddress(run, `jobs/${job}.${session}.${kind}`), { signal }).catch(() => ({}));
}

async function read(run, { job, session }, signal) {
  const [lock, end] = await Promise.all(["lock", "end"].map((kind) => record(run, job, session, kind, signal)));
  return { job, session, lock, end };
}

function table(run, rows) {
  const heads = ["Job", "Session", "Status", "Host", "Process", "Opened", "Ended", "Closed by"];
  return h(
    "table",
    { class: "table plain-cells" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        heads.map((name) => h("th", { scope: "col" }, name)),
      ),
    ),
    h(
      "tbody",
      null,
      rows.map((row) => line(run, row)),
    ),
  );
}

function line(run, { job, session, lock, end }) {
  const by = end.found_by;
  return h(
    "tr",
    null,
    h("td", null, h("a", { href: toRun(run, "console", { job, session }), title: "Its console" }, job)),
    h(
      "td",
      null,
      count(session),
      lock.continues === true && h("span", { class: "faint" }, " continues the one before"),
    ),
    h("td", null, badge(end.status ?? "unknown"), end.reason && h("div", { class: "faint" }, text(end.reason))),
    h("td", null, text(lock.holder?.host)),
    h("td", null, text(lock.holder?.pid)),
    h("td", null, time(lock.opened)),
    h("td", null, time(end.ended)),
    h("td", null, by ? `${text(by.host)}, process ${text(by.pid)}` : end.status ? "itself" : ""),
  );
}

function text(value) {
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}
