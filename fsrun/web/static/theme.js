// Light or dark, before anything is drawn: a page in the wrong one must not flash. No module, so that it runs at once.
"use strict";
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("fsrun.theme");
  } catch {
    // Storage may be switched off: then the system decides.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
