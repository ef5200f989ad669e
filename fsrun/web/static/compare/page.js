// Several runs beside each other: charts on one axis, what differs in their settings, their numbers.

import { h, replace } from "../dom.js";
import { plural } from "../format.js";
import { bind } from "../keys.js";
import { comparedRuns, go, toCompare, toRun, toRuns } from "../route.js";
import { badge } from "../runs/chips.js";
import { recall } from "../storage.js";

const TABS = [
  { id: "charts", title: "Charts", load: () => import("../charts/grid.js") },
  { id: "settings", title: "Settings", load: () => import("./settings.js") },
  { id: "table", title: "Table", load: () => import("./table.js") },
];

export function mount(container, { tab, params, store }) {
  document.title = "Compare · fsrun";
  const head = h("div", { class: "compare-runs", role: "list", "aria-label": "Compared runs" });
  const title = h("h1");
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Comparison" });
  const body = h("div", { class: "tab-body", role: "tabpanel", id: "tab-body", tabIndex: -1 });
  container.append(
    h(
      "div",
      { class: "page" },
      h(
        "header",
        { class: "run-head" },
        h(
          "div",
          { class: "run-line" },
          h("a", { class: "crumb", href: recall("runs", toRuns()) }, "Runs"),
          h("span", { class: "crumb", "aria-hidden": "true" }, "/"),
          title,
        ),
        head,
        tabs,
      ),
      body,
    ),
  );
  let keys = [];
  let unmount = null;
  let turn = 0;
  let current = null;

  const rest = (query) => Object.fromEntries([...query].filter(([name]) => name !== "runs"));
  const paintHead = () => {
    title.textContent = `Compare ${plural(keys.length, "run")}`;
    replace(
      head,
      keys.map((key) => {
        const row = store.row(key);
        return h(
          "span",
          { class: "compared", role: "listitem" },
          row && badgeOnly(row),
          h("a", { href: toRun(key), title: key }, row?.title ?? key),
          h(
            "button",
            {
              type: "button",
              "aria-label": `Leave out ${row?.title ?? key}`,
              onclick: () =>
                go(
                  toCompare(
                    keys.filter((one) => one !== key),
                    current.id,
                    rest(params),
                  ),
                ),
            },
            "✕",
          ),
        );
      }),
    );
  };
  const show = async (wanted, query) => {
    params = query;
    keys = comparedRuns(query);
    current = TABS.find((one) => one.id === wanted) ?? TABS[0];
    paintHead();
    replace(
      tabs,
      TABS.map((one) =>
        h(
          "a",
          {
            class: "tab",
            role: "tab",
            id: `tab-${one.id}`,
            "aria-controls": "tab-body",
            "aria-selected": String(one === current),
            tabIndex: one === current ? 0 : -1,
            href: toCompare(keys, one.id, rest(query)),
          },
          one.title,
        ),
      ),
    );
    body.setAttribute("aria-labelledby", `tab-${current.id}`);
    const mine = ++turn;
    const place = h("div", { class: "content" });
    let module = null;
    try {
      module = await current.load();
    } catch (error) {
      console.error(error);
      if (mine === turn)
        replace(
          body,
          h(
            "div",
            { class: "missing", role: "alert" },
            h("h2", null, `${current.title} cannot be shown`),
            h("p", { class: "mono faint" }, error.message),
          ),
        );
      return;
    }
    if (mine !== turn) return;
    unmount?.();
    unmount = null;
    replace(
      body,
      keys.length
        ? place
        : h("p", { class: "notice" }, "No runs are named. Select some in the table of all runs and press c."),
    );
    if (keys.length) unmount = module.mount(place, { runs: keys, params: query, store });
  };
  const beside = (by) =>
    go(toCompare(keys, TABS[(TABS.indexOf(current) + by + TABS.length) % TABS.length].id, rest(params)));
  tabs.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    beside(by);
    requestAnimationFrame(() => tabs.querySelector('[aria-selected="true"]')?.focus());
  });
  const unbind = bind(
    [
      { key: "]", does: "Next tab", run: () => beside(1) },
      { key: "[", does: "Tab before", run: () => beside(-1) },
      { key: "u", does: "Back to all runs", run: () => go(recall("runs", toRuns())) },
    ],
    "Comparison",
  );
  const unlisten = store.listen(
    ({ changed, gone }) => [...changed, ...gone].some((key) => keys.includes(key)) && paintHead(),
  );
  show(tab, params);
  const close = () => {
    turn += 1;
    unmount?.();
    unlisten();
    unbind();
  };
  return Object.assign(close, { update: (route) => (show(route.tab, route.params), true) });
}

function badgeOnly(row) {
  const found = badge(row.status);
  found.lastChild.remove();
  found.title = row.status;
  found.setAttribute("role", "img");
  found.setAttribute("aria-label", row.status);
  return found;
}
