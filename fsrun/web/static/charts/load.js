// The chart library, which comes with the package where npm was there when that was built; never from elsewhere.

import { h } from "../dom.js";

let loading = null;

/** The library. Throws with what to do where it is not there. */
export function load() {
  loading ??= bring().catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

async function bring() {
  const styles = [sheet("/vendor/uPlot.min.css"), sheet("/charts/charts.css")];
  let module;
  try {
    module = await import("/vendor/uPlot.esm.js");
  } catch {
    throw new Error("No charts: the library for them was not there when fsrun was built. With npm it is: apt-get install npm; sh tools/setup web");
  }
  await Promise.all(styles);
  return module.default;
}

/** A style sheet, loaded once. */
export function sheet(href) {
  const there = [...document.styleSheets].some((one) => one.href && new URL(one.href).pathname === href);
  if (there) return Promise.resolve();
  return new Promise((done) => {
    document.head.append(h("link", { rel: "stylesheet", href, onload: done, onerror: done }));
  });
}
