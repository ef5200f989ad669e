// The sessions of a job before the newest one: who held it, from when until when, and how each ended.

import { about, get } from "../api.js";
import { h, replace } from "../dom.js";
import { count, plural, time } from "../format.js";
import { toRun } from "../route.js";
import { badge } from "../runs/chips.js";

const LEFT = new Set(["preempted", "interrupted", "terminated"]);

/** A list that opens, and is only then read; null where no job was opened twice. */
export function earlierSessions(run, jobs, signal) {
  const times = jobs.reduce((sum, job) => sum + job.session - 1, 0);
  if (!times) return null;
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
    try {
      const { sessions, more } = await get(about(run, "/sessions"), { signal });
      replace(
        place,
        table(run, sessions),
        more > 0 && h("p", { class: "faint" }, `and ${count(more)} more, in jobs/`),
      );
    } catch (error) {
      if (error.name === "AbortError") return;
      asked = false;
      replace(place, h("p", { class: "bad", role: "alert" }, error.message));
    }
  });
  return element;
}

/** How sessions before the newest one ended, by job: "crashed once, preempted 2 times, resumed". Nothing where all was well. */
export async function endings(run, jobs, signal) {
  if (!jobs.some((job) => job.session > 1)) return new Map();
  const times = new Map();
  const { sessions } = await get(about(run, "/sessions"), { signal }).catch(() => ({ sessions: [] }));
  for (const { job, status, reason } of sessions) {
    if (status !== "crashed" && status !== "failed") continue;
    const word = status === "failed" && LEFT.has(reason) ? reason : status;
    const words = times.get(job) ?? new Map();
    times.set(job, words.set(word, (words.get(word) ?? 0) + 1));
  }
  const said = (words) =>
    [...words].map(([word, many]) => `${word} ${many === 1 ? "once" : `${count(many)} times`}`);
  return new Map([...times].map(([job, words]) => [job, [...said(words), "resumed"].join(", ")]));
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

function line(run, { job, session, status, reason, continues, host, pid, opened, ended, found_by: by }) {
  const address = toRun(run, "console", { job, session });
  return h(
    "tr",
    null,
    h("td", null, h("a", { href: address, title: "Its console" }, job)),
    h("td", null, count(session), continues && h("span", { class: "faint" }, " continues the one before")),
    h("td", null, badge(status), reason && h("div", { class: "faint" }, reason)),
    h("td", null, host),
    h("td", null, pid),
    h("td", null, time(opened)),
    h("td", null, time(ended)),
    h("td", null, by ? `${text(by.host)}, process ${text(by.pid)}` : status === "unknown" ? "" : "itself"),
  );
}

function text(value) {
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}
