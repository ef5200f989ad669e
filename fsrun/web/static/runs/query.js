// The words of the filter: `lr` `status:running` `project:speech` `eval/acc>0.9` `lr<=1e-3` `-test` `"two words"`.

import { valueOf } from "./columns.js";

const PART = /(-?)(?:"([^"]*)"?|(\S+))/g;
const COMPARISON = /^(.+?)(>=|<=|!=|=|>|<)(.*)$/;
const FIELD = /^(status|project|name|run|job|host|reason|entry):(.*)$/;
const HAS = /^(is|has):(.+)$/;

/** A function that tells of a row whether it fits all words; null where there are none. */
export function compile(text) {
  const tests = [...text.matchAll(PART)].map(([, not, quoted, word]) =>
    negate(not, quoted !== undefined ? contains(quoted) : test(word)),
  );
  const real = tests.filter(Boolean);
  if (!real.length) return null;
  return real.length === 1 ? real[0] : (row) => real.every((fits) => fits(row));
}

function negate(not, fits) {
  return not && fits ? (row) => !fits(row) : fits;
}

function contains(text) {
  const low = text.toLowerCase();
  return low ? (row) => row.words.includes(low) : null;
}

function test(word) {
  if (word === "-") return null; // of a word that is still being typed
  const has = HAS.exec(word);
  if (has && has[2] in STATES) return STATES[has[2]];
  const field = FIELD.exec(word);
  if (field) return among(field[1], field[2].toLowerCase());
  const comparison = COMPARISON.exec(word);
  if (comparison) return compare(comparison[1], comparison[2], comparison[3]);
  return contains(word);
}

const STATES = {
  damaged: (row) => row.problem !== null,
  problem: (row) => row.problem !== null,
  best: (row) => row.best !== null,
  waiting: (row) => row.waiting > 0,
  failed: (row) => row.failed > 0 || row.status === "failed",
  live: (row) => row.jobs.some((job) => job.status === "running"),
};

function among(name, wanted) {
  if (!wanted) return null;
  const words = wanted.split(",").filter(Boolean);
  const fits = (text) =>
    words.some((word) =>
      String(text ?? "")
        .toLowerCase()
        .includes(word),
    );
  if (name === "status") return (row) => words.some((word) => row.status.startsWith(word));
  if (name === "name") return (row) => fits(row.title);
  if (name === "host") return (row) => row.jobs.some((job) => fits(job.host));
  if (name === "job") return (row) => row.jobs.some((job) => fits(job.job));
  if (name === "entry") return (row) => fits(row.best?.entry);
  return (row) => fits(row[name]);
}

function compare(name, sign, given) {
  if (given === "") return null;
  const value = readNumber(given);
  const text = given.toLowerCase();
  return (row) => {
    const found = lookUp(row, name);
    if (found === undefined || found === null) return sign === "!=";
    const number = typeof found === "number" ? found : readNumber(found);
    if (sign === "=" || sign === "!=") {
      const same = number !== null && value !== null ? number === value : String(found).toLowerCase() === text;
      return same === (sign === "=");
    }
    if (number === null || value === null) return false;
    return sign === ">"
      ? number > value
      : sign === "<"
        ? number < value
        : sign === ">="
          ? number >= value
          : number <= value;
  };
}

function readNumber(text) {
  if (typeof text === "number") return text;
  const value = String(text).trim() === "" ? NaN : Number(text);
  return Number.isNaN(value) ? null : value;
}

/** A value by the name that one types: a scalar, a setting, or a column such as step. */
function lookUp(row, name) {
  if (Object.hasOwn(row.summary, name)) return row.summary[name];
  if (Object.hasOwn(row.config, name)) return row.config[name];
  if (name.startsWith("config.") || name.startsWith("config:"))
    return Object.hasOwn(row.config, name.slice(7)) ? row.config[name.slice(7)] : undefined;
  const found = valueOf(name, row);
  return found === undefined ? undefined : found;
}
