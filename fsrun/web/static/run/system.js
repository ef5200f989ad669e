// The machines of one run, as a tab.

import { mount as machines } from "../charts/system.js";
import { h } from "../dom.js";

export function mount(container, { run }) {
  const place = h("div", { class: "content" });
  container.append(place);
  return machines(place, { run });
}
