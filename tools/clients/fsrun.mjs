#!/usr/bin/env node
/**
 * A client of the fsrun protocol for Node 20 or newer, without packages: trainer, evaluator and reader.
 *
 *     node fsrun.mjs read RUN      what the run folder RUN says, as one JSON object
 *     node fsrun.mjs drive RUN     commands of docs/clients.md from standard input, a line each
 *
 *     import { open, read } from "./fsrun.mjs";
 *     const session = await open("/runs/speech/big", "main", 30);
 *     await session.log(12, Date.now() / 1000, { "train/loss": 0.31 });
 *     await session.queue.enqueue("ckpt/step_12.pt", "step_12.pt", 12);
 *     await session.close("finished");
 *
 * The numbers in comments are sections of protocol.md. Numbers of sessions, attempts and beats are bigints: 18 digits
 * do not fit a double. Left out, since no other job depends on them: views (4.8), spills (4.9), markers of live runs
 * (2), media, tables, artifacts and samples, the rows of data.parquet (its logs stay).
 *
 * After a crash: every name stands whole or not at all, and whoever looks next goes on from there (9).
 */
import { isUtf8 } from "node:buffer";
import { randomBytes, randomUUID } from "node:crypto";
import { constants, readFileSync, readdirSync, readlinkSync, realpathSync, statSync } from "node:fs";
import * as fs from "node:fs/promises";
import { hostname, userInfo } from "node:os";
import { basename, dirname, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

/** The predecessor lives: `holder` says who. */
export class Held extends Error {
  constructor(holder = {}) {
    super(`held by process ${holder.pid} on ${holder.host}`);
    this.holder = holder;
  }
}
/** The protocol forbids it. */
export class Refused extends Error {}
/** A newer session of this job is there: nothing more is written to the run. */
export class Fenced extends Error {}

const PROTOCOL = "1.0";
const MAX_RECORD = 64 * 2 ** 20; // bytes (6)
const RUN_FOLDERS = "jobs scalars evals files queue meta claimed retry best failed trash".split(" ");
const RESERVED = ["step", "time", "entry"]; // keys of a line that are no tags (6.8)
const WORDS = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };

// ---- Names (3), parsed from the right ----

const JOB = "([a-z0-9][a-z0-9_-]{0,47})";
const COUNT = "(0|[1-9][0-9]{0,17})";
const NUMBER = "([1-9][0-9]{0,17})";
const JOB_FILE = new RegExp(`^${JOB}\\.${NUMBER}\\.(?:(lock|end)|([0-9a-z]{8,32})\\.(beat|taken)\\.${COUNT})$`);
const LOG = new RegExp(`^${JOB}\\.${NUMBER}(?:\\.s${COUNT})?\\.jsonl$`);
const CLAIM_FOLDER = new RegExp(`^${JOB}\\.${NUMBER}$`);
const OUTCOME = new RegExp(`^(.+)\\.${NUMBER}\\.json$`);

const CONTROL = /[\x00-\x1f\x7f]/;

function parseJobFile(name) {
  const [, job, n, record, token, beat, count] = JOB_FILE.exec(name) ?? [];
  return job && { name, job, n: BigInt(n), kind: record ?? beat, token, count: count && BigInt(count) };
}

function parseOutcome(name) {
  const [, entry, k] = OUTCOME.exec(name) ?? [];
  return entry && isEntry(entry) ? { entry, k: BigInt(k) } : null;
}

function isEntry(name) {
  const ignored = name === "" || name.startsWith(".") || name.endsWith(".tmp") || name === "FINISHED";
  return !ignored && Buffer.byteLength(name) <= 200 && !CONTROL.test(name) && !name.includes("/");
}

const isMeta = (name) => name.endsWith(".json") && isEntry(name.slice(0, -5));

/** `epoch_012~2.pt` as its base, its use and its suffix. */
function splitEntry(name) {
  const suffix = /(?<=[^.])\.[A-Za-z][A-Za-z0-9]{0,15}$/.exec(name)?.[0] ?? "";
  const stem = name.slice(0, name.length - suffix.length);
  const [, base, use] = /^(.+)~([1-9][0-9]{0,8})$/s.exec(stem) ?? [];
  return use && use !== "1" ? [base, Number(use), suffix] : [stem, 1, suffix];
}

/** The next use of a name, after all of its uses in `taken`; a base that makes it too long loses its end. */
function nextUse(name, taken) {
  const [base, use, suffix] = splitEntry(name);
  const same = taken.map(splitEntry).filter(([b, , s]) => b === base && s === suffix);
  const mark = `~${Math.max(use, ...same.map(([, u]) => u)) + 1}${suffix}`;
  const letters = [...base];
  while (Buffer.byteLength(letters.join("") + mark) > 200) letters.pop();
  return letters.join("") + mark;
}

/** The step in a name: of `step=1200` over `epoch_3` and `checkpoint-500` over the last number; null: none. */
function stepOfName(name) {
  const [base] = splitEntry(name);
  for (const pattern of [/step[=_-]?([0-9]+)/gi, /(?:epoch[=_-]?|checkpoint-)([0-9]+)/gi, /([0-9]+)/g]) {
    const last = [...base.matchAll(pattern)].pop();
    if (last) return toStep(BigInt(last[1]));
  }
  return null;
}

// ---- JSON, exactly (6, 8.2) ----

/** Stands before what JSON.parse would not keep: integers past 2^53, bare NaN. No text of a run can know it. */
const MARK = randomUUID();
const MARKED = new RegExp(`"${MARK}(-?[0-9]+)"`, "g");
/** Strings, brackets, bare words and whole numbers; what is followed by a colon is a key, and must be a string. */
const TOKEN = /"(?:[^"\\]|\\.)*"|[[{\]}]|(?:NaN|-?Infinity)(?!\s*:)|-?[0-9][0-9.eE+-]*(?![0-9.eE+-]|\s*:)/g;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * JSON.parse, but integers of 16 digits and more are bigints, half of a surrogate pair is no text, and nothing nests
 * deeper than 100. `words`: the bare NaN, Infinity and -Infinity that many programs write are numbers.
 */
export function parse(text, words = false) {
  let depth = 0;
  const marked = text.replace(TOKEN, (token) => {
    if (token === "[" || token === "{") depth++;
    else if (token === "]" || token === "}") depth--;
    if (depth > 100) throw new SyntaxError("nested deeper than 100");
    const isKept = /^-?[1-9][0-9]{15,}$/.test(token) || (words && Object.hasOwn(WORDS, token));
    return isKept ? `"${MARK}${token}"` : token;
  });
  if (marked === text && !text.includes("\\u")) return JSON.parse(text); // nothing in it that needs more
  return JSON.parse(marked, (key, value) => {
    if (!key.isWellFormed() || (typeof value === "string" && !value.isWellFormed())) throw new SyntaxError("no text");
    if (typeof value !== "string" || !value.startsWith(MARK)) return value;
    const token = value.slice(MARK.length);
    return WORDS[token] ?? BigInt(token);
  });
}

/** JSON.stringify, but bigints are numbers, and what is no number is its word. */
export function stringify(value, indent) {
  const plain = (_, v) => (typeof v === "bigint" ? MARK + v : Number.isFinite(v) || typeof v !== "number" ? v : `${v}`);
  return JSON.stringify(value, plain, indent).replace(MARKED, "$1");
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isWhole = (value) => typeof value === "bigint" || Number.isInteger(value);

/** The object that bytes hold, or null: no UTF-8, no JSON, no object. */
function decode(bytes, words) {
  try {
    const value = parse(utf8.decode(bytes), words);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

const withoutMark = (bytes) => (bytes.subarray(0, 3).equals(Buffer.from("\ufeff")) ? bytes.subarray(3) : bytes);

/** A step as a bigint, or null for what is no whole number of 64 bits. */
function toStep(value) {
  if (typeof value === "bigint") return BigInt.asIntN(64, value) === value ? value : null;
  return Number.isInteger(value) && Math.abs(value) < 2 ** 63 ? BigInt(value) : null;
}

/** The nearest number to a value, or undefined for what is neither a number nor a word. */
function toValue(value) {
  if (typeof value === "number" || typeof value === "bigint") return Number(value);
  return typeof value === "string" && Object.hasOwn(WORDS, value) ? WORDS[value] : undefined;
}

// ---- Time and processes (4.4, 4.5) ----

/**
 * Seconds on a clock that counts suspend. Under Linux /proc/uptime does; process.hrtime(), performance.now() and the
 * timers of Node stand still while the machine sleeps, so they say when to look, and never that work is protected.
 */
export function now() {
  const uptime = Number.parseFloat(procText("/proc/uptime"));
  return Number.isNaN(uptime) ? Number(process.hrtime.bigint()) / 1e9 : uptime;
}

function procText(path) {
  try {
    return readFileSync(path, "latin1").trim();
  } catch {
    return "";
  }
}

/** State letter and raw start ticks of a process; null where /proc is not readable, or not of this pid namespace. */
function processStat(pid) {
  try {
    if (readlinkSync("/proc/self") !== `${process.pid}`) return null;
  } catch {
    return null;
  }
  const stat = procText(`/proc/${pid}/stat`);
  const fields = stat.slice(stat.lastIndexOf(")") + 1).trim().split(" "); // the name may hold anything, ")" too
  return fields.length > 19 ? { state: fields[0], ticks: Number(fields[19]) } : null;
}

/** This process (6.1). */
function me() {
  let pidns = "";
  try {
    pidns = `${statSync("/proc/self/ns/pid").ino}`;
  } catch {} // no Linux: nobody proves this process dead, it expires
  const boot = procText("/proc/sys/kernel/random/boot_id");
  const user = (() => { try { return userInfo().username; } catch { return ""; } })();
  return { host: hostname(), boot, pidns, pid: process.pid, ticks: processStat(process.pid)?.ticks ?? null, user };
}

/** Tokens of the sessions that this process holds: own pid and ticks with another one were there before an execv. */
const mine = new Set();

/** Proved dead (4.4); anything that is not known is alive. */
function isDead(lock) {
  const { host, boot, pidns, pid, ticks } = lock?.holder ?? {};
  const self = me();
  if (!boot || !pidns || host !== self.host || boot !== self.boot || pidns !== self.pidns) return false;
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  if (pid === self.pid && ticks === self.ticks && ticks !== null) return !mine.has(lock.token);
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error.code === "ESRCH") return true;
    if (error.code !== "EPERM") return false;
  }
  const stat = processStat(pid);
  if (stat === null) return false;
  if (Number.isInteger(ticks) && stat.ticks !== ticks) return true;
  try {
    return "ZX".includes(stat.state) && readdirSync(`/proc/${pid}/task`).length === 1; // a zombie without a thread
  } catch {
    return false;
  }
}

// ---- Files (7, 8.1). Copies and fsyncs go through fs.promises, one at a time: a beat always finds a free thread ----

const NO_FILE = new Set(["ENOENT", "ENOTDIR", "ESTALE"]); // ESTALE is read as ENOENT
const NO_LINKS = new Set(["EPERM", "EACCES", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK", "EXDEV"]);

/** For `catch`: a value in place of errors with these codes. */
const instead = (codes, value) => (error) => (codes.has(error.code) ? value : Promise.reject(error));

const rfc3339 = () => new Date().toISOString();
const nanoseconds = () => BigInt(Date.now()) * 1_000_000n;
const hidden = ({ job, n }) => `.tmp-${job}.${n}-${randomBytes(8).toString("hex")}`;
const remove = (path) => fs.rm(path, { recursive: true, force: true });
const unlink = (path) => fs.unlink(path).catch(() => {}); // what is left over is hidden, or anybody's to remove

/**
 * A fresh listing. Node has no posix_fadvise, so whoever acts on what a listing lacks (`owner`: a session) changes
 * the folder first. Names that are no UTF-8 are none of the protocol: ignored. Throws where there is no folder.
 */
async function list(folder, owner) {
  if (owner) {
    const name = `${folder}/${hidden(owner)}`;
    await fs.writeFile(name, "", { flag: "wx" }).then(() => unlink(name), () => {}); // read-only: a listing still
  }
  await (await fs.opendir(folder)).close();
  return (await fs.readdir(folder, { encoding: "buffer" })).filter((name) => isUtf8(name)).map(String);
}

/** The same of a folder that is made when something enters it. */
const names = (folder, owner) => list(folder, owner).catch(instead(NO_FILE, []));

const holds = async (folder, name, owner) => (await names(folder, owner)).includes(name);

/** Content by a fresh open; null where no file is there. O_NONBLOCK: a named pipe must not hold a thread for ever. */
async function bytesOf(path, limit = Infinity) {
  try {
    const file = await fs.open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await file.stat();
      return stat.isFile() && stat.size <= limit ? await file.readFile() : null;
    } finally {
      await file.close();
    }
  } catch (error) {
    if (NO_FILE.has(error.code) || error.code === "ENXIO" || error.code === "ELOOP") return null;
    throw error;
  }
}

/** A record, or null for one that is not there yet (6). */
async function recordAt(path) {
  const bytes = await bytesOf(path, MAX_RECORD);
  return bytes?.at(-1) === 0x0a ? decode(withoutMark(bytes)) : null;
}

async function sync(path) {
  const file = await fs.open(path);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Create a file that must not exist, durably; nothing is left of one that fails part way. */
async function create(path, data) {
  const file = await fs.open(path, "wx", 0o664);
  try {
    await file.writeFile(data);
    await file.sync();
  } catch (error) {
    await unlink(path);
    throw error;
  } finally {
    await file.close();
  }
}

const isSame = async (a, b) => {
  const [x, y] = await Promise.all([a, b].map((path) => fs.stat(path, { bigint: true }).catch(() => null)));
  return x !== null && y !== null && x.ino === y.ino && x.dev === y.dev;
};

/** Link a hidden file to a name that must not exist; whether this is what stands there. Links refused: throws. */
async function linkTo(temporary, target) {
  try {
    await fs.link(temporary, target);
    return true;
  } catch (error) {
    if (await isSame(temporary, target)) return true; // a lost reply, sent again, fails although it happened
    if (error.code === "EEXIST") return false;
    throw error;
  }
}

/** Put-if-absent of a record; whether it is the one that stands. */
async function put(folder, name, record, owner) {
  const temporary = `${folder}/${hidden(owner)}`;
  const data = `${stringify(record, 2)}\n`;
  await create(temporary, data);
  let won;
  try {
    won = await linkTo(temporary, `${folder}/${name}`);
  } catch (error) {
    if (!NO_LINKS.has(error.code)) throw error;
    won = await create(`${folder}/${name}`, data).then(() => true, instead(new Set(["EEXIST"]), false));
  } finally {
    await unlink(temporary);
  }
  await sync(folder);
  return won;
}

/** One rename to a name where nothing else can stand; false where the source is gone. */
async function move(source, target, owner) {
  try {
    await fs.rename(source, target);
  } catch (error) {
    const happened = await holds(dirname(target), basename(target), owner); // the reply alone was lost
    if (!happened) return instead(NO_FILE, false)(error);
  }
  await sync(dirname(target));
  return true;
}

async function replace(folder, name, record, owner) {
  const temporary = `${folder}/${hidden(owner)}`;
  await create(temporary, `${stringify(record, 2)}\n`);
  const { ino } = await fs.stat(temporary, { bigint: true });
  try {
    await fs.rename(temporary, `${folder}/${name}`);
  } catch (error) {
    const stands = await fs.stat(`${folder}/${name}`, { bigint: true }).catch(() => null);
    await unlink(temporary);
    if (stands?.ino !== ino) throw error;
  }
  await sync(folder);
}

/** Make the folders of `path` below `root`, and never `root` itself: where that is gone, the run was moved (4.1). */
async function makeFolders(root, path) {
  let folder = root;
  for (const part of path.split("/")) {
    const parent = folder;
    folder = `${folder}/${part}`;
    try {
      await fs.mkdir(folder, 0o2775);
      await sync(parent);
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
  }
}

const join = (folder, name) => Buffer.concat([Buffer.from(folder), Buffer.from("/"), Buffer.from(name)]);

/** The regular files of an entry, links followed: absolute paths as bytes, and their names below it ("" for a file). */
async function* walk(path, name = Buffer.alloc(0), depth = 0) {
  const stat = await fs.stat(path, { bigint: true }).catch((error) => {
    if (depth && (NO_FILE.has(error.code) || error.code === "ELOOP")) return null; // a link to nothing, or in a circle
    throw error;
  });
  if (stat?.isFile()) yield { path, name, stat };
  if (!stat?.isDirectory() || depth > 40) return;
  for (const part of (await fs.readdir(path, { encoding: "buffer" })).sort(Buffer.compare)) {
    yield* walk(join(path, part), name.length ? join(name, part) : part, depth + 1);
  }
}

/** Link an entry to a hidden name, durably, or copy it. What is neither file nor folder is no part of a checkpoint. */
async function clone(source, target, mayLink, depth = 0) {
  const stat = await fs.stat(source).catch((error) => (depth ? null : Promise.reject(error)));
  if (stat?.isDirectory() && depth <= 40) {
    await fs.mkdir(target, 0o2775);
    for (const part of await fs.readdir(source, { encoding: "buffer" })) {
      await clone(join(source, part), join(target, part), mayLink, depth + 1);
    }
  } else if (stat?.isFile()) {
    const real = await fs.realpath(source, "buffer");
    const linked = mayLink && (await linkTo(real, target).catch(instead(NO_LINKS, false)));
    // File systems that share blocks make a copy at no cost (5.6).
    if (!linked) await fs.copyFile(source, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
  } else if (depth) return;
  else throw new Error(`${source} is neither a file nor a folder`);
  await sync(target);
}

// ---- What was handed over, as its meta says (6.4) ----

const IV = [0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n]
  .concat([0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n]);
const SIGMA = ["0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d"]
  .concat(["2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0"])
  .map((row) => [...row].map((digit) => Number.parseInt(digit, 16)));

/** BLAKE2b (RFC 7693) of 16 bytes, in hexadecimal. The length goes in: Node's blake2b512 cut short is another one. */
export function blake2b16(data) {
  const blocks = Buffer.alloc(128 * Math.max(1, Math.ceil(data.length / 128)));
  data.copy(blocks);
  const h = [...IV];
  h[0] ^= 0x01010010n;
  const rotate = (x, by) => BigInt.asUintN(64, (x >> by) | (x << (64n - by)));
  for (let at = 0; at < blocks.length; at += 128) {
    const m = IV.concat(IV).map((_, i) => blocks.readBigUInt64LE(at + 8 * i));
    const v = h.concat(IV);
    v[12] ^= BigInt(Math.min(at + 128, data.length));
    if (at + 128 === blocks.length) v[14] ^= 0xffffffffffffffffn;
    const mix = (a, b, c, d, x, y) => {
      for (const [word, left, right] of [[x, 32n, 24n], [y, 16n, 63n]]) {
        v[a] = BigInt.asUintN(64, v[a] + v[b] + word);
        v[d] = rotate(v[d] ^ v[a], left);
        v[c] = BigInt.asUintN(64, v[c] + v[d]);
        v[b] = rotate(v[b] ^ v[c], right);
      }
    };
    for (let round = 0; round < 12; round++) {
      const s = SIGMA[round % 10].map((i) => m[i]);
      for (let i = 0; i < 4; i++) mix(i, 4 + i, 8 + i, 12 + i, s[2 * i], s[2 * i + 1]);
      for (let i = 0; i < 4; i++) {
        mix(i, 4 + ((i + 1) % 4), 8 + ((i + 2) % 4), 12 + ((i + 3) % 4), s[8 + 2 * i], s[9 + 2 * i]);
      }
    }
    for (let i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
  }
  const digest = Buffer.alloc(16);
  h.slice(0, 2).forEach((word, i) => digest.writeBigUInt64LE(word, 8 * i));
  return digest.toString("hex");
}

/** `kind`, `files` and `size` of an entry as it stands. */
async function fingerprint(path) {
  const files = [];
  for await (const file of walk(Buffer.from(path))) {
    if (!isUtf8(file.name)) throw new Error(`${path}: the name of a file in it is no UTF-8`);
    const handle = await fs.open(file.path);
    try {
      const { size: bytes, mtimeNs } = await handle.stat({ bigint: true });
      const size = Number(bytes); // Node 20 takes a bigint for no position
      const blocks = [];
      for (const position of size <= 12288 ? [0] : [0, size - 4096, Math.floor(size / 2)]) {
        const { buffer, bytesRead } = await handle.read(Buffer.alloc(size <= 12288 ? 12288 : 4096), { position });
        blocks.push(buffer.subarray(0, bytesRead));
      }
      files.push({ name: file.name.toString(), size, mtime_ns: mtimeNs, sample: blake2b16(Buffer.concat(blocks)) });
    } finally {
      await handle.close();
    }
  }
  files.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  const kind = files.length === 1 && files[0].name === "" ? "file" : "folder";
  return { kind, files, size: files.reduce((sum, { size }) => sum + size, 0) };
}

/** Whether a file that the meta names is missing or another; keys that it lacks are not compared, nor other files. */
async function isChanged(path, meta) {
  if (!Array.isArray(meta?.files)) return false;
  const { files } = await fingerprint(path);
  const there = new Map(files.map((file) => [file.name, file]));
  const keys = ["size", "mtime_ns", "sample"];
  const differs = (said, found) => keys.some((key) => said[key] != null && said[key] != found[key]);
  return meta.files.some((file) => !there.has(file.name) || differs(file, there.get(file.name)));
}

// ---- Chains of sessions (4) ----

/** What a map holds under a key, made where it holds nothing yet. */
const at = (map, key, make) => map.get(key) ?? map.set(key, make()).get(key);

const emptyChain = (job) => ({ job, highest: 0n, locks: new Set(), ends: new Set(), beat: [], taken: [] });

/** The chain of each job in a listing of `jobs/`. The highest session is open if it has no end. */
function chainsOf(listing) {
  const chains = new Map();
  for (const file of listing.map(parseJobFile).filter(Boolean)) {
    const chain = at(chains, file.job, () => emptyChain(file.job));
    if (file.kind === "lock") chain.locks.add(file.n);
    else if (file.kind === "end") chain.ends.add(file.n);
    else chain[file.kind].push(file);
    if (file.kind === "lock" && file.n > chain.highest) chain.highest = file.n;
  }
  return chains;
}

const chainOf = (listing, job) => chainsOf(listing).get(job) ?? emptyChain(job);
const isOpen = ({ highest, ends }) => highest > 0n && !ends.has(highest);

/** Why nothing may be written where this record stands (10), or null. */
function refusal({ protocol, must_understand: words = [] }) {
  if (/^0*1(\.|$)/.test(protocol) && Array.isArray(words) && words.length === 0) return null;
  return `protocol ${protocol}, must understand ${stringify(words)}: this client knows ${PROTOCOL}`;
}

const isSizes = (value) => isObject(value) && Object.values(value).every((size) => isWhole(size) && size >= 0);

/** A lock as it stands; null where it is not there yet, or is none. Throws where nothing may be written under it. */
async function lockOf(run, job, n, mayThrow = true) {
  const lock = await recordAt(`${run}/jobs/${job}.${n}.lock`);
  const why = lock && refusal(lock);
  if (why && mayThrow) throw new Refused(`jobs/${job}.${n}.lock: ${why}`);
  const isIts = lock?.job === job && lock.session == n; // a bigint beside a number
  const known = typeof lock?.token === "string" && typeof lock.timeout === "number";
  return isIts && known && (lock.fence == null || isSizes(lock.fence)) ? lock : null;
}

/** Judges the highest session of a chain, which is open (4.4): by proof, else from listings alone. */
class Watch {
  #counts = new Map();

  constructor(n, lock, T) {
    Object.assign(this, { n, lock, T: lock ? Math.min(Math.max(lock.timeout, 0.2), 86_400) : Math.max(T, 30) });
  }

  /** This one, or one over a later session, or with a lock that could not be read before. `T`: the observer's own. */
  static over(watch, n, lock, T) {
    return watch?.n === n && (watch.lock || !lock) ? watch : new Watch(n, lock, T);
  }

  /** Take in a listing: { beats, reason, verdict }. `reason`: why it may be closed now, or null. */
  judge(chain, started, ended) {
    const isIts = ({ n, token }) => n === this.n && (!this.lock || token === this.lock.token);
    const beats = chain.beat.filter(isIts);
    const verdict = this.#observe(beats, started, ended);
    const isVerdict = beats.length === 0 && chain.taken.some(isIts); // somebody has reached it: anyone may finish it
    const reason = isDead(this.lock) ? "proved dead" : isVerdict || verdict === "expired" ? "expired" : null;
    return { beats, verdict, reason };
  }

  /** `alive`: a beat was seen, `expired`, `slow`: where listings always are, after 4T by the rename alone; or null. */
  #observe(beats, started, ended) {
    const { T } = this;
    const last = ({ token, count }) => this.#counts.get(token) ?? count;
    const moved = beats.some((beat) => beat.count > last(beat));
    const stale = beats.some((beat) => beat.count < last(beat)); // from before what was seen already
    for (const beat of beats) if (beat.count >= last(beat)) this.#counts.set(beat.token, beat.count);
    const shown = beats.map(({ name }) => name).sort().join(" ");
    const still = shown === this.shown && !stale && started - this.ended <= T / 3; // else we were cut off, not they
    const slow = ended - started > T / 6;
    this.patience = still ? this.patience + Math.min(ended - this.ended, T) : 0;
    this.rounds = still ? this.rounds + 1 : 0;
    this.looks = slow ? 0 : still ? this.looks + 1 : 1;
    if (this.looks === 1) this.first = ended;
    Object.assign(this, { shown, ended });
    if (moved) return "alive";
    if (this.looks >= 3 && started - this.first >= T) return "expired";
    return this.patience >= 4 * T && this.rounds >= 3 ? "slow" : null;
  }
}

/** Close another's session (4.4): take the very beats that were watched, put the end, clear up. False: it moved on. */
async function closeOther(run, chain, beats, reason, owner) {
  const { job, highest: n } = chain;
  for (const { name } of beats) {
    const taken = name.replace(".beat.", ".taken.");
    await fs.rename(`${run}/jobs/${name}`, `${run}/jobs/${taken}`).catch(() => {}); // the name that stands decides
    if (!(await holds(`${run}/jobs`, taken, owner))) return false;
  }
  const end = { protocol: PROTOCOL, job, session: n, token: "", status: "crashed", reason };
  Object.assign(end, { ended: rfc3339(), found_by: me() });
  await put(`${run}/jobs`, `${job}.${n}.end`, end, owner);
  await sweep(run, job, n, owner);
  return true;
}

/** Remove beats and taken names of closed sessions up to n. */
async function sweep(run, job, n, owner) {
  const { beat, taken } = chainOf(await list(`${run}/jobs`, owner), job);
  for (const file of [...beat, ...taken]) if (file.n <= n) await unlink(`${run}/jobs/${file.name}`);
}

/** The bytes of complete lines, up to the first NUL (8.2). */
function complete(bytes) {
  const hole = bytes.indexOf(0);
  return bytes.subarray(0, bytes.lastIndexOf(0x0a, hole < 0 ? bytes.length : hole) + 1);
}

/** The fence over session n as another process states it: never less than its end or a data.parquet counted (4.7). */
async function fenceOf(run, job, n) {
  const end = (await recordAt(`${run}/jobs/${job}.${n}.end`))?.sizes;
  const counted = await consumed(run, job, n);
  const logs = ["scalars", "media", "tables", "artifacts"].map((folder) => [folder, `${job}.${n}.jsonl`]);
  const fence = {};
  for (const [folder, name] of [...logs, [`system/${job}`, `${n}.jsonl`]]) {
    const path = `${folder}/${name}`;
    const bytes = (await names(`${run}/${folder}`)).includes(name) ? await bytesOf(`${run}/${path}`) : null;
    for (const size of [bytes && complete(bytes).length, isSizes(end) ? end[path] : null, counted[path]]) {
      if (size != null && !(fence[path] >= size)) fence[path] = size;
    }
  }
  return fence;
}

/** What a data.parquet of this very run has consumed (6.9): its footer has the key `fsrun` and a text, in Thrift. */
async function consumed(run, job, n) {
  const bytes = (await names(run)).includes("data.parquet") ? await bytesOf(`${run}/data.parquet`) : null;
  const key = Buffer.from("\x18\x05fsrun\x18");
  let at = bytes ? bytes.lastIndexOf(key) + key.length : 0;
  if (at < key.length) return {};
  let size = 0;
  for (let shift = 0; ; shift += 7) {
    size += (bytes[at] & 0x7f) * 2 ** shift;
    if (!(bytes[at++] & 0x80)) break;
  }
  const stated = decode(bytes.subarray(at, at + size));
  const token = (await lockOf(run, job, n))?.token;
  return token && stated?.tokens?.[`${job}.${n}`] === token && isSizes(stated.sources) ? stated.sources : {};
}

/** Lock session n of a job: the own beat first (4.1). Null: somebody else was faster. */
async function lockNext(run, job, n, fields, tried = new Map()) {
  const owner = { job, n };
  const token = randomBytes(8).toString("hex");
  const beat = `${run}/jobs/${job}.${n}.${token}.beat.0`;
  const began = now();
  const lock = { protocol: PROTOCOL, job, session: n, token, opened: rfc3339(), holder: me(), ...fields };
  const opened = { n, token, began };
  await fs.writeFile(beat, "", { flag: "wx" });
  tried.set(token, opened);
  mine.add(token);
  try {
    if (!(await put(`${run}/jobs`, `${job}.${n}.lock`, lock, owner))) return (await unlink(beat), null);
  } catch (error) {
    if ((await lockOf(run, job, n))?.token !== token) throw (await unlink(beat), error); // what stands decides
  }
  await sweep(run, job, n - 1n, owner);
  return opened;
}

/** One after the other. */
function serial() {
  let last = Promise.resolve();
  return (work) => (last = last.then(work, work));
}

/**
 * Open the next session of a job (4.1) with the timeout T. Watches an open predecessor until it has seen one beat,
 * which throws Held, or may close it (4.4). Throws Refused for a side job without main, and where none may write (10).
 */
export async function open(run, job, T = 30) {
  if (!new RegExp(`^${JOB}$`).test(job)) throw new Error(`${job} is no name of a job`);
  if (!(T >= 0.2 && T <= 86_400)) throw new Error(`T = ${T} is no timeout of 0.2 to 86400 seconds`);
  run = resolve(run);
  if (job === "main" && chainOf(await names(`${run}/jobs`), "main").highest === 0n) {
    await fs.mkdir(run, { recursive: true }); // the first opening of main makes the run, and nobody does so again
    for (const folder of RUN_FOLDERS) await makeFolders(run, folder);
  }
  const checked = new Set();
  let watch;
  for (;;) {
    const started = now();
    const listing = await names(`${run}/jobs`, { job, n: 0n });
    const ended = now();
    for (const file of listing.map(parseJobFile)) {
      if (file?.kind === "lock" && !checked.has(file.name)) await lockOf(run, file.job, file.n);
      checked.add(file?.name);
    }
    const isRun = chainOf(listing, "main").highest > 0n;
    if (job !== "main" && !isRun) throw new Refused("main has no lock: there is no run to join");
    const chain = chainOf(listing, job);
    const n = chain.highest + 1n;
    if (!isOpen(chain)) {
      const first = { project: basename(dirname(run)), run: basename(run), name: null, config: {}, unit: null };
      const { project, run: id, name, config, unit } = { ...first, ...(await mainLock(run, listing)) };
      const told = { project, run: id, ...(job === "main" ? { name, config, unit } : {}) }; // a restart says it again
      const fence = n > 1n ? await fenceOf(run, job, n - 1n) : null;
      const opened = await lockNext(run, job, n, { timeout: T, continues: false, fence, ...told });
      if (opened) return Session.begin(run, job, T, told, opened);
      continue;
    }
    const lock = await lockOf(run, job, chain.highest);
    watch = Watch.over(watch, chain.highest, lock, T);
    const { beats, verdict, reason } = watch.judge(chain, started, ended);
    if (reason || verdict === "slow") await closeOther(run, chain, beats, reason ?? "expired", { job, n });
    else if (verdict === "alive" || mine.has(lock?.token)) throw new Held(lock?.holder);
    else await sleep(1000 * Math.min(1, Math.max(0.02, watch.T / 30)));
  }
}

/** The newest lock of main that can be read: it says where the unit is (2). */
async function mainLock(run, listing, mayThrow) {
  for (const n of [...chainOf(listing, "main").locks].sort((a, b) => (a < b ? 1 : -1))) {
    const lock = await lockOf(run, "main", n, mayThrow);
    if (lock) return lock;
  }
  return null;
}

/** One life of a job. It beats by itself, every T/6, until it is closed or fenced: leave the event loop free for it. */
export class Session {
  state = "open"; // or fenced, closed, gone (the folder is not there, or is another)
  step = null;
  #closing = false;
  #beats = serial();
  #lines = serial();
  #tried = new Map();

  static async begin(run, job, T, told, opened) {
    const session = Object.assign(new Session(), { run, job, T, told });
    session.queue = new Queue(session);
    session.#adopt(opened);
    session.#beatAfter(T / 6);
    try {
      if (job === "main") await session.queue.withdrawFinished(); // a new main process hands over again (5.8)
    } catch (error) {
      await session.close("failed", "FINISHED could not be removed").catch(() => {});
      throw error;
    }
    return session;
  }

  get logPath() {
    return `scalars/${this.job}.${this.n}.jsonl`;
  }

  #adopt({ n, token, began }) {
    Object.assign(this, { n, token, count: 0n, lastGood: began, audited: began, doubt: Infinity, lapsed: false });
    Object.assign(this, { state: "open", acknowledged: 0, file: null });
  }

  list(folder) {
    return list(`${this.run}/${folder}`, this);
  }

  // -- Beats (4.2)

  #beatAfter(seconds) {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const started = now();
      const good = await this.beat().catch(() => false);
      if (this.state === "fenced" || this.state === "closed" || this.#closing) return;
      this.#beatAfter(good ? Math.max(0, this.T / 6 - (now() - started)) : this.T / 12);
    }, 1000 * seconds);
    this.timer.unref(); // a program that ends without closing must not beat on
  }

  /** Beat once: one rename. Whether this session holds its job after it. */
  beat() {
    return this.#beats(async () => {
      if (this.state === "fenced" || this.state === "closed" || this.#closing) return false;
      const started = now();
      const name = (count) => `${this.run}/jobs/${this.job}.${this.n}.${this.token}.beat.${count}`;
      try {
        await fs.rename(name(this.count), name(this.count + 1n));
      } catch {
        this.doubt = Math.min(this.doubt, started);
        const count = await this.#stand();
        if (count === null) return this.isProtected;
        const happened = count > this.count; // a listing may have hidden that an earlier one went through
        this.count = count;
        if (happened) this.#good(this.doubt);
        return happened;
      }
      this.count += 1n;
      this.#good(started);
      if (started - this.audited >= this.T) await this.#stand(); // an end put by hand leaves the beat where it is
      return this.isProtected;
    });
  }

  #good(started) {
    Object.assign(this, { lastGood: started, doubt: Infinity, state: "open" });
  }

  /** Look where this session stands, and follow from it what must: fenced, gone, or closed and going on. */
  async check() {
    return this.#beats(() => (this.state === "fenced" || this.state === "closed" ? null : this.#stand()));
  }

  /** By a fresh listing: the number of the beat that stands, or null where there is none, or the session went on. */
  async #stand() {
    this.audited = now();
    let chain;
    try {
      chain = chainOf(await this.list("jobs"), this.job);
    } catch (error) {
      if (NO_FILE.has(error.code)) this.state = "gone";
      return null;
    }
    const beat = chain.beat.find((file) => file.n === this.n && file.token === this.token);
    if (beat && chain.highest === this.n && isOpen(chain)) {
      if (this.state === "gone") this.state = "open"; // a mount that came back: its beat proves that it is this run
      return beat.count;
    }
    const lock = chain.locks.has(this.n) ? await lockOf(this.run, this.job, this.n, false) : { token: null };
    if (lock && lock.token !== this.token) this.state = "gone"; // not the folder that was opened: nothing is written
    if (lock?.token !== this.token) return null;
    if (chain.highest > this.n) await this.#follow(chain);
    else {
      const taken = chain.taken.some((file) => file.n === this.n && file.token === this.token);
      const closed = chain.ends.has(this.n) || taken || now() - this.lastGood >= this.T;
      if (closed) await this.#goOn(chain);
    }
    return null;
  }

  /** A later session is there: another's, or one that was opened here although an error was reported. */
  async #follow(chain) {
    const lock = await lockOf(this.run, this.job, chain.highest, false);
    if (this.#tried.has(lock?.token)) return this.#adopt(this.#tried.get(lock.token));
    this.state = "fenced";
    console.error(`${this.run}: ${this.job} was taken over by session ${chain.highest}: nothing more is written here`);
  }

  /** Closed while alive, and still the highest: put a missing end, open the next session, go on (4.6). */
  async #goOn(chain) {
    this.lapsed = true;
    // Not while a line is on its way: what was acknowledged counts, and what was not is written again (4.7).
    await this.#lines(async () => {
      const { run, job, n, T, told } = this;
      if (!chain.ends.has(n)) await put(`${run}/jobs`, `${job}.${n}.end`, this.#end("crashed", "expired"), this);
      const fence = this.acknowledged ? { [this.logPath]: this.acknowledged } : {};
      const opened = await lockNext(run, job, n + 1n, { timeout: T, continues: true, fence, ...told }, this.#tried);
      if (!opened) return; // by somebody else: the next look says so
      await this.file?.close().catch(() => {});
      this.#adopt(opened);
      this.queue.continued();
    }).catch(() => {}); // the next look tries again
  }

  /** Whether protected work may begin now (4.5). */
  get isProtected() {
    return this.state === "open" && !this.lapsed && now() - this.lastGood < (this.T * 2) / 3;
  }

  /** Wait until protected work may begin, and return the number of the session held. Nothing may come between. */
  async protect() {
    const began = now();
    while (!this.isProtected) {
      if (this.state === "fenced") throw new Fenced();
      if (this.state === "closed" || this.#closing) throw new Error("the session is closed");
      if (await this.beat()) continue;
      if (this.state === "gone") throw new Error(`${this.run} is not there any more`);
      if (now() - began > this.T) throw new Error(`${this.run}: no beat was possible for ${this.T} s`);
      await sleep((1000 * this.T) / 12);
    }
    return this.n;
  }

  // -- Scalars (6.8)

  /** Log values (an object, or pairs) at a step; durable on return. `entry`: the key of their outcome (5.9). */
  async log(step, time, values, entry) {
    const pairs = new Map(Symbol.iterator in values ? values : Object.entries(values));
    if (toStep(step) === null) throw new Error(`the step ${step} is no whole number of 64 bits`);
    if (!Number.isFinite(time)) throw new Error(`the time ${time} is no number`);
    for (const [tag, value] of pairs) {
      const isTag = tag !== "" && Buffer.byteLength(tag) <= 512 && !CONTROL.test(tag) && !RESERVED.includes(tag);
      if (!isTag || toValue(value) === undefined) throw new Error(`${stringify(tag)}: ${value} is no scalar`);
    }
    const fields = [["step", step], ["time", time], ...(entry ? [["entry", entry]] : []), ...pairs];
    const line = Buffer.from(`{${fields.map(([key, value]) => `${stringify(key)}:${stringify(value)}`).join(",")}}\n`);
    for (;;) {
      const n = await this.protect();
      if (await this.#lines(() => this.#append(n, line))) break;
    }
    if (this.step === null || step > this.step) this.step = step;
  }

  /** Append a line to the log of session n; false where that is not the session held any more. */
  async #append(n, line) {
    if (this.n !== n || this.lapsed) return false;
    const path = `${this.run}/${this.logPath}`;
    try {
      this.file ??= await fs.open(path, "a", 0o664);
      const { size } = await this.file.stat();
      if (size > this.acknowledged) await this.file.truncate(this.acknowledged); // half a line of a write that failed
      await this.file.appendFile(line);
      await this.file.datasync();
      if (this.acknowledged === 0) await sync(dirname(path));
    } catch (error) {
      await this.file?.close().catch(() => {});
      this.file = null; // what stands there may be another file by now: opened afresh
      throw error;
    }
    this.acknowledged += line.length;
    return true;
  }

  // -- The end (4.3)

  #end(status, reason) {
    const { job, n, token, step, logPath, acknowledged } = this;
    const sizes = acknowledged ? { [logPath]: acknowledged } : {};
    return { protocol: PROTOCOL, job, session: n, token, status, reason, ended: rfc3339(), step, sizes };
  }

  /** Give back what is claimed, and put the end. Throws Fenced where a newer session is there. */
  async close(status, reason = null) {
    await this.queue.giveBack().catch((error) => {
      if (error instanceof Fenced) throw error;
      console.error(`${this.run}: a claim is not given back, and counts as lost: ${error.message}`);
    });
    for (;;) {
      await this.protect();
      const stands = await this.#beats(() => this.#lines(() => this.#putEnd(status, reason)));
      if (stands) break;
      this.#closing = false; // closed as crashed while alive: the next session gets the true status (4.6)
      await this.check();
    }
    clearTimeout(this.timer);
    this.state = "closed";
    mine.delete(this.token);
    await this.file?.close().catch(() => {});
    await sweep(this.run, this.job, this.n, this).catch(() => {});
  }

  async #putEnd(status, reason) {
    const { run, job, n, token } = this;
    this.#closing = this.lapsed = true; // the next session may be open before this call returns
    for (let tries = 1; ; tries++) {
      try {
        if (await put(`${run}/jobs`, `${job}.${n}.end`, this.#end(status, reason), this)) return true;
        const stands = await recordAt(`${run}/jobs/${job}.${n}.end`);
        if (stands) return stands.token === token && stands.status === status;
      } catch (error) {
        if (tries === 30) throw error;
      }
      await sleep(1000 * Math.min(1, this.T / 6));
    }
  }
}

// ---- The queue (5): a trainer's hand-over, an evaluator's claims ----

const claimPath = ({ job, session, k, entry }) => `claimed/${job}.${session}/${k}/${entry}`;
const waitingPath = ({ entry, k }) => (k === 1n ? `queue/${entry}` : `retry/${k}/${entry}`);
const numbersOf = (listing) => listing.filter((name) => new RegExp(`^${NUMBER}$`).test(name)).map(BigInt);

/** An outcome as it stands; null: not there yet. One that nobody can understand is about nobody's claim (5.3). */
async function outcomeOf(run, entry, k) {
  const bytes = await bytesOf(`${run}/evals/${entry}.${k}.json`, MAX_RECORD);
  if (bytes?.at(-1) !== 0x0a) return null;
  const outcome = decode(withoutMark(bytes));
  const isState = ["done", "failed", "lost", "skipped", "returned"].includes(outcome?.state);
  const isClaims = isState && typeof outcome.job === "string" && isWhole(outcome.session);
  return isClaims && isObject(outcome.scores ?? {}) ? outcome : { state: null, job: "", session: 0 };
}

async function claimsIn(unit, owner) {
  const claims = [];
  for (const folder of await names(`${unit}/claimed`, owner)) {
    const [, job, session] = CLAIM_FOLDER.exec(folder) ?? [];
    for (const k of job ? numbersOf(await names(`${unit}/claimed/${folder}`, owner)) : []) {
      const entries = (await names(`${unit}/claimed/${folder}/${k}`, owner)).filter(isEntry);
      claims.push(...entries.map((entry) => ({ job, session: BigInt(session), k, entry })));
    }
  }
  return claims;
}

/** What waits: retry/ before queue/. */
async function waitingIn(unit, owner) {
  const waiting = [];
  for (const k of numbersOf(await names(`${unit}/retry`, owner))) {
    waiting.push(...(await names(`${unit}/retry/${k}`, owner)).map((entry) => ({ entry, k })));
  }
  waiting.push(...(await names(`${unit}/queue`, owner)).map((entry) => ({ entry, k: 1n })));
  return waiting.filter(({ entry }) => isEntry(entry));
}

/** The folder of the unit that main's newest lock names; throws where it cannot be reached: that is not empty (2). */
async function unitOf(run, listing, mayThrow) {
  const unit = (await mainLock(run, listing, mayThrow))?.unit;
  if (!unit) return run;
  const stands = await recordAt(`${unit.path}/unit.json`);
  if (stands?.id !== unit.id) throw new Error(`the unit ${unit.path} on ${unit.host} is not reachable`);
  return unit.path;
}

/** The highest session of main and its status (4.8); session 0: none. */
async function mainState(run, listing) {
  const chain = chainOf(listing, "main");
  return { session: chain.highest, status: (await statusOf(run, chain)).status };
}

async function statusOf(run, chain) {
  if (isOpen(chain)) return { status: "running", reason: null };
  const end = await recordAt(`${run}/jobs/${chain.job}.${chain.highest}.end`);
  const status = ["finished", "failed", "crashed"].includes(end?.status) ? end.status : "crashed";
  return { status, reason: typeof end?.reason === "string" ? end.reason : null };
}

/** Whether FINISHED stands and is obeyed (5.8). */
async function isFinished(unit, main, owner) {
  if (!(await holds(`${unit}/queue`, "FINISHED", owner))) return false;
  const bytes = (await bytesOf(`${unit}/queue/FINISHED`)) ?? Buffer.alloc(0);
  const named = decode(withoutMark(bytes))?.main_session;
  return main.session === 0n || (isWhole(named) && named > 0 ? named == main.session : main.status === "finished");
}

export class Queue {
  claim = null;
  #session;
  #one = serial(); // a command, or the adoption of a claim
  #used = new Set();
  #known = new Map();
  #watches = new Map();
  #order = 0n;
  #begun = false;
  #mainGone = null;

  constructor(session) {
    this.#session = session;
  }

  get #run() {
    return this.#session.run;
  }

  #names(path) {
    return names(path, this.#session);
  }

  async #unit() {
    return unitOf(this.#run, await this.#session.list("jobs"));
  }

  // -- Moves (7). Each begins at once after protect() has said that it may (4.5)

  /** One rename below a root; false where the source is gone. `holder`: only as this session (the target names it). */
  async #move(root, from, to, holder) {
    for (let again = false; ; again = true) {
      await makeFolders(root, dirname(to));
      const n = await this.#session.protect();
      if (holder && holder !== n) return false;
      if (await move(`${root}/${from}`, `${root}/${to}`, this.#session)) return true;
      // The source is gone, or somebody has removed the empty folder that was made.
      if (again || !(await holds(`${root}/${dirname(from)}`, basename(from), this.#session))) return false;
    }
  }

  async #discard(root, path) {
    const away = `trash/${hidden(this.#session)}`;
    if (await this.#move(root, path, away)) await remove(`${root}/${away}`).catch(() => {}); // then emptyTrash does
  }

  /** What anybody left in trash/, or could not remove (`.nfs*` files), goes now. */
  async #emptyTrash(...roots) {
    for (const root of roots) {
      for (const name of await this.#names(`${root}/trash`)) {
        await remove(`${root}/trash/${name}`).catch(() => {});
      }
    }
  }

  // -- Hand-over (5.1)

  /** Hand a file or folder over under `name` or its next use; durable on return, which says the entry. */
  enqueue(path, name, step = null) {
    return this.#one(async () => {
      if (!isEntry(name)) throw new Error(`${stringify(name)} is no name of an entry`);
      const session = this.#session;
      const unit = await this.#unit();
      const { session: main } = await mainState(this.#run, await session.list("jobs"));
      await session.protect();
      const folder = `${unit}/queue`;
      const staged = `${folder}/${hidden(session)}`;
      try {
        await clone(resolve(path), staged, true);
        const facts = { protocol: PROTOCOL, step: step ?? stepOfName(name), main_session: main || null };
        Object.assign(facts, await fingerprint(staged), { source: resolve(path), retry_of: null });
        Object.assign(facts, { handed_over: rfc3339(), order: this.#nextOrder() });
        for (let entry = name; ; entry = nextUse(name, [...(await this.#metas(unit)), entry])) {
          if (await holds(folder, entry, session)) continue; // a plain writer's
          entry = await this.#reserve(unit, entry, facts);
          if (await this.#publish(staged, folder, entry, facts.kind)) return entry;
          await unlink(`${unit}/meta/${entry}.json`); // or that writer's file would be taken for a changed one
        }
      } finally {
        await remove(staged);
      }
    });
  }

  /** Rises with every hand-over of this process: breaks ties of a step. */
  #nextOrder() {
    const order = nanoseconds();
    return (this.#order = order > this.#order ? order : this.#order + 1n);
  }

  async #metas(unit) {
    return (await this.#names(`${unit}/meta`)).filter(isMeta).map((name) => name.slice(0, -5));
  }

  /** Put a meta under a name, or under its next use. */
  async #reserve(unit, name, facts) {
    for (let entry = name; ; entry = nextUse(entry, [...(await this.#metas(unit)), entry])) {
      if (await put(`${unit}/meta`, `${entry}.json`, { ...facts, entry }, this.#session)) return entry;
    }
  }

  /** Show what is staged under its name; false where a plain writer's file has that name. */
  async #publish(staged, folder, entry, kind) {
    if (await holds(folder, entry, this.#session)) return false;
    await this.#session.protect();
    const target = `${folder}/${entry}`;
    const linked = kind === "file" ? await linkTo(staged, target).catch(instead(NO_LINKS, null)) : null;
    return linked === null ? move(staged, target, this.#session) : (await sync(folder), linked);
  }

  /** Say that nothing more is handed over (5.8). */
  finish() {
    return this.#one(async () => {
      if (this.#session.job !== "main") throw new Error("main alone says that it hands over no more");
      await this.#writeFinished();
    });
  }

  async #writeFinished() {
    const unit = await this.#unit();
    const n = await this.#session.protect();
    const finished = { protocol: PROTOCOL, main_session: n, token: this.#session.token, written: rfc3339() };
    await replace(`${unit}/queue`, "FINISHED", finished, this.#session);
    this.finished = true;
  }

  async withdrawFinished() {
    const unit = await this.#unit();
    if (await holds(`${unit}/queue`, "FINISHED", this.#session)) await this.#discard(unit, "queue/FINISHED");
  }

  /** The session goes on as the next one: so do its claim (5.4) and its FINISHED. */
  continued() {
    this.#one(async () => {
      if (this.finished) await this.#writeFinished();
      if (this.claim) await this.#adopt();
    }).catch(() => {}); // tried again before the claim is used
  }

  // -- Claims (5.2)

  /**
   * Look once for something to do: the claim { entry, k, path }, "over" where this evaluator may end, or null. Closes
   * sessions that are dead or expired, for which it has to be called at least every T/3 of theirs, and recovers claims.
   */
  take() {
    return this.#one(async () => {
      if (this.claim) throw new Error(`${this.claim.entry} is claimed and has no outcome yet`);
      const unit = await this.#unit();
      if (!this.#begun) await this.#prune();
      this.#begun = true;
      await this.#emptyTrash(...new Set([unit, this.#run]));
      let seen = await this.#recover(unit);
      for (const waiting of await this.#inOrder(unit)) {
        // False: another was faster.
        if (await this.#claimed(unit, waiting).catch(instead(NO_FILE, false))) return this.claim;
      }
      if (!(await this.#isOver(unit, seen))) return null;
      seen = await this.#recover(unit); // once more: an entry on its way from a claim to retry/ is in neither listing
      return (await waitingIn(unit, this.#session)).length === 0 && (await this.#isOver(unit, seen)) ? "over" : null;
    });
  }

  /** By step, main session and hand-over; what failed or was lost before comes last, since that may happen again. */
  async #inOrder(unit) {
    const waiting = [];
    const metas = await this.#metas(unit);
    for (const { entry, k } of await waitingIn(unit, this.#session)) {
      const { step, main_session: main, order } = await this.#facts(unit, entry, metas);
      const returned = k > 1n && (await outcomeOf(this.#run, entry, k - 1n))?.state === "returned";
      waiting.push({ entry, k, key: [k > 1n && !returned, step === null, step ?? 0, main ?? 0, order ?? 0, entry] });
    }
    const compare = (a, b) => a.reduce((found, x, i) => found || (x < b[i] ? -1 : x > b[i] ? 1 : 0), 0);
    return waiting.sort((a, b) => compare(a.key, b.key));
  }

  /** The meta of an entry, which never changes; null for a plain writer's. `metas`: what a listing has just shown. */
  async #meta(unit, entry, metas) {
    if (!this.#known.has(entry) && (metas ?? (await this.#metas(unit))).includes(entry)) {
      const meta = await recordAt(`${unit}/meta/${entry}.json`);
      if (meta) this.#known.set(entry, meta);
    }
    return this.#known.get(entry) ?? null;
  }

  /** Step, main session and order of an entry: as its meta says, a step that it lacks as the name says (5.9). */
  async #facts(unit, entry, metas) {
    const meta = await this.#meta(unit, entry, metas);
    const facts = { step: toStep(meta?.step) ?? stepOfName(entry), main_session: null };
    if (isWhole(meta?.main_session)) facts.main_session = meta.main_session;
    if (isWhole(meta?.order)) facts.order = meta.order;
    return facts;
  }

  /** Claim what waits, check it, and keep it as `claim`; false where another was faster, or it has changed. */
  async #claimed(unit, { entry, k }) {
    const session = this.#session;
    const n = await session.protect();
    let claim = { job: session.job, session: n, k, entry, since: now(), started: rfc3339() };
    const source = waitingPath(claim);
    const again = k === 1n && this.#used.has(`${n} ${entry}`);
    if (again) claim.entry = await this.#nextName(unit, entry, source); // two under one path could not be told apart
    if (k === 1n) this.#used.add(`${n} ${entry}`);
    if (!(await this.#move(unit, source, claimPath(claim), n))) return false;
    if (k === 1n && !again && (await holds(`${this.#run}/evals`, `${entry}.1.json`, session))) {
      const standing = await this.#standing(claim);
      if (standing && !isAbout(standing, claim)) claim = await this.#renamed(unit, claim);
      if (!claim) return false;
    }
    const meta = await this.#meta(unit, claim.entry);
    claim.facts = await this.#facts(unit, claim.entry);
    if (!meta || claim.facts.step === null) {
      // What neither meta nor name tells, the claimant alone states (5.9).
      const main = await mainState(this.#run, await session.list("jobs"));
      claim.facts.step ??= await this.#lastStep(main.session);
      if (!meta) Object.assign(claim.facts, { main_session: main.session || null, order: nanoseconds() });
    }
    claim.meta = meta ?? (await fingerprint(`${unit}/${claimPath(claim)}`));
    claim.path = `${unit}/${claimPath(claim)}`;
    if (await isChanged(claim.path, claim.meta)) {
      await this.#settle(unit, claim, "failed", { reason: "changed" });
      return false;
    }
    this.claim = claim;
    return true;
  }

  /** The last step that a session of main has logged, or null. */
  async #lastStep(n) {
    const name = `main.${n}.jsonl`;
    const folder = `${this.#run}/scalars`;
    const bytes = (await holds(folder, name, this.#session)) ? await bytesOf(`${folder}/${name}`) : null;
    const lines = bytes ? complete(bytes).toString().trimEnd().split("\n") : [];
    return toStep(decode(Buffer.from(lines.pop() ?? ""))?.step);
  }

  /** Reserve the next use of a name for what stands at `path`; its meta's facts go along where they are about that. */
  async #nextName(unit, entry, path) {
    const found = await fingerprint(`${unit}/${path}`);
    const meta = await this.#meta(unit, entry);
    const isIts = meta && !(await isChanged(`${unit}/${path}`, meta));
    const fresh = { protocol: PROTOCOL, step: stepOfName(entry), main_session: null, source: entry };
    const facts = { ...(isIts ? meta : { ...fresh, handed_over: rfc3339(), order: this.#nextOrder() }), ...found };
    return this.#reserve(unit, nextUse(entry, [...(await this.#metas(unit)), entry]), facts);
  }

  async #renamed(unit, claim) {
    const entry = await this.#nextName(unit, claim.entry, claimPath(claim));
    const renamed = { ...claim, entry };
    renamed.path = `${unit}/${claimPath(renamed)}`;
    return (await this.#move(unit, claimPath(claim), claimPath(renamed))) ? renamed : null;
  }

  // -- Outcomes (5.3)

  /** The outcome of a claim's attempt; waits for one that is being written where links are refused, T at most. */
  async #standing({ entry, k }) {
    for (let i = 0; i <= 20; i++) {
      const standing = await outcomeOf(this.#run, entry, k);
      if (standing) return standing;
      if (!(await holds(`${this.#run}/evals`, `${entry}.${k}.json`, this.#session))) return null;
      await sleep((1000 * this.#session.T) / 20);
    }
    return null;
  }

  /** Put the outcome of a claim unless one stands; answers the one that stands. */
  async #put(claim, state, fields) {
    const { job, n, token, run } = this.#session;
    const isOwn = claim.job === job && claim.session === n;
    const outcome = { protocol: PROTOCOL, entry: claim.entry, attempt: claim.k, state, reason: null };
    Object.assign(outcome, { job: claim.job, session: claim.session, token: isOwn ? token : "" });
    Object.assign(outcome, { by: me(), ended: rfc3339() }, fields);
    const name = `${claim.entry}.${claim.k}.json`;
    for (;;) {
      await this.#session.protect();
      if (await put(`${run}/evals`, name, outcome, this.#session)) return outcome;
      const standing = await this.#standing(claim);
      if (standing) return standing;
      const aside = `${run}/evals/${hidden(this.#session)}`; // half a record, for T (11)
      await this.#session.protect();
      await fs.rename(`${run}/evals/${name}`, aside).catch(() => {});
      const stands = (await bytesOf(aside))?.at(-1) === 0x0a; // by now: put back
      if (stands) await fs.copyFile(aside, `${run}/evals/${name}`, constants.COPYFILE_EXCL);
      await unlink(aside);
    }
  }

  /** Put an outcome, and make the move of the one that stands: { claim, standing, place }; null: the claim is gone. */
  async #settle(unit, claim, state, fields) {
    const facts = claim.facts ?? (await this.#facts(unit, claim.entry));
    for (;;) {
      const standing = await this.#put(claim, state, { ...facts, ...fields });
      if (isAbout(standing, claim)) return { claim, standing, place: await this.#moveAs(unit, claim, standing) };
      claim = await this.#renamed(unit, claim); // an earlier file has this name
      if (!claim) return null;
    }
  }

  /** Move a claim as its standing outcome says; the place. */
  async #moveAs(unit, claim, { state }) {
    const path = claimPath(claim);
    if (state === "done" && (await this.#rule())) return (await this.#keep(unit, claim), "best");
    if (state === "done" || state === "skipped") return (await this.#discard(unit, path), "trash");
    let count = 0;
    for (let k = 1n; k <= claim.k; k++) if ((await outcomeOf(this.#run, claim.entry, k))?.state === state) count++;
    const place = (state === "failed" && count >= 3) || (state === "lost" && count >= 10) ? "failed" : "retry";
    await this.#move(unit, path, place === "failed" ? `failed/${claim.entry}` : `retry/${claim.k + 1n}/${claim.entry}`);
    return place;
  }

  /** To best/: by a rename, or a copy where the trainer may still write over it, or the unit stands elsewhere (5.6). */
  async #keep(unit, claim) {
    const path = claimPath(claim);
    let shared = unit !== this.#run;
    const here = await holds(`${unit}/${dirname(path)}`, claim.entry, this.#session);
    if (here) for await (const { stat } of walk(Buffer.from(`${unit}/${path}`))) shared ||= stat.nlink > 1n;
    if (!shared) return this.#move(unit, path, `best/${claim.entry}`);
    const best = (await this.#names(`${this.#run}/best`)).filter(isEntry);
    const { keep } = await this.#rule();
    const rank = (await this.#ranked([...best, claim.entry])).indexOf(claim.entry);
    if (here && !best.includes(claim.entry) && !(keep && rank >= keep)) {
      await makeFolders(this.#run, "best");
      const copy = `${this.#run}/best/${hidden(this.#session)}`;
      try {
        await clone(`${unit}/${path}`, copy, false);
        await this.#session.protect();
        await move(copy, `${this.#run}/best/${claim.entry}`, this.#session);
      } finally {
        await remove(copy);
      }
    }
    return this.#discard(unit, path);
  }

  /** End the claim: `done` with { scores }, `failed` or `skipped` with { reason }, `returned`. Answers the place. */
  outcome(state, fields = {}) {
    return this.#one(async () => {
      if (!this.claim) throw new Error("nothing is claimed");
      const unit = await this.#unit();
      if (this.claim.session !== this.#session.n) await this.#adopt();
      const { claim } = this;
      if (!claim) throw new Error("the claim was lost: this process was taken for dead, and another recovered it");
      const isThere = await holds(dirname(claim.path), claim.entry, this.#session); // else a recoverer has moved it
      const isOther = state === "done" && isThere && (await isChanged(claim.path, claim.meta));
      if (isOther) [state, fields] = ["failed", { reason: "changed" }];
      const time = Date.now() / 1000;
      const times = { started: claim.started, ended: rfc3339(), time, duration_s: now() - claim.since };
      const settled = await this.#settle(unit, claim, state, { ...times, ...fields });
      this.claim = null;
      if (!settled) return "retry"; // recovered by another meanwhile: it waits again, or has gone on
      const { standing, place } = settled;
      const isOurs = standing.state === "done" && standing.started === claim.started;
      if (isOurs && toStep(standing.step) !== null && Object.keys(standing.scores).length) {
        const key = `${settled.claim.entry}.${settled.claim.k}`;
        await this.#session.log(standing.step, standing.time, standing.scores, key); // 5.9: after it stands
      }
      if (standing.state === "done") await this.#prune();
      return place;
    });
  }

  /** Take the claim of the session that this one continues over: returned under k, then claimed as k + 1 (5.4). */
  async #adopt() {
    const { claim } = this;
    const n = await this.#session.protect();
    if (!claim || claim.session === n) return;
    const unit = await this.#unit();
    const standing = await this.#put(claim, "returned", { ...claim.facts, reason: "adopted" });
    const next = { ...claim, session: n, k: claim.k + 1n };
    const isIts = standing.state === "returned" && isAbout(standing, claim);
    this.claim = isIts && (await this.#move(unit, claimPath(claim), claimPath(next), n)) ? next : null;
    if (this.claim) this.claim.path = `${unit}/${claimPath(next)}`;
  }

  async giveBack() {
    if (this.claim) await this.outcome("returned");
    return this.#one(async () => {
      if (!this.#begun) return;
      const { job, n } = this.#session;
      await this.#prune();
      await this.#removeEmpty(await this.#unit(), { job, session: n });
    });
  }

  // -- Recovery (5.5)

  async #removeEmpty(unit, { job, session }) {
    const folder = `${unit}/claimed/${job}.${session}`;
    for (const k of await names(folder)) await fs.rmdir(`${folder}/${k}`).catch(() => {});
    await fs.rmdir(folder).catch(() => {});
  }

  /** Close what is dead or expired, bring home the claims of closed sessions. Whether others hold one, or hand over. */
  async #recover(unit) {
    const session = this.#session;
    const claims = await claimsIn(unit, session);
    const started = now();
    let listing = await session.list("jobs");
    const ended = now();
    let coming = false;
    for (const chain of [...chainsOf(listing).values()].filter((c) => isOpen(c) && c.job !== session.job)) {
      let lock;
      try {
        lock = await lockOf(this.#run, chain.job, chain.highest);
      } catch {
        continue; // of a newer protocol: not ours to close
      }
      const handsOver = chain.job !== "main" && lock?.hands_over === true;
      const holdsClaim = claims.some(({ job, session: n }) => job === chain.job && n === chain.highest);
      const watched = handsOver || holdsClaim || chain.job === "main";
      const closed = watched && (await this.#judge(chain, lock, started, ended));
      coming ||= handsOver && !closed;
    }
    listing = await session.list("jobs");
    const chains = chainsOf(listing);
    let held = false;
    for (const claim of claims) {
      const chain = chains.get(claim.job);
      const isOwn = claim.job === session.job && claim.session === session.n;
      const isClosed = chain && (chain.ends.has(claim.session) || claim.session < chain.highest);
      if (isOwn || isClosed) {
        await this.#settle(unit, claim, isOwn ? "returned" : "lost", {}); // own: an error left it behind
        await this.#removeEmpty(unit, claim);
      } else held = true;
    }
    return { listing, held, coming };
  }

  /** Watch an open session; whether it was closed. */
  async #judge(chain, lock, started, ended) {
    const watch = Watch.over(this.#watches.get(chain.job), chain.highest, lock, this.#session.T);
    this.#watches.set(chain.job, watch);
    const { beats, reason } = watch.judge(chain, started, ended);
    if (!reason) return false;
    await this.#session.protect();
    return closeOther(this.#run, chain, beats, reason, this.#session);
  }

  /** Whether this evaluator may end (5.8), where nothing waits. */
  async #isOver(unit, { listing, held, coming }) {
    const main = await mainState(this.#run, listing);
    const isGone = main.session > 0n && (main.status === "failed" || main.status === "crashed");
    if (!isGone) this.#mainGone = null;
    else if (this.#mainGone?.session !== main.session) this.#mainGone = { session: main.session, since: now() };
    if (coming) return false;
    if (isGone && now() - this.#mainGone.since >= Math.max(600, 4 * this.#session.T)) return true; // it lingered
    if (held) return false;
    return (main.session > 0n && main.status === "finished") || isFinished(unit, main, this.#session);
  }

  // -- What is kept (5.7)

  async #rule() {
    if (!(await holds(this.#run, "best.json", this.#session))) return null;
    const rule = await recordAt(`${this.#run}/best.json`);
    const { mode, tag, keep = 1 } = rule ?? {};
    const known = ["max", "min"].includes(mode) && typeof tag === "string" && isWhole(keep) && keep >= 0;
    if (!known) throw new Error("best.json cannot be read");
    return { mode, tag, keep: Number(keep) };
  }

  /** Put the rule of the run; throws Refused where it has another. */
  best(mode, tag, keep = 1) {
    return this.#one(async () => {
      const isRule = ["max", "min"].includes(mode) && Number.isInteger(keep) && keep >= 0;
      if (!isRule) throw new Error(`${mode} ${tag} ${keep} is no rule`);
      await this.#session.protect();
      const wanted = { protocol: PROTOCOL, mode, tag, keep };
      if (!(await this.#rule())) await put(this.#run, "best.json", wanted, this.#session);
      const rule = await this.#rule();
      if (rule.mode !== mode || rule.tag !== tag || rule.keep !== keep) {
        throw new Refused(`best.json says ${rule.mode} ${rule.tag}, keep ${rule.keep}`);
      }
    });
  }

  /** Those of some entries that have the rule's score, best first: NaN last, then the earlier step, then the name. */
  async #ranked(entries) {
    const { mode, tag } = await this.#rule();
    const scored = [];
    const wanted = new Set(entries);
    for (const { entry, k } of (await this.#names(`${this.#run}/evals`)).map(parseOutcome).filter(Boolean)) {
      const outcome = wanted.has(entry) ? await outcomeOf(this.#run, entry, k) : null;
      if (outcome?.state !== "done" || !Object.hasOwn(outcome.scores ?? {}, tag)) continue;
      const score = toValue(outcome.scores[tag]);
      if (score !== undefined) scored.push({ entry, score, step: toStep(outcome.step) });
    }
    const better = (a, b) => (mode === "max" ? a > b : a < b);
    return scored.sort((a, b) => {
      if (Number.isNaN(a.score) !== Number.isNaN(b.score)) return Number.isNaN(a.score) ? 1 : -1;
      if (better(a.score, b.score) || better(b.score, a.score)) return better(a.score, b.score) ? -1 : 1;
      if (a.step !== b.step) return b.step === null || (a.step !== null && a.step < b.step) ? -1 : 1;
      return Buffer.compare(Buffer.from(a.entry), Buffer.from(b.entry));
    }).map(({ entry }) => entry);
  }

  /** Delete what `keep` strictly better ones beside it make superfluous; without the rule's score nothing is ranked. */
  async #prune() {
    const rule = await this.#rule();
    if (!rule?.keep) return;
    const best = (await this.#names(`${this.#run}/best`)).filter(isEntry);
    const surplus = best.length > rule.keep ? (await this.#ranked(best)).slice(rule.keep) : [];
    for (const entry of surplus) await this.#discard(this.#run, `best/${entry}`);
  }
}

/** Whether an outcome is about this claim, whoever put it (5.2). */
const isAbout = (outcome, claim) => outcome.job === claim.job && outcome.session == claim.session;

// ---- Reading (8). Nothing is written ----

/** What the run folder says, as docs/clients.md has it. */
export async function read(run) {
  run = resolve(run);
  let listing = await names(`${run}/jobs`);
  for (let looks = 0; ; looks++) {
    const found = await readOnce(run, listing);
    const again = await names(`${run}/jobs`);
    // The fence of a new lock may void what was read (8.4).
    const isNew = again.some((name) => name.endsWith(".lock") && !listing.includes(name));
    if (!isNew || looks === 8) return found;
    listing = again;
  }
}

async function readOnce(run, listing) {
  const chains = [...chainsOf(listing).values()].filter(({ highest }) => highest > 0n);
  const locks = new Map();
  const jobs = {};
  let writable = true;
  for (const chain of chains) {
    jobs[chain.job] = { session: chain.highest, ...(await statusOf(run, chain)) };
    for (const n of chain.locks) {
      const record = await recordAt(`${run}/jobs/${chain.job}.${n}.lock`);
      if (record && refusal(record)) writable = false;
      locks.set(`${chain.job}.${n}`, await lockOf(run, chain.job, n, false));
    }
  }
  const { points, skipped } = await readLogs(run, locks);
  const outcomes = await readOutcomes(run);
  const counted = countingPoints(points, outcomes, locks);
  const main = await mainState(run, listing);
  const unit = await unitOf(run, listing, false).catch(() => null);
  const finished = unit && (await isFinished(unit, main)); // of a unit that is not reachable nothing is known
  const entries = unit && (await readEntries(run, unit, outcomes));
  return { writable, jobs, points: counted, skipped, entries, finished };
}

/** All points that fences let count, in order: sessions, a session's log, then its spill pieces, then lines. */
async function readLogs(run, locks) {
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const logs = (await names(`${run}/scalars`)).map((name) => LOG.exec(name)).filter(Boolean)
    .map(([name, job, n, piece]) => ({ name, job, n: BigInt(n), piece: piece === undefined ? -1n : BigInt(piece) }))
    .sort((a, b) => order(a.job, b.job) || order(a.n, b.n) || order(a.piece, b.piece));
  const points = [];
  const skipped = {};
  for (const { name, job, n, piece } of logs) {
    const fence = piece < 0n ? locks.get(`${job}.${n + 1n}`)?.fence : null;
    const path = `scalars/${name}`;
    let bytes = (await bytesOf(`${run}/${path}`)) ?? Buffer.alloc(0);
    if (fence) bytes = bytes.subarray(0, Number(Object.hasOwn(fence, path) ? fence[path] : 0));
    const lines = withoutMark(complete(bytes));
    for (let at = 0, number = 1; at < lines.length; number++) {
      const end = lines.indexOf(0x0a, at);
      const line = readLine(lines.subarray(at, end));
      at = end + 1;
      if (line.faulty) (skipped[path] ??= []).push(number);
      points.push(...line.points.map((point) => ({ ...point, job, n })));
    }
  }
  return { points, skipped };
}

/** A time that is missing or no number is earlier than any other. */
const timeOf = ({ time }) => (typeof time === "bigint" || Number.isFinite(time) ? Number(time) : -Infinity);

/** The points of one line, and whether it or a value of it was skipped (8.2). */
function readLine(bytes) {
  const line = decode(bytes, true);
  const step = toStep(line?.step);
  const entry = line?.entry ?? null;
  if (step === null || (entry !== null && typeof entry !== "string")) {
    return { points: [], faulty: /[^ \t\r]/.test(bytes.toString("latin1")) };
  }
  const time = timeOf(line);
  const values = Object.entries(line).filter(([tag, value]) => !RESERVED.includes(tag) && value !== null);
  const all = values.map(([tag, value]) => ({ tag, step, time, value: toValue(value), entry }));
  const points = all.filter(({ value }) => value !== undefined);
  return { points, faulty: points.length < all.length };
}

/** Outcomes by `<entry>.<k>`. */
async function readOutcomes(run) {
  const outcomes = new Map();
  for (const { entry, k } of (await names(`${run}/evals`)).map(parseOutcome).filter(Boolean)) {
    outcomes.set(`${entry}.${k}`, { entry, k, outcome: await outcomeOf(run, entry, k) });
  }
  return outcomes;
}

/** Which points count (8.3): by tag, [step, value] in the order of steps. */
function countingPoints(logged, outcomes, locks) {
  const group = (job, n) => {
    while (n > 1n && locks.get(`${job}.${n}`)?.continues === true) n--; // sessions joined by `continues` count as one
    return n;
  };
  const lined = new Set(logged.map(({ entry }) => entry));
  const points = logged.filter(({ entry }) => entry === null || outcomes.has(entry));
  for (const [key, { outcome }] of outcomes) {
    const step = toStep(outcome?.step);
    if (outcome?.state !== "done" || step === null || lined.has(key)) continue;
    const time = timeOf(outcome);
    for (const [tag, score] of Object.entries(outcome.scores ?? {})) {
      const value = toValue(score);
      if (value !== undefined) points.push({ job: outcome.job, tag, step, time, value, entry: key });
    }
  }
  const handover = ({ entry }) => {
    const { outcome, k } = outcomes.get(entry);
    const main = isWhole(outcome?.main_session) ? group("main", BigInt(outcome.main_session)) : -1n;
    return [main, isWhole(outcome?.order) ? BigInt(outcome.order) : 0n, k];
  };
  // For each group of main and tag: from which step on a later group voided it.
  const firsts = new Map();
  const mains = points.filter(({ job, entry }) => job === "main" && entry === null);
  for (const point of mains) {
    point.group = group("main", point.n);
    const first = at(firsts, point.tag, () => new Map());
    if (!(first.get(point.group) <= point.step)) first.set(point.group, point.step);
  }
  const isVoid = ({ tag, step, group: own }) =>
    [...firsts.get(tag)].some(([later, first]) => later > own && first <= step);
  // Of each group of main, the steps at which it logged anything, and whether a later group voided a point there.
  const fates = new Map();
  for (const point of mains) {
    const fate = at(fates, point.group, () => new Map());
    fate.set(point.step, fate.get(point.step) || isVoid(point));
  }
  const steps = new Map([...fates].map(([of, fate]) => [of, [...fate.keys()].sort((a, b) => (a < b ? -1 : 1))]));
  /** An outcome shares the fate of what its main session had logged last by then. */
  const isVoidOutcome = (point) => {
    const [main] = handover(point);
    const last = steps.get(main)?.findLast((step) => step <= point.step);
    return last !== undefined && fates.get(main).get(last);
  };
  const result = Object.create(null); // a tag may be called __proto__
  const byTag = new Map();
  for (const point of points) at(byTag, point.tag, () => []).push(point);
  for (const [tag, series] of byTag) {
    const beside = new Map(); // of side jobs and outcomes: the later time wins
    const add = (of, isLater) => {
      const settled = new Map();
      for (const point of of) {
        const before = settled.get(point.step);
        if (!before || isLater(point, before)) settled.set(point.step, point);
      }
      for (const [step, point] of settled) if (!(beside.get(step)?.time > point.time)) beside.set(step, point);
    };
    const sides = new Set(series.filter(({ job, entry }) => job !== "main" && entry === null).map(({ job }) => job));
    for (const side of sides) add(series.filter(({ job, entry }) => job === side && entry === null), () => true);
    const rises = (a, b) => a.reduce((found, x, i) => found || (x > b[i] ? 1 : x < b[i] ? -1 : 0), 0) >= 0;
    const scores = series.filter((point) => point.entry !== null && !isVoidOutcome(point));
    add(scores, (point, before) => rises(handover(point), handover(before)));
    const from = [...beside.keys()].reduce((a, step) => (a === null || step < a ? step : a), null);
    const stands = new Map();
    for (const point of series) {
      const isMain = point.job === "main" && point.entry === null;
      const isTaken = from !== null && point.step >= from; // by a side job or an outcome
      if (isMain && !isTaken && !isVoid(point)) stands.set(point.step, point);
    }
    const all = [...stands, ...beside].map(([step, { value }]) => [step, value]);
    if (all.length) result[tag] = all.sort(([a], [b]) => (a < b ? -1 : 1));
  }
  return result;
}

async function readEntries(run, unit, outcomes) {
  const entries = Object.create(null);
  const found = (entry) => (entries[entry] ??= { place: null, outcomes: {} });
  const stand = (place, listed) => listed.filter(isEntry).forEach((entry) => (found(entry).place = place));
  stand("best", await names(`${run}/best`)); // of two places the last one named here counts
  stand("failed", await names(`${unit}/failed`));
  const waiting = await waitingIn(unit);
  stand("queue", waiting.filter(({ k }) => k === 1n).map(({ entry }) => entry));
  stand("retry", waiting.filter(({ k }) => k > 1n).map(({ entry }) => entry));
  stand("claimed", (await claimsIn(unit)).map(({ entry }) => entry));
  for (const name of (await names(`${unit}/meta`)).filter(isMeta)) found(name.slice(0, -5));
  for (const { entry, k, outcome } of outcomes.values()) {
    const { outcomes: states } = found(entry);
    if (outcome?.state) states[k] = outcome.state;
  }
  return entries;
}

// ---- The command line (docs/clients.md) ----

const valuesOf = (fields) => {
  if (fields.length % 2) throw new Error(`${fields.at(-1)} has no value`);
  const pairs = [];
  for (let i = 0; i < fields.length; i += 2) {
    const value = Object.hasOwn(WORDS, fields[i + 1]) ? WORDS[fields[i + 1]] : parse(fields[i + 1]);
    pairs.push([fields[i], value]);
  }
  return pairs;
};

/** Whole lines alone: what a driver that died wrote half is no command. */
async function* lines(input) {
  let rest = "";
  for await (const piece of input.setEncoding("utf8")) {
    const found = (rest + piece).split("\n");
    rest = found.pop();
    yield* found;
  }
}

async function drive(run) {
  let session = null;
  const commands = {
    beat: async () => {
      if (!(await session.beat())) throw new Error("no beat was possible");
      return ["beaten", session.count];
    },
    log: async (step, time, ...fields) => (await session.log(BigInt(step), Number(time), valuesOf(fields)), ["logged"]),
    enqueue: async (path, name, step) => ["enqueued", await session.queue.enqueue(path, name, BigInt(step))],
    finish: async () => (await session.queue.finish(), ["finished"]),
    best: async (mode, tag, keep) => (await session.queue.best(mode, tag, Number(keep)), ["ruled"]),
    take: async () => {
      const claim = await session.queue.take();
      return claim?.entry ? ["taken", claim.entry, claim.k, claim.path] : [claim ?? "none"];
    },
    outcome: async (state, ...fields) => {
      if (!["done", "failed", "skipped", "returned"].includes(state)) throw new Error(`${state} is no outcome`);
      const says = state === "done" ? { scores: Object.fromEntries(valuesOf(fields)) } : { reason: fields[0] ?? null };
      return ["moved", await session.queue.outcome(state, says)];
    },
    close: async (status, reason) => {
      if (!["finished", "failed"].includes(status)) throw new Error(`${status} is no status`);
      return (await session.close(status, reason ?? null), ["closed"]);
    },
  };
  const obey = async ([command, ...fields]) => {
    try {
      if (command === "open") {
        if (session) throw new Error("a session is open");
        session = await open(run, fields[0], Number(fields[1]));
        return ["opened", session.n];
      }
      if (!Object.hasOwn(commands, command)) throw new Error(`no such command: ${command}`);
      if (!session) throw new Error("no session is open");
      await session.check(); // whatever is asked for, nothing is written to a run that a newer session has
      if (session.state === "fenced") return ["fenced"];
      if (session.state === "gone") throw new Error(`${run} is not there any more`);
      return await commands[command](...fields);
    } catch (error) {
      if (error instanceof Fenced || session?.state === "fenced") return ["fenced"];
      if (error instanceof Held) return ["held", error.holder.host ?? "unknown", error.holder.pid ?? 0];
      return [error instanceof Refused ? "refused" : "error", error.message];
    }
  };
  process.stdout.on("error", () => {}); // nobody listens any more: the input ends as well
  for await (const line of lines(process.stdin)) {
    const fields = line.split("\t");
    const answer = await obey(fields);
    process.stdout.write(`${answer.map((field) => `${field}`.replace(/[\t\r\n]+/g, " ") || "-").join("\t")}\n`);
    if (fields[0] === "close" && (answer[0] === "closed" || answer[0] === "fenced")) return;
  }
  if (session) await session.close("failed", "input ended");
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const [, , command, run] = process.argv;
  try {
    if (command === "read" && run) process.stdout.write(`${stringify(await read(run))}\n`);
    else if (command === "drive" && run) await drive(run).then(() => process.stdin.destroy());
    else throw new Error("usage: node fsrun.mjs read|drive RUN");
  } catch (error) {
    console.error(error instanceof Fenced ? "fenced" : error.message);
    process.exitCode = error instanceof Fenced ? 0 : 1;
  }
}
