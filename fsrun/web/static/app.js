// The frame around all pages: the bar on top, which page stands below it, keys that count everywhere.

import { get, onConnection } from "./api.js";
import { open } from "./dialog.js";
import { h, replace, setText } from "./dom.js";
import { time } from "./format.js";
import * as keys from "./keys.js";
import { go, start, toRuns } from "./route.js";
import { watchChips } from "./runs/chips.js";
import { Store } from "./runs/store.js";
import { recall } from "./storage.js";

const PAGES = {
  runs: () => import("./runs/page.js"),
  run: () => import("./run/page.js"),
  compare: () => import("./compare/page.js"),
};
const THEMES = { auto: ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };

const main = document.getElementById("app");
const store = new Store();
let mounted = null;
let turn = 0;

async function show(route) {
  const mine = ++turn;
  if (mounted && mounted.route.page === route.page && mounted.route.key === route.key && mounted.update?.(route)) {
    mounted.route = route;
    return;
  }
  let module;
  try {
    module = await (PAGES[route.page] ?? nowhere)();
  } catch (error) {
    module = failing(error);
  }
  if (mine !== turn) return;
  mounted?.unmount?.();
  main.replaceChildren();
  mounted = { route };
  window.scrollTo(0, 0);
  const unmount = module.mount(main, { ...route, store });
  Object.assign(mounted, { unmount, update: unmount?.update });
  // The keyboard goes on below the bar, and a screen reader says where it is.
  if (document.activeElement === document.body) main.focus({ preventScroll: true });
  setText(document.getElementById("told"), document.title);
}

async function nowhere() {
  return {
    mount: (container) =>
      void container.append(notice("There is no such page", h("a", { href: toRuns() }, "All runs"))),
  };
}

function failing(error) {
  console.error(error);
  return { mount: (container) => void container.append(notice("This page could not be loaded", error.message)) };
}

function notice(title, ...rest) {
  return h("div", { class: "notice", role: "alert" }, h("h1", null, title), h("p", null, rest));
}

function frame() {
  const root = h("span", { class: "top-root" });
  const state = h("span", { class: "top-state", role: "status" });
  const theme = h("button", { class: "button quiet top-icon", type: "button", onclick: () => turnTheme(theme) });
  replace(
    document.getElementById("top"),
    h(
      "a",
      { class: "brand", href: toRuns(), "aria-label": "fsrun: all runs" },
      h("img", { src: "/icon.svg", alt: "", width: 20, height: 20 }),
      "fsrun",
    ),
    root,
    h("span", { class: "grow" }),
    state,
    theme,
    h(
      "button",
      { class: "button quiet top-icon", type: "button", "aria-label": "Keys", title: "Keys (?)", onclick: help },
      "?",
    ),
  );
  paintTheme(theme);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  watch(root, state);
}

function watch(root, state) {
  let info = null;
  let online = true;
  const paint = () => {
    setText(root, info?.root ?? "");
    root.title = info ? `${info.root} on ${info.host}, fsrun ${info.version}` : "";
    const daemon = info?.daemon;
    state.className = `top-state ${online ? (daemon ? "is-good" : "is-plain") : "is-bad"}`;
    const none = info?.awaits_daemon ? "daemon starts …" : "no daemon";
    setText(state, !online ? "offline" : !info ? "" : daemon ? "daemon runs" : none);
    state.title = !online
      ? "No answer from the server; it is asked again."
      : daemon
        ? `Process ${daemon.pid}, since ${time(daemon.started)}`
        : "No daemon of this root runs on this host: dead jobs are closed by whoever opens the run next, or by fsrun daemon.";
  };
  const ask = async () => {
    if (!document.hidden) {
      try {
        info = await get("/api/info");
      } catch {
        // Said by the state already.
      }
      paint();
    }
    setTimeout(ask, info?.awaits_daemon ? 500 : 10_000);
  };
  onConnection((connection) => {
    online = connection.online;
    document.body.classList.toggle("is-offline", !online);
    paint();
  });
  ask();
}

function turnTheme(button) {
  const names = Object.keys(THEMES);
  const now = document.documentElement.dataset.theme ?? "auto";
  const next = names[(names.indexOf(now) + 1) % names.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("fsrun.theme", next);
  } catch {
    // Then it lasts as long as the page.
  }
  paintTheme(button);
  window.dispatchEvent(new CustomEvent("fsrun:theme"));
}

function paintTheme(button) {
  const [sign, name] = THEMES[document.documentElement.dataset.theme ?? "auto"];
  setText(button, sign);
  button.setAttribute("aria-label", `Colours: ${name}`);
  button.title = `Colours: ${name}`;
}

function help() {
  open("Keys", keys.list());
}

keys.listen();
keys.bind(
  [
    { key: "?", does: "This list", run: help },
    { key: "R", does: "All runs", run: () => go(recall("runs", "#/")) },
  ],
  "Everywhere",
);
frame();
watchChips(store);
store.start();
start((route) => show(route));
