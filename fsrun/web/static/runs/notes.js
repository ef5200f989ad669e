// What is said about the table: how many runs, what is wrong with some, how the filter works.

import { open } from "../dialog.js";
import { h } from "../dom.js";
import { count, plural } from "../format.js";
import { toRuns } from "../route.js";

/** "12 of 10,000 runs, 3 running". */
export function tally(store, rows, shown) {
  const running = shown.filter((row) => row.status === "running").length;
  const all = plural(rows.length, "run");
  const some = shown.length === rows.length ? all : `${count(shown.length)} of ${all}`;
  const looking = store.scanning && store.loaded ? ", looking …" : "";
  return `${some}${running ? `, ${count(running)} running` : ""}${looking}`;
}

/** What the reader should know: problems, damage, strays; or why there is nothing to see. */
export function notes(store, rows, shown, clear) {
  const damaged = rows.filter((row) => row.problem !== null).length;
  const none = store.loaded && !store.scanning && !rows.length;
  const misfit = rows.length > 0 && !shown.length;
  return [
    !store.loaded && !store.problem && note("plain", "Reading the runs …"),
    store.problem && note("bad", store.problem),
    none &&
      note(
        "plain",
        "No runs yet. A training makes one: ",
        code('fsrun.init("project")'),
        ", or try ",
        code("fsrun demo"),
        ".",
      ),
    misfit &&
      note(
        "plain",
        "No run fits the filter. ",
        h("button", { type: "button", class: "button", onclick: clear }, "Clear it"),
      ),
    damaged > 0 &&
      note(
        "warn",
        h("a", { href: toRuns({ q: "is:damaged" }) }, plural(damaged, "damaged run")),
        ": shown as far as it can be read",
      ),
    store.strays.count > 0 && note("warn", strays(store.strays)),
  ].filter(Boolean);
}

function strays({ count: times, names }) {
  const rest = times > names.length ? ", …" : "";
  return `${plural(times, "thing")} below the root that ${times === 1 ? "is" : "are"} no run: ${names.join(", ")}${rest}`;
}

function code(text) {
  return h("code", null, text);
}

function note(kind, ...children) {
  return h("p", { class: `note note-${kind}`, role: kind === "bad" ? "alert" : null }, children);
}

/** What can be done with selected runs. */
export function selection(times, most, compare, clear) {
  if (!times) return [];
  const many = times > most;
  const word = times === 1 ? "Open charts" : "Compare";
  return [
    h("strong", null, `${count(times)} selected`),
    h("button", { type: "button", class: "button primary", disabled: many, onclick: compare }, word),
    many && h("span", { class: "faint" }, `at most ${most} are compared`),
    h("button", { type: "button", class: "button quiet", onclick: clear }, "Clear"),
  ];
}

/** The window that tells what the filter understands. */
export function explain() {
  const rows = [
    ["resnet", "in name, folder, project or status"],
    ['"two words"', "with the space"],
    ["-resnet", "not in it"],
    ["status:running", "also project: name: job: host: reason: entry:; several with commas"],
    ["eval/acc>0.9", "a scalar's newest value; >= < <= = != too"],
    ["lr<=1e-3", "a setting; optimizer.lr where it is within another"],
    ["step>1000", "a column"],
    ["is:live", "also is:damaged is:failed is:waiting is:best"],
  ];
  open("Filter", [
    h("p", null, "All words have to fit."),
    h(
      "dl",
      { class: "keys" },
      rows.map(([word, what]) => h("div", null, h("dt", null, h("code", null, word)), h("dd", null, what))),
    ),
  ]);
}
