// Artifacts by name with their versions; the files of one, with digests and downloads.

import { about, fileAddress, get } from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, count, plural, time } from "../format.js";
import { setParams, toRun } from "../route.js";
import { pager, problems, say } from "./pages.js";

const SIZE = 500;

export function mount(container, { run, params, watched }) {
  const control = new AbortController();
  const notes = h("div");
  const list = h("div");
  const shown = h("div");
  let chosen = params.get("name") && { name: params.get("name"), version: Number(params.get("version")) };
  let turn = 0;
  container.append(notes, h("div", { class: "content" }, list, shown));

  const isChosen = (one) => chosen && one.name === chosen.name && one.version === chosen.version;

  function pick(one) {
    chosen = { name: one.name, version: one.version };
    setParams(chosen);
    for (const row of list.querySelectorAll("tbody tr")) row.classList.toggle("is-chosen", isChosen(row.artifact));
    files(0, true);
  }

  async function ask() {
    try {
      const answer = await get(about(run, "/artifacts"), { signal: control.signal });
      replace(notes, problems(answer.problems));
      if (!answer.artifacts.length) {
        say(list, "No artifacts were logged.");
        return;
      }
      const groups = new Map();
      for (const one of answer.artifacts) groups.set(one.name, [one, ...(groups.get(one.name) ?? [])]);
      replace(
        list,
        [...groups].map(([name, versions]) => group(name, versions)),
      );
    } catch (error) {
      if (error.name !== "AbortError") say(list, error.message, true);
    }
  }

  function group(name, versions) {
    return h(
      "section",
      { class: "section panel" },
      h(
        "h2",
        null,
        name,
        " ",
        h(
          "span",
          { class: "faint" },
          [versions[0].type, plural(versions.length, "version")].filter(Boolean).join(", "),
        ),
      ),
      h(
        "div",
        { class: "scroll-x" },
        h(
          "table",
          { class: "table" },
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["Version", "Step", "Files", "Size", "Logged", "By", "Where"].map((head) =>
                h("th", { scope: "col" }, head),
              ),
            ),
          ),
          h("tbody", null, versions.map(version)),
        ),
      ),
    );
  }

  function version(one) {
    const row = h(
      "tr",
      { class: isChosen(one) && "is-chosen" },
      h(
        "td",
        null,
        h(
          "button",
          { type: "button", class: "as-link", title: "Its files", onclick: () => pick(one) },
          `v${one.version}`,
        ),
      ),
      h("td", { class: "number" }, count(one.step)),
      h("td", { class: "number" }, count(one.count)),
      h("td", { class: "number" }, bytes(one.size)),
      h("td", { class: "number" }, time(new Date(1000 * one.time).toISOString())),
      h("td", null, one.session > 1 ? `${one.job}, session ${one.session}` : one.job),
      h(
        "td",
        { class: "mono" },
        one.reference
          ? [h("span", { class: "faint" }, "refers to "), one.path]
          : h("a", { href: toRun(run, "files", { path: one.path }) }, one.path),
      ),
    );
    row.artifact = one;
    return row;
  }

  async function files(offset, seen = false) {
    const mine = ++turn;
    try {
      const query = { ...chosen, offset, limit: SIZE };
      const answer = await get(about(run, "/artifacts", query), { signal: control.signal });
      if (mine !== turn) return;
      replace(shown, manifest(answer));
    } catch (error) {
      if (error.name === "AbortError" || mine !== turn) return;
      say(shown, error.message, true);
    }
    if (seen) shown.scrollIntoView({ block: "nearest" });
  }

  function manifest({ artifact, files: found, offset, total }) {
    const pages = pager(SIZE, files);
    pages.show({ offset, rows: found.length, total });
    pages.hidden = total <= SIZE;
    return h(
      "section",
      { class: "section panel" },
      h("h2", null, `Files of ${artifact.name}, version ${artifact.version} `, pages),
      h(
        "div",
        { class: "scroll-x" },
        h(
          "table",
          { class: "table" },
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["Name", "Size", "SHA-256", ""].map((head) => h("th", { scope: "col" }, head)),
            ),
          ),
          h(
            "tbody",
            null,
            found.map((file) =>
              h(
                "tr",
                null,
                h("td", { class: "mono" }, file.name),
                h("td", { class: "number", title: `${count(file.size)} bytes` }, bytes(file.size)),
                h("td", { class: "mono faint" }, file.sha256 ?? "not taken"),
                h(
                  "td",
                  null,
                  file.path
                    ? h("a", { href: `${fileAddress(run, file.path)}?download`, download: "" }, "Download")
                    : h("span", { class: "faint" }, "elsewhere"),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }

  let many = null;
  const unlisten = watched.listen((state) => {
    const now = (state.recorded ?? [])
      .filter((one) => one.kind === "artifact")
      .reduce((sum, one) => sum + one.count, 0);
    if (many !== null && now !== many) ask();
    many = now;
  });
  ask();
  if (chosen) files(0);
  return () => {
    control.abort();
    unlisten();
  };
}
