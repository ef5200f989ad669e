// The files of a run, a folder at a time: sizes, times, links to each file and its download.

import { about, get } from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, count, time } from "../format.js";
import { toRun } from "../route.js";
import { pager, say } from "./pages.js";

const SIZE = 1000;

export function mount(container, { run, params }) {
  let path = (params.get("path") ?? "").replace(/^\/+|\/+$/g, "");
  // What was named may be a file: then its folder is shown, and the file is marked.
  let marked = null;
  const control = new AbortController();
  const body = h("div");
  const pages = pager(SIZE, (offset) => ask(offset));
  const open = (inside) => toRun(run, "files", { path: inside });
  let parts = path.split("/").filter(Boolean);
  const trail = [
    h("a", { href: open("") }, run.slice(run.indexOf("/") + 1)),
    ...parts.flatMap((name, at) => [
      h("span", { class: "faint", "aria-hidden": "true" }, "/"),
      h("a", { href: open(parts.slice(0, at + 1).join("/")) }, name),
    ]),
  ];
  container.append(
    h(
      "div",
      { class: "content-bar is-stuck" },
      h("nav", { class: "files-trail mono", "aria-label": "Folder" }, trail),
      h("span", { class: "grow" }),
      pages,
      h("button", { class: "button", type: "button", onclick: () => ask(0) }, "Read again"),
    ),
    body,
  );

  async function ask(offset) {
    try {
      const query = { path: path || null, offset, limit: SIZE };
      const answer = await get(about(run, "/files", query), { signal: control.signal });
      pages.show({ offset: answer.offset, rows: answer.files.length, total: answer.total });
      pages.hidden = answer.total <= SIZE;
      const missing = marked !== null && !answer.files.some((one) => one.path === marked);
      if (answer.total || path)
        replace(body, missing && h("p", { class: "content-none" }, `There is no ${marked} here.`), table(answer));
      else say(body, "This folder is empty.");
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 404 && path && marked === null) {
        marked = path;
        parts = parts.slice(0, -1);
        path = parts.join("/");
        await ask(0);
        return;
      }
      pages.hidden = true;
      say(body, error.message, true);
      if (path) body.append(h("p", { class: "content-none" }, h("a", { href: open("") }, "The folder of the run")));
    }
  }

  function table({ files }) {
    const folders = files.filter((one) => one.kind === "folder");
    const sorted = [...folders, ...files.filter((one) => one.kind !== "folder")];
    return h(
      "div",
      { class: "content scroll-x" },
      h(
        "table",
        { class: "table files" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, "Name"),
            h("th", { scope: "col", class: "is-number" }, "Size"),
            h("th", { scope: "col" }, "Changed"),
            h("th", { scope: "col" }, ""),
          ),
        ),
        h(
          "tbody",
          null,
          path &&
            h(
              "tr",
              null,
              h(
                "td",
                { colspan: 4 },
                h("a", { href: open(parts.slice(0, -1).join("/")), title: "The folder above" }, "../"),
              ),
            ),
          sorted.map(line),
        ),
      ),
    );
  }

  function line(one) {
    const changed = one.time === null ? "" : time(new Date(1000 * one.time).toISOString());
    const name =
      one.kind === "folder"
        ? h("a", { href: open(one.path) }, `${one.name}/`)
        : one.shown
          ? h("a", { href: one.href, target: "_blank", rel: "noopener" }, one.name)
          : h("span", null, one.name);
    return h(
      "tr",
      { class: one.path === marked && "is-chosen" },
      h("td", { class: "mono" }, name, one.link && h("span", { class: "faint" }, ` → ${one.link}`), odd(one)),
      h(
        "td",
        { class: "is-number", title: one.size === null ? null : `${count(one.size)} bytes` },
        one.kind === "file" ? bytes(one.size) : "",
      ),
      h("td", { class: "number" }, changed),
      h("td", null, one.href && h("a", { href: `${one.href}?download`, download: "" }, "Download")),
    );
  }

  ask(0);
  return () => control.abort();
}

function odd(one) {
  if (one.kind === "link") return h("span", { class: "faint" }, " (leads out of the run, or to nothing)");
  return one.kind === "other" ? h("span", { class: "faint" }, " (no file)") : null;
}
