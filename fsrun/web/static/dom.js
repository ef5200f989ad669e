// Elements from values. Text is only ever set as text: what a run recorded can hold any markup, and none of it counts.

const SVG = "http://www.w3.org/2000/svg";
const AS_PROPERTY = new Set([
  "value",
  "checked",
  "disabled",
  "indeterminate",
  "selected",
  "hidden",
  "tabIndex",
  "open",
  "readOnly",
]);
const ADDRESSES = new Set(["href", "src", "poster", "action", "formaction", "srcdoc", "xlink:href"]);
/** A browser takes \ for /, and leaves out tabs and line ends: what begins with two slashes is another host. */
const SAFE_ADDRESS = /^(#|\/(?![\t\n\r]*[\/\\])|\.|data:image\/(png|jpeg|gif|webp);|blob:)/;

/**
 * An element. Props: `class` (text, or a list with holes), `dataset` and `style` (objects), `on` + event (functions),
 * `ref` (a function that gets the element), anything else an attribute; null, undefined and false are left out.
 * Children: elements, text, numbers, lists of those; null, undefined and false are left out.
 */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  append(element, children);
  props?.ref?.(element);
  return element;
}

function set(element, name, value) {
  if (name === "ref" || value === null || value === undefined) return;
  if (name === "class") element.setAttribute("class", classes(value));
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name === "style") for (const [key, text] of Object.entries(value)) style(element, key, text);
  else if (typeof value === "function" && name.startsWith("on"))
    element.addEventListener(name.slice(2).toLowerCase(), value);
  else if (name.startsWith("on")) throw new TypeError(`${name}: handlers are functions`);
  else if (AS_PROPERTY.has(name) && name in element) element[name] = value;
  else if (value === false && !name.startsWith("aria-")) return;
  else if (ADDRESSES.has(name) && !SAFE_ADDRESS.test(value)) return;
  else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
}

/** Class names as one text; what is empty is left out. */
export function classes(...names) {
  return names.flat(Infinity).filter(Boolean).join(" ");
}

/** Set one property of an element's style; names with a dash, such as `--x`, too. The page's policy allows this way only. */
export function style(element, name, text) {
  if (name.includes("-")) element.style.setProperty(name, text);
  else element.style[name] = text;
}

/** Add children, as `h` takes them. */
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Children of an element of class `cut`: long names that belong together often differ at the end, so it stays. */
export function cut(text, tail = 14) {
  return [h("span", { class: "cut-head" }, text.slice(0, -tail)), h("span", { class: "cut-tail" }, text.slice(-tail))];
}

/** Put new children in the place of the old ones. */
export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Change text, only where it is another one: a selection and a screen reader are left in peace. */
export function setText(element, text) {
  const value = text === null || text === undefined ? "" : String(text);
  if (element.textContent !== value) element.textContent = value;
}
