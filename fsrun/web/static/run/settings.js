// All settings of a run: configuration, every job with host and sessions, code, packages, command, machine.

import { about, fileAddress, get } from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, count, duration, plural, setting, time } from "../format.js";
import { toRun } from "../route.js";
import { badge } from "../runs/chips.js";
import { earlierSessions } from "./sessions.js";

const MOST = 2_000_000;

export function mount(container, { run, watched }) {
  const field = h("input", {
    type: "search",
    class: "field filter",
    placeholder: "Find a setting, a package, a variable",
    "aria-label": "Find in the settings",
    oninput: () => paint(),
  });
  const body = h("div");
  container.append(h("div", { class: "content settings" }, h("div", { class: "settings-bar" }, field), body));
  const control = new AbortController();
  const packages = { text: null, error: null, asked: null };
  const others = new Map();
  let state = null;
  let shown = "";
  let sessions = "";
  let earlier = null;

  const paint = () => {
    if (!state) return;
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (name, value) => words.every((word) => `${name} ${value}`.toLowerCase().includes(word));
    const kept = new Set([...body.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    replace(body, [
      ...state.jobs
        .filter((job) => Object.keys(job.config).length)
        .map((job) =>
          section(
            job.job === "main" ? "Configuration" : `Configuration of ${job.job}`,
            rows(flatten(job.config), fits),
          ),
        ),
      words.length ? null : jobs(run, state, earlier),
      section("Place", rows(place(state.run), fits)),
      ...environments(run, state, others, fits, words.length > 0),
      packageList(packages, fits, words.length > 0, kept.has("packages")),
    ]);
    if (!body.childElementCount)
      body.append(h("p", { class: "faint" }, words.length ? "Nothing has that in it." : "No settings were recorded."));
  };
  const unlisten = watched.listen((next) => {
    const jobs = next.jobs.map(({ silent_s, heartbeat, step, summary, ...job }) => job);
    const text = JSON.stringify([jobs, next.environment]);
    if (text === shown) return;
    shown = text;
    state = next;
    const opened = JSON.stringify(next.jobs.map((job) => [job.job, job.session]));
    if (opened !== sessions) {
      sessions = opened;
      earlier = earlierSessions(run, next.jobs, control.signal);
    }
    paint();
    readPackages(run, next.environment, packages, control.signal).then(paint, () => {});
    readOthers(run, next.jobs, others, control.signal).then(
      (news) => news && paint(),
      () => {},
    );
  });
  return () => {
    control.abort();
    unlisten();
  };
}

/** Values by dotted name. */
export function flatten(value, prefix = "") {
  const found = [];
  for (const [name, one] of Object.entries(value)) {
    if (one && typeof one === "object" && !Array.isArray(one) && Object.keys(one).length)
      found.push(...flatten(one, `${prefix}${name}.`));
    else found.push([`${prefix}${name}`, setting(one)]);
  }
  return found;
}

function section(title, content, extra = null) {
  return content && h("section", { class: "section panel" }, h("h2", null, title), extra, content);
}

function rows(pairs, fits) {
  const shown = pairs.filter(([name, value]) => fits(name, value instanceof Node ? value.textContent : value));
  if (!shown.length) return null;
  return h(
    "table",
    { class: "table" },
    h(
      "tbody",
      null,
      shown.map(([name, value]) => h("tr", null, h("th", { scope: "row" }, name), h("td", null, value))),
    ),
  );
}

function place({ path, unit }) {
  const found =
    unit && typeof unit === "object"
      ? Object.entries(unit).map(([name, value]) => [`hand-over ${name}`, setting(value)])
      : [];
  return [["folder", path], ...found];
}

function jobs(run, state, earlier) {
  const heads = ["Job", "Status", "Session", "Host", "Process", "User", "Step", "Opened", "Ended", "Timeout", "Exit"];
  return h(
    "section",
    { class: "section panel" },
    h("h2", null, "Jobs"),
    h(
      "div",
      { class: "scroll-x" },
      h(
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
          state.jobs.map((job) =>
            h(
              "tr",
              null,
              h("td", null, h("a", { href: toRun(run, "console", { job: job.job }), title: "Its console" }, job.job)),
              h("td", null, badge(job.status), job.reason && h("div", { class: "faint" }, job.reason)),
              h(
                "td",
                { title: job.session > 1 ? `opened anew ${plural(job.session - 1, "time")}` : null },
                count(job.session),
              ),
              h("td", null, job.host),
              h("td", null, job.pid),
              h("td", null, job.user),
              h("td", null, count(job.step)),
              h("td", null, time(job.opened)),
              h("td", null, time(job.ended)),
              h("td", null, duration(job.timeout)),
              h("td", null, job.exit_code ?? ""),
            ),
          ),
        ),
      ),
    ),
    earlier,
  );
}

function environments(run, state, others, fits, searching) {
  const found = [["main", state.environment], ...others].filter(
    ([, environment]) => environment && Object.keys(environment).length,
  );
  return found.flatMap(([job, environment]) => {
    const of = found.length > 1 ? ` of ${job}` : "";
    return [
      section(`Code${of}`, rows(code(run, environment), fits)),
      section(`Command${of}`, rows(command(environment), fits)),
      section(`Machine${of}`, rows(machine(environment), fits)),
      section(`Variables${of}`, rows(Object.entries(environment.variables ?? {}), fits)),
    ].filter((one) => one && (!searching || one.querySelector("tr")));
  });
}

function code(run, { git, script, directory }) {
  const pairs = [
    ["script", script],
    ["folder", directory],
  ];
  if (git) {
    pairs.push(
      ["commit", git.commit],
      ["branch", git.branch],
      ["remote", git.remote],
      ["uncommitted changes", git.dirty === null || git.dirty === undefined ? null : git.dirty ? "yes" : "no"],
      ["problem", git.problem],
    );
    if (git.diff) pairs.push(["changes", h("a", { href: fileAddress(run, git.diff) }, git.diff, git.cut && " (cut)")]);
  }
  return pairs.filter(([, value]) => value !== null && value !== undefined);
}

function command({ command: words, pid, user, recorded, session }) {
  return [
    ["command", Array.isArray(words) ? words.map(quote).join(" ") : words],
    ["user", user],
    ["process", pid],
    ["session", session],
    ["recorded", recorded && time(recorded)],
  ].filter(([, value]) => value !== null && value !== undefined);
}

function quote(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`;
}

const KNOWN = new Set([
  "protocol",
  "job",
  "session",
  "recorded",
  "command",
  "arguments",
  "directory",
  "script",
  "variables",
  "user",
  "pid",
  "git",
  "packages",
  "memory",
  "gpus",
]);

function machine(environment) {
  const rest = Object.fromEntries(
    Object.entries(environment).filter(([name, value]) => !KNOWN.has(name) && value !== null),
  );
  const gpus = (environment.gpus ?? []).map((gpu, at) => [
    `gpu.${at}`,
    typeof gpu === "object" && gpu
      ? Object.entries(gpu)
          .map(
            ([name, value]) =>
              `${name} ${/memory|bytes/.test(name) && typeof value === "number" ? bytes(value) : setting(value)}`,
          )
          .join(", ")
      : setting(gpu),
  ]);
  return [...flatten(rest), ...(environment.memory ? [["memory", bytes(environment.memory)]] : []), ...gpus];
}

function packageList(packages, fits, searching, open) {
  if (packages.error) return section("Packages", h("p", { class: "faint" }, packages.error));
  if (!packages.text) return null;
  const pairs = parsePackages(packages.text);
  const table = rows(pairs, fits);
  if (!table) return null;
  if (searching) return section("Packages", table);
  return section(
    "Packages",
    h("details", { dataset: { name: "packages" }, open }, h("summary", null, plural(pairs.length, "package")), table),
  );
}

/** Names and versions of a list such as `numpy==2.1.0`. */
export function parsePackages(text) {
  return text
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.search(/==| @ /);
      return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at).replace(/^==/, "").trim()];
    });
}

async function readPackages(run, environment, packages, signal) {
  const path = environment?.packages?.path;
  if (!path || packages.asked === path) return;
  packages.asked = path;
  try {
    packages.text = await readText(run, path, signal);
  } catch (error) {
    packages.error = error.message;
  }
}

/** The text of a file of a run. */
export async function readText(run, path, signal) {
  const response = await fetch(fileAddress(run, path), { signal, headers: { Range: `bytes=0-${MOST}` } });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${response.statusText}`);
  return response.text();
}

/** What side jobs recorded of their own; true where something is new. */
async function readOthers(run, jobs, others, signal) {
  const asked = jobs.filter((job) => job.job !== "main" && !others.has(job.job));
  for (const { job } of asked) {
    others.set(job, null);
    try {
      const answer = await get(about(run, "/environment", { job }), { signal });
      others.set(job, answer.environment ?? null);
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
  }
  return asked.length > 0;
}
