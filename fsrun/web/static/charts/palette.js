// Colours of lines, told apart on light and on dark ground, also by most who see fewer colours.

const LIGHT = ["#1f5fd0", "#d4620a", "#12805c", "#b8256f", "#7a4cc2", "#8a6d00", "#0b7f99", "#c23b32", "#5b6b2f", "#5d6470"];
const DARK = ["#7fb0ff", "#ff9d4d", "#4fd1a1", "#ff82ba", "#b99bff", "#e0c04a", "#4cc9e6", "#ff8a80", "#b5c76c", "#a9b0bb"];

/** Whether the page is dark now. */
export function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The colour of line number `at`; after ten they come again. */
export function colour(at) {
  const all = isDark() ? DARK : LIGHT;
  return all[at % all.length];
}

/** A colour of ours, seen through. */
export function faint(hex, share) {
  return `${hex}${Math.round(share * 255).toString(16).padStart(2, "0")}`;
}

/** What else is drawn, in the colours of the page. */
export function ground() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { text: of("--faint"), strong: of("--text"), line: of("--line"), surface: of("--surface"), bad: of("--bad"), font: of("--font") || "sans-serif" };
}

/** Call `changed` when the page turns light or dark. Returns a function that ends it. */
export function onTheme(changed) {
  const media = matchMedia("(prefers-color-scheme: dark)");
  window.addEventListener("fsrun:theme", changed);
  media.addEventListener("change", changed);
  return () => {
    window.removeEventListener("fsrun:theme", changed);
    media.removeEventListener("change", changed);
  };
}
