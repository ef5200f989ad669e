// The charts of one run, as a tab.

import { mount as grid } from "../charts/grid.js";
import { h } from "../dom.js";

export function mount(container, { run, params, store }) {
  const place = h("div", { class: "content" });
  container.append(place);
  return grid(place, { runs: [run], params, store });
}
