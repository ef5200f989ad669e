// Images, sounds, films and texts: a card for each tag and job, with a slider over its steps.

import { about, fileAddress, get } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { bytes, count } from "../format.js";
import { setParams } from "../route.js";
import { problems, say } from "./pages.js";

const MOST_CARDS = 200;

export function mount(container, { run, params, watched }) {
  const control = new AbortController();
  const cards = new Map();
  const field = h("input", {
    type: "search",
    class: "field filter",
    placeholder: "Tags",
    "aria-label": "Tags that have this in them",
    value: params.get("q") ?? "",
    oninput: () => {
      setParams({ q: field.value });
      paint();
    },
  });
  const together = h("input", { type: "checkbox", checked: true });
  const told = h("span", { class: "faint" });
  const notes = h("div");
  const grid = h("div", { class: "media-grid" });
  const body = h("div", { class: "content" }, grid);
  let answer = null;
  container.append(
    h(
      "div",
      { class: "content-bar is-stuck" },
      field,
      h(
        "label",
        { class: "labelled", title: "A slider moves the others to the same step" },
        together,
        "steps together",
      ),
      told,
    ),
    notes,
    body,
  );

  const moved = (card, step) => {
    if (together.checked) for (const other of cards.values()) if (other !== card) other.goTo(step);
  };

  function paint() {
    if (!answer) return;
    replace(notes, problems(answer.problems));
    if (!answer.media.length) {
      say(grid, "No images, sounds, films or texts were logged.");
      return;
    }
    const groups = new Map();
    for (const one of answer.media) {
      const key = `${one.tag}\n${one.kind}\n${one.job}`;
      if (groups.has(key)) groups.get(key).push(one);
      else groups.set(key, [one]);
    }
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = [...groups].filter(([key]) => words.every((word) => key.toLowerCase().includes(word)));
    const shown = fits.slice(0, MOST_CARDS);
    setText(told, fits.length > shown.length ? `${count(shown.length)} of ${count(fits.length)} tags` : "");
    const counts = new Map(answer.tags.map((one) => [one.tag, one.count]));
    for (const [key, media] of shown) {
      if (!cards.has(key)) cards.set(key, new Card(run, moved));
      cards.get(key).take(media, counts.get(media[0].tag));
    }
    const wanted = shown.map(([key]) => cards.get(key).element);
    if (wanted.length !== grid.childElementCount || wanted.some((one, at) => one !== grid.children[at]))
      replace(grid, wanted);
  }

  async function ask() {
    try {
      answer = await get(about(run, "/media"), { signal: control.signal });
      paint();
    } catch (error) {
      if (error.name !== "AbortError" && !answer) say(grid, error.message, true);
    }
  }

  let many = null;
  const unlisten = watched.listen((state) => {
    const kinds = (state.recorded ?? []).filter((one) => one.kind !== "table" && one.kind !== "artifact");
    const now = kinds.reduce((sum, one) => sum + one.count, 0);
    if (many !== null && now !== many) ask();
    many = now;
  });
  ask();
  return () => {
    control.abort();
    unlisten();
  };
}

/** One tag. What is at the slider's step is shown; at its end it goes on with the newest. */
class Card {
  constructor(run, moved) {
    this.run = run;
    this.at = null;
    this.title = h("b", { class: "media-tag" });
    this.step = h("span", { class: "faint number" });
    this.place = h("div", { class: "media-place" });
    this.slider = h("input", {
      type: "range",
      min: 0,
      step: 1,
      "aria-label": "Step",
      oninput: () => {
        this._show(Number(this.slider.value));
        moved(this, this.steps[this.at]);
      },
    });
    this.element = h(
      "article",
      { class: "panel media-card" },
      h("header", null, this.title, this.step),
      this.place,
      this.slider,
    );
  }

  take(media, total) {
    const text = JSON.stringify(media.map((one) => [one.step, one.path, one.time]));
    if (text === this.text) return;
    this.text = text;
    const newest = this.at === null || this.at === this.steps.length - 1;
    const before = this.steps?.[this.at];
    this.bySteps = new Map();
    for (const one of media) this.bySteps.set(one.step, [...(this.bySteps.get(one.step) ?? []), one]);
    this.steps = [...this.bySteps.keys()];
    this.total = total;
    setText(this.title, media[0].tag);
    this.title.title = `${media[0].kind} of ${media[0].job}, ${count(total)} in all`;
    this.slider.max = String(this.steps.length - 1);
    this.slider.hidden = this.steps.length < 2;
    this.at = null;
    this._show(newest ? this.steps.length - 1 : Math.max(0, this.steps.indexOf(before)));
  }

  /** The last step that is not behind `step`. */
  goTo(step) {
    let at = 0;
    while (at + 1 < this.steps.length && this.steps[at + 1] <= step) at += 1;
    this._show(at);
  }

  _show(at) {
    if (at === this.at) return;
    this.at = at;
    this.slider.value = String(at);
    const step = this.steps[at];
    this.slider.setAttribute("aria-valuetext", `step ${step}`);
    setText(this.step, `step ${count(step)}`);
    replace(
      this.place,
      this.bySteps.get(step).map((one) => medium(this.run, one)),
    );
  }
}

function medium(run, one) {
  const address = one.path === null ? null : fileAddress(run, one.path);
  const shown = content(one, address);
  return h(
    "figure",
    null,
    shown,
    (one.caption || address) &&
      h(
        "figcaption",
        null,
        one.caption && h("span", null, String(one.caption)),
        address &&
          h("a", { href: `${address}?download`, download: "", class: "faint", title: one.type }, `${bytes(one.size)}`),
      ),
  );
}

function content(one, address) {
  const gone = (event) => event.target.replaceWith(h("p", { class: "bad" }, `${one.path} cannot be shown`));
  if (one.kind === "text" && one.text !== null) return h("pre", { class: "media-text" }, one.text);
  if (address === null) return h("p", { class: "faint" }, "nothing to show");
  if (one.kind === "image")
    return h(
      "a",
      { href: address, target: "_blank", rel: "noopener" },
      h("img", {
        src: address,
        alt: one.caption ? String(one.caption) : `${one.tag}, step ${one.step}`,
        loading: "lazy",
        onerror: gone,
      }),
    );
  if (one.kind === "audio") return h("audio", { src: address, controls: true, preload: "none", onerror: gone });
  if (one.kind === "video") return h("video", { src: address, controls: true, preload: "metadata", onerror: gone });
  const place = h("pre", { class: "media-text faint" }, "Reading …");
  readText(address).then(
    (text) => {
      place.classList.remove("faint");
      setText(place, text);
    },
    (error) => setText(place, error.message),
  );
  return place;
}

/** The first part of a text file. */
async function readText(address) {
  const response = await fetch(address, { headers: { Range: "bytes=0-65535" }, credentials: "same-origin" });
  if (!response.ok) throw new Error(`it cannot be read: ${response.status} ${response.statusText}`);
  const text = await response.text();
  return response.status === 206 ? `${text}\n… (more in the file)` : text;
}
