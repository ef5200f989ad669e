// A window over the page. The browser's own dialog: it holds the focus, Escape closes it, the focus goes back.
// It goes with the page it was opened over, so that Back never leaves it standing over another one.

import { h } from "./dom.js";

/** Open a dialog. Returns a function that closes it. `closed` is called once it is. */
export function open(title, children, { closed, wide = false } = {}) {
  const element = h(
    "dialog",
    { class: ["dialog", wide && "dialog-wide"], "aria-label": title },
    h(
      "header",
      { class: "dialog-head" },
      h("h2", null, title),
      h(
        "button",
        { class: "button quiet", type: "button", "aria-label": "Close", onclick: () => element.close() },
        "✕",
      ),
    ),
    h("div", { class: "dialog-body" }, children),
  );
  element.addEventListener("click", (event) => {
    if (event.target === element) element.close();
  });
  const close = () => element.close();
  window.addEventListener("hashchange", close);
  element.addEventListener("close", () => {
    window.removeEventListener("hashchange", close);
    element.remove();
    closed?.();
  });
  document.body.append(element);
  element.showModal();
  return close;
}
