// Several runs beside each other: charts on one axis, what differs in their settings, their numbers.

import { cut, h, replace } from "../dom.js";
import { plural } from "../format.js";
import { bind } from "../keys.js";
import { comparedRuns, go, parse, setParams, toCompare, toRun, toRuns } from "../route.js";
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
  let hidden = new Set();
  let colours = new Map();

  // The tabs change their part of the address without a new page.
  const address = (runs, id) =>
    toCompare(runs, id, Object.fromEntries([...parse(location.hash).params].filter(([name]) => name !== "runs")));
  const hide = (key) => {
    if (!hidden.delete(key)) hidden.add(key);
    setParams({ hide: [...hidden].map(encodeURIComponent).join(",") });
    paintHead();
    unmount?.hid?.();
  };
  const eye = (key, name) =>
    h("button", {
      type: "button",
      class: "compared-eye",
      dataset: { eye: key },
      style: { "--swatch": colours.get(key) },
      "aria-pressed": !hidden.has(key),
      "aria-label": `Show ${name} in the charts`,
      title: hidden.has(key) ? "Show in all charts" : "Hide in all charts",
      onclick: () => hide(key),
    });
  const paintHead = () => {
    title.textContent = `Compare ${plural(keys.length, "run")}`;
    const focused = head.contains(document.activeElement) ? document.activeElement.dataset.eye : null;
    replace(
      head,
      keys.map((key) => {
        const row = store.row(key);
        return h(
          "span",
          { class: ["compared", hidden.has(key) && "is-off"], role: "listitem" },
          colours.has(key) && eye(key, row?.title ?? key),
          row && badgeOnly(row),
          h("a", { class: "cut", href: toRun(key), title: key }, cut(row?.title ?? key)),
          h(
            "button",
            {
              type: "button",
              "aria-label": `Leave out ${row?.title ?? key}`,
              onclick: () =>
                go(
                  address(
                    keys.filter((one) => one !== key),
                    current.id,
                  ),
                ),
            },
            "✕",
          ),
        );
      }),
    );
    if (focused) [...head.querySelectorAll("[data-eye]")].find((one) => one.dataset.eye === focused)?.focus();
  };
  const show = async (wanted, query) => {
    keys = comparedRuns(query);
    hidden = new Set(comparedRuns(new URLSearchParams({ runs: query.get("hide") ?? "" })));
    colours = new Map();
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
            href: address(keys, one.id),
            onpointerdown: (event) => event.currentTarget.setAttribute("href", address(keys, one.id)),
            onclick: (event) => event.currentTarget.setAttribute("href", address(keys, one.id)),
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
    const coloured = (found) => {
      if (mine !== turn) return;
      colours = found;
      paintHead();
    };
    if (keys.length) unmount = module.mount(place, { runs: keys, params: query, store, hidden, coloured });
  };
  const beside = (by) => go(address(keys, TABS[(TABS.indexOf(current) + by + TABS.length) % TABS.length].id));
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
