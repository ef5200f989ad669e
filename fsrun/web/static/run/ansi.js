// Output of a terminal as text with classes: colours by escape sequences, carriage returns and backspaces as it shows
// them. Whatever else a sequence asks for is left out, and characters that hide or turn text are named.

import { h } from "../dom.js";

const MOST_LINE = 20_000;
const SEQUENCE =
  /\x1b\[([0-?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|\x9b([0-?]*)[ -/]*([@-~])|\x1b/g;
const UNSEEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Lines of a console as elements, one by one; colours go on from line to line. */
export class Terminal {
  constructor() {
    this.style = plain();
  }

  /** An element for a line, without its newline. */
  line(text) {
    const row = h("div", { class: "console-line" });
    const cut = text.length > MOST_LINE;
    for (const [part, look] of this._parts(cut ? text.slice(0, MOST_LINE) : text)) {
      row.append(look ? h("span", { class: look }, part) : part);
    }
    if (cut)
      row.append(
        h("span", { class: "console-cut" }, ` … ${(text.length - MOST_LINE).toLocaleString("en-US")} more characters`),
      );
    if (!row.firstChild) row.append("\u200b");
    return row;
  }

  /** A line as [text, classes] pairs. */
  _parts(text) {
    const whole = text.endsWith("\r") ? text.slice(0, -1) : text;
    if (!/[\x1b\x9b\r\b]/.test(whole)) return whole ? [[shown(whole), looks(this.style)]] : [];
    const cells = [];
    let at = 0;
    const write = (piece) => {
      for (const letter of piece) {
        if (letter === "\r") at = 0;
        else if (letter === "\b") at = Math.max(0, at - 1);
        else cells[at++] = [letter, looks(this.style)];
      }
    };
    let from = 0;
    for (const found of whole.matchAll(SEQUENCE)) {
      write(whole.slice(from, found.index));
      from = found.index + found[0].length;
      const [numbers, kind] = [found[1] ?? found[3], found[2] ?? found[4]];
      if (kind === "m") this.style = changed(this.style, numbers);
      else if (kind === "K") erase(cells, at, numbers);
      else if (kind === "G") at = Math.min(MOST_LINE, Math.max(0, (parseInt(numbers, 10) || 1) - 1));
    }
    write(whole.slice(from));
    return joined(cells);
  }
}

function plain() {
  return { bold: false, dim: false, italic: false, under: false, turned: false, fore: "", back: "" };
}

function looks(style) {
  const [fore, back] = style.turned ? [style.back || "turned", style.fore || "turned"] : [style.fore, style.back];
  return [
    style.bold && "a-bold",
    style.dim && "a-dim",
    style.italic && "a-italic",
    style.under && "a-under",
    fore && `a-f-${fore}`,
    back && `a-b-${back}`,
  ]
    .filter(Boolean)
    .join(" ");
}

function changed(before, text) {
  let style = { ...before };
  const numbers = text
    .replaceAll(":", ";")
    .split(";")
    .map((one) => (one === "" ? 0 : Number(one)));
  for (let at = 0; at < numbers.length; at += 1) {
    const one = numbers[at];
    if (one === 0) style = plain();
    else if (one === 1) style.bold = true;
    else if (one === 2) style.dim = true;
    else if (one === 3) style.italic = true;
    else if (one === 4) style.under = true;
    else if (one === 7) style.turned = true;
    else if (one === 22) style.bold = style.dim = false;
    else if (one === 23) style.italic = false;
    else if (one === 24) style.under = false;
    else if (one === 27) style.turned = false;
    else if (one >= 30 && one <= 37) style.fore = String(one - 30);
    else if (one >= 40 && one <= 47) style.back = String(one - 40);
    else if (one >= 90 && one <= 97) style.fore = String(one - 82);
    else if (one >= 100 && one <= 107) style.back = String(one - 92);
    else if (one === 39) style.fore = "";
    else if (one === 49) style.back = "";
    else if (one === 38 || one === 48) {
      const colour = numbers[at + 1] === 5 ? of256(numbers[at + 2]) : ofLight(numbers.slice(at + 2, at + 5));
      at += numbers[at + 1] === 5 ? 2 : 4;
      style[one === 38 ? "fore" : "back"] = colour;
    }
  }
  return style;
}

/** One of the sixteen colours that is like one of 256. */
function of256(number) {
  if (!(number >= 0 && number <= 255)) return "";
  if (number < 16) return String(number);
  if (number >= 232) return number < 238 ? "0" : number < 244 ? "8" : number < 250 ? "7" : "15";
  const rest = number - 16;
  return ofLight([Math.floor(rest / 36), Math.floor(rest / 6) % 6, rest % 6].map((level) => level * 51));
}

function ofLight([red, green, blue]) {
  const levels = [red, green, blue];
  if (!levels.every((level) => level >= 0 && level <= 255)) return "";
  const most = Math.max(...levels);
  if (most < 50) return "0";
  const bits = levels.reduce((sum, level, at) => sum | (level > most * 0.6 ? 1 << at : 0), 0);
  return String(bits + (most > 190 ? 8 : 0));
}

function erase(cells, at, numbers) {
  if (numbers === "" || numbers === "0") cells.length = Math.min(cells.length, at);
  else if (numbers === "2") cells.length = 0;
  else if (numbers === "1") for (let i = 0; i <= at && i < cells.length; i += 1) cells[i] = [" ", ""];
}

function joined(cells) {
  const parts = [];
  for (let i = 0; i < cells.length; i += 1) {
    const [letter, look] = cells[i] ?? [" ", ""];
    const last = parts.at(-1);
    if (last && last[1] === look) last[0] += letter;
    else parts.push([letter, look]);
  }
  return parts.map(([text, look]) => [shown(text), look]);
}

/** With characters that are not seen, or that turn text, by their numbers. */
function shown(text) {
  return text.replace(UNSEEN, (one) => `<${one.codePointAt(0).toString(16).toUpperCase().padStart(2, "0")}>`);
}
