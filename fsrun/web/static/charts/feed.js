// What the server says of the series of some runs: asked again every second, and fetched only where it changed and is
// looked at.

import { about, get, poll } from "../api.js";

const SECONDS = 1;
const AT_ONCE = 40;

/** The series of one run. `changed()` is called when its list of tags has changed. */
export class Feed {
  constructor(key, changed, failed) {
    this.key = key;
    this.tags = new Map();
    this.start = null;
    this.sessions = [];
    this.known = false;
    /** What of the run is left out, in words. */
    this.cut = null;
    this.stop = poll(async ({ signal }) => {
      try {
        const answer = await get(about(key, "/tags"), { signal });
        this.start = answer.start ?? null;
        this.sessions = answer.sessions ?? [];
        const first = !this.known || this.cut !== (answer.problem ?? null);
        this.cut = answer.problem ?? null;
        this.known = true;
        if (first || answer.cursor !== this.cursor) {
          this.cursor = answer.cursor;
          this.tags = new Map(answer.tags.map((one) => [one.tag, one]));
          changed(this);
        }
        failed(this, null);
      } catch (error) {
        if (error.name !== "AbortError") failed(this, error);
        throw error;
      }
    }, SECONDS);
  }

  /** Version of a tag: what was fetched with another one is old. -1: the run does not have it. */
  version(tag) {
    return this.tags.get(tag)?.version ?? -1;
  }

  /** Series by tag. `view`: {x, from, to, points}. */
  async fetch(tags, view, signal) {
    const found = new Map();
    for (let at = 0; at < tags.length; at += AT_ONCE) {
      const answer = await get(about(this.key, "/series", { tag: tags.slice(at, at + AT_ONCE), ...view }), { signal });
      for (const one of answer.series) found.set(one.tag, one);
    }
    return found;
  }
}
