// What differs in the settings of several runs: configuration, code, machine, packages. The first run is what the
// others are compared with.

import { about, get } from "../api.js";
import { h, replace } from "../dom.js";
import { NONE, plural } from "../format.js";
import { toRun } from "../route.js";
import { flatten, parsePackages, readText } from "../run/settings.js";
import { recall, keep } from "../storage.js";

const TOGETHER = 4;

export function mount(container, { runs, store }) {
  const control = new AbortController();
  const only = h("input", {
    type: "checkbox",
    checked: recall("only-different", true),
    onchange: () => (keep("only-different", only.checked), paint()),
  });
  const field = h("input", {
    type: "search",
    class: "field filter",
    placeholder: "Find a setting",
    "aria-label": "Find a setting",
    oninput: () => paint(),
  });
  const progress = h("span", { class: "faint", role: "status" });
  const failures = h("div");
  const body = h("div");
  container.append(
    h("div", { class: "settings-bar" }, field, h("label", { class: "labelled" }, only, "Only what differs"), progress),
    failures,
    body,
  );
  const known = new Map();
  let frame = 0;

  const paint = () => {
    const found = runs.map((key) => ({ key, title: store.row(key)?.title ?? key, ...known.get(key) }));
    const failed = found.filter((one) => one.error);
    replace(
      failures,
      failed.map((one) => h("p", { class: "note note-bad" }, one.error)),
    );
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const parts = [
      ["Configuration", (one) => one.config ?? fallback(store.row(one.key))],
      ["Side jobs", (one) => one.jobs],
      ["Code, command and machine", (one) => one.environment],
      ["Packages", (one) => one.packages],
    ];
    const sections = parts
      .map(([title, of]) => difference(title, found, of, { only: only.checked, words }))
      .filter(Boolean);
    replace(
      body,
      sections.length
        ? sections
        : h(
            "p",
            { class: "faint" },
            failed.length ? "" : only.checked && runs.length > 1 ? "Nothing differs." : "Nothing to show.",
          ),
    );
  };
  const soon = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      paint();
    });
  };
  const read = async () => {
    const left = [...runs];
    let done = 0;
    const work = async () => {
      while (left.length) {
        const key = left.shift();
        try {
          known.set(key, await describe(key, control.signal));
        } catch (error) {
          if (error.name === "AbortError") return;
          known.set(key, { error: error.message });
        }
        done += 1;
        progress.textContent = done < runs.length ? `reading ${done} of ${plural(runs.length, "run")} …` : "";
        soon();
      }
    };
    await Promise.all(Array.from({ length: TOGETHER }, work));
  };
  paint();
  read();
  return () => {
    control.abort();
    cancelAnimationFrame(frame);
  };
}

function fallback(row) {
  return row ? new Map(flatten(row.config)) : undefined;
}

async function describe(key, signal) {
  const state = await get(about(key), { signal });
  const {
    packages,
    git,
    command,
    arguments: words,
    variables,
    recorded,
    protocol,
    job,
    session,
    pid,
    ...rest
  } = state.environment ?? {};
  const environment = new Map(
    flatten({
      ...(git ? { git } : {}),
      ...(command ? { command: command.join?.(" ") ?? command } : {}),
      ...rest,
      ...(variables ? { variables } : {}),
    }),
  );
  let list;
  if (packages?.path) {
    try {
      list = new Map(parsePackages(await readText(key, packages.path, signal)));
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
  }
  const [main, ...sides] = state.jobs;
  const jobs = new Map(sides.flatMap((side) => [[side.job, side.status], ...flatten(side.config, `${side.job}.`)]));
  return { config: new Map(flatten(main?.config ?? {})), jobs, environment, packages: list };
}

function difference(title, runs, of, { only, words }) {
  const maps = runs.map(of);
  const names = [...new Set(maps.flatMap((map) => [...(map?.keys() ?? [])]))].sort();
  const lines = names
    .map((name) => ({ name, values: maps.map((map) => (map ? map.get(name) : null)) }))
    .filter(({ name, values }) => words.every((word) => `${name} ${values.join(" ")}`.toLowerCase().includes(word)))
    .filter(({ values }) => !only || runs.length < 2 || new Set(values.filter((value) => value !== null)).size > 1);
  if (!lines.length) return null;
  return h(
    "section",
    { class: "section panel" },
    h("h2", null, title, h("span", { class: "faint" }, ` ${plural(lines.length, "line")}`)),
    h(
      "div",
      { class: "scroll-x" },
      h(
        "table",
        { class: "table settings diff" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, ""),
            runs.map((one) => h("th", { scope: "col" }, h("a", { href: toRun(one.key, "settings") }, one.title))),
          ),
        ),
        h(
          "tbody",
          null,
          lines.map(({ name, values }) =>
            h(
              "tr",
              null,
              h("th", { scope: "row" }, name),
              values.map((value, at) =>
                h(
                  "td",
                  { class: at > 0 && value !== values[0] && value !== null && "is-other" },
                  value === null ? "…" : (value ?? NONE),
                ),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}
