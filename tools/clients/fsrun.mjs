#!/usr/bin/env node
/**
 * A client of the fsrun protocol for Node 20 or newer, without packages: trainer, evaluator and reader.
 *
 *     node fsrun.mjs read RUN      what the run folder RUN says, as one JSON object
 *     node fsrun.mjs drive RUN     commands of docs/clients.md from standard input, a line each
 *
 * From top to bottom: names, JSON, processes, files, entries, chains of sessions, the own session, trainer, evaluator,
 * reader, commands. The numbers in comments are sections of protocol.md. Steps and the numbers of sessions, attempts
 * and beats are bigints: 18 digits do not fit a double.
 *
 * Left out: views (4.8), spills of its own (4.9), markers of live runs (2), the slow way to expire (4.4, a MAY), media,
 * tables, artifacts and samples, and data.parquet: logs are read, and fences are stated from them and the end (4.7).
 * Node has no BLAKE2b of 16 bytes: where b2sum of coreutils is missing too, samples of a meta are not compared (6.4).
 *
 * After a crash: every name stands whole or not at all, and whoever looks next goes on from there (9).
 */
import { isUtf8 } from "node:buffer";
import { spawnSync } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { constants, readFileSync, readdirSync, readlinkSync, statSync } from "node:fs";
import * as fs from "node:fs/promises";
import { hostname } from "node:os";
import { basename, dirname, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** An error that is an answer of its own: held, refused, or fenced (a newer session is there: nothing is written). */
const answer = (...fields) => Object.assign(new Error(fields.join(" ")), { fields });

const PROTOCOL = "1.0";
const MAX_RECORD = 64 * 2 ** 20; // bytes (6)
const FOLDERS = "jobs scalars evals files queue meta claimed retry best failed trash".split(" ");
const RESERVED = ["step", "time", "entry"]; // keys of a line that are no tags (6.8)
const WORDS = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };
const NOTHING = Buffer.alloc(0);
const RUN = resolve(process.argv[3] ?? ".");

/** The session of this process. Without a job nothing is written at all; the token is that of its own lock. */
const self = { job: null, n: 0n, token: null, T: 0, state: "open", step: null, finished: null, claim: null };
self.writable = true; // by whoever understands all locks that were read (10)

/** What `work` returns, or what `otherwise` makes of its error. */
function attempt(work, otherwise) {
  try {
    return work();
  } catch (error) {
    return otherwise(error);
  }
}

/** What a map holds under a key, made where it holds nothing yet. */
const at = (map, key, make) => map.get(key) ?? map.set(key, make()).get(key);

/** Items in their order, by the key of each. */
function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) at(groups, keyOf(item), () => []).push(item);
  return groups;
}

/** Arrays compared item by item; a text as one whose order is that of the bytes of its UTF-8. */
const compare = (a, b) => a.reduce((found, x, i) => found || (x < b[i] ? -1 : x > b[i] ? 1 : 0), 0);
const bytewise = (text) => Buffer.from(text).toString("latin1");

/** One after the other. */
const serial = (last = Promise.resolve()) => (work) => (last = last.then(work, work));

// ---- Names (3), parsed from the right ----

const JOB = "([a-z0-9][a-z0-9_-]{0,47})";
const COUNT = "(0|[1-9][0-9]{0,17})";
const NUMBER = "([1-9][0-9]{0,17})";
const JOB_FILE = new RegExp(`^${JOB}\\.${NUMBER}\\.(?:(lock|end)|([0-9a-z]{8,32})\\.(beat|taken)\\.${COUNT})$`);
const LOG = new RegExp(`^${JOB}\\.${NUMBER}(?:\\.s${COUNT})?\\.jsonl$`);
const CLAIM_FOLDER = new RegExp(`^${JOB}\\.${NUMBER}$`);
const ATTEMPT = new RegExp(`^${NUMBER}$`);
const META = /^(.+)\.json$/;
const OUTCOME = new RegExp(`^(.+)\\.${NUMBER}\\.json$`);
const CONTROL = /[\x00-\x1f\x7f]/;

function isEntry(name) {
  const ignored = name === "" || name.startsWith(".") || name.endsWith(".tmp") || name === "FINISHED";
  return !ignored && Buffer.byteLength(name) <= 200 && !CONTROL.test(name) && !name.includes("/");
}

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

/** The step in a name (5.9): of `step=1200` over `epoch_3` and `checkpoint-500` over the last number; null: none. */
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
function parse(text, words = false) {
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
function stringify(value, indent) {
  const plain = (_, v) => (typeof v === "bigint" ? MARK + v : Number.isFinite(v) || typeof v !== "number" ? v : `${v}`);
  return JSON.stringify(value, plain, indent).replace(MARKED, "$1");
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isWhole = (value) => typeof value === "bigint" || Number.isInteger(value);

/** The object that bytes hold, or null: no UTF-8, no JSON, no object. */
function decode(bytes, words) {
  const value = attempt(() => parse(utf8.decode(bytes), words), () => null);
  return isObject(value) ? value : null;
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

// ---- Processes and time (4.4, 4.5) ----

/** Content of a file that may not be readable, as of /proc. */
const textOf = (path) => attempt(() => readFileSync(path, "latin1").trim(), () => "");

/**
 * Seconds on a clock that counts suspend. Under Linux /proc/uptime does; process.hrtime() and the timers of Node stand
 * still while the machine sleeps, so they say when to look, and never that work is protected.
 */
function now() {
  const uptime = Number.parseFloat(textOf("/proc/uptime"));
  return Number.isNaN(uptime) ? Number(process.hrtime.bigint()) / 1e9 : uptime;
}

/** State letter and raw start ticks of a process, or nothing where /proc does not say. */
function processStat(pid) {
  const stat = textOf(`/proc/${pid}/stat`);
  const fields = stat.slice(stat.lastIndexOf(")") + 1).trim().split(" "); // the name may hold anything, ")" too
  return fields.length > 19 ? { state: fields[0], ticks: Number(fields[19]) } : {};
}

/** This process (6.1). Where the system has no pid namespaces nobody proves it dead: it expires. */
const ME = {
  host: hostname(),
  boot: textOf("/proc/sys/kernel/random/boot_id"),
  pidns: attempt(() => `${statSync("/proc/self/ns/pid").ino}`, () => ""),
  pid: process.pid,
  ticks: processStat("self").ticks ?? null,
};

/** The sessions of this process by their tokens: own pid and ticks with another one were there before an execv. */
const mine = new Map();

/** Proved dead (4.4); anything that is not known is alive. */
function isDead(lock) {
  const { host, boot, pidns, pid, ticks } = lock?.holder ?? {};
  if (!boot || !pidns || host !== ME.host || boot !== ME.boot || pidns !== ME.pidns) return false;
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  if (pid === ME.pid && ticks === ME.ticks && ticks !== null) return !mine.has(lock.token);
  if (attempt(() => !process.kill(pid, 0), ({ code }) => code === "ESRCH")) return true;
  if (attempt(() => readlinkSync("/proc/self"), () => "") !== `${ME.pid}`) return false; // of another pid namespace
  const stat = processStat(pid);
  if (Number.isInteger(ticks) && stat.ticks !== undefined && stat.ticks !== ticks) return true;
  const threads = attempt(() => readdirSync(`/proc/${pid}/task`).length, () => null);
  return "ZX".includes(stat.state) && threads === 1; // a zombie without a thread
}

// ---- Files (7, 8.1). Copies and fsyncs go one at a time, so a beat always finds a free thread of fs.promises ----

const NO_FILE = ["ENOENT", "ENOTDIR", "ESTALE"]; // ESTALE is read as ENOENT
const NO_LINKS = ["EPERM", "EACCES", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK", "EXDEV"];

/** For `catch`: a value in place of errors with these codes. */
const instead = (codes, value) => (error) => (codes.includes(error.code) ? value : Promise.reject(error));
const rfc3339 = () => new Date().toISOString();
const hidden = (folder) => `${folder}/.tmp-${self.job}.${self.n}-${randomBytes(8).toString("hex")}`;
const remove = (path) => fs.rm(path, { recursive: true, force: true });
const unlink = (path) => fs.unlink(path).catch(() => {}); // what is left over is hidden, or anybody's to remove
const inode = (path) => fs.lstat(path, { bigint: true }).then(({ ino }) => ino, () => null);

/**
 * A fresh listing. Node has no posix_fadvise, so whoever may act on what it lacks changes the folder first. Names that
 * are no UTF-8 are none of the protocol: ignored. Throws where there is no folder.
 */
async function list(folder) {
  const name = hidden(folder);
  if (self.job) await fs.writeFile(name, "", { flag: "wx" }).then(() => unlink(name), () => {}); // or it is read-only
  await (await fs.opendir(folder)).close();
  return (await fs.readdir(folder, { encoding: "buffer" })).filter((name) => isUtf8(name)).map(String);
}

/** The same of a folder that is made when something enters it. */
const names = (folder) => list(folder).catch(instead(NO_FILE, []));
const matches = async (folder, pattern) => (await names(folder)).map((name) => pattern.exec(name)).filter(Boolean);
const holds = async (path) => (await names(dirname(path))).includes(basename(path));

/** What `work` makes of a file that is opened and closed for it. */
async function using(path, flags, work) {
  const file = await fs.open(path, flags, 0o664);
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

const sync = (path) => using(path, "r", (file) => file.sync());

/** Content by a fresh open; empty where no file is there. O_NONBLOCK: a named pipe must not hold a thread for ever. */
function bytesOf(path, limit = Infinity) {
  const content = async (file) => {
    const stat = await file.stat();
    return stat.isFile() && stat.size <= limit ? file.readFile() : NOTHING;
  };
  const none = instead([...NO_FILE, "ENXIO", "ELOOP"], NOTHING);
  return using(path, constants.O_RDONLY | constants.O_NONBLOCK, content).catch(none);
}

/** A record; null: not there yet (6); undefined: whole, and none. */
async function recordAt(path) {
  const bytes = await bytesOf(path, MAX_RECORD);
  return bytes.at(-1) === 0x0a ? decode(withoutMark(bytes)) ?? undefined : null;
}

/** Create a file that must not exist, durably; nothing is left of one that fails part way. */
const create = (path, data) =>
  using(path, "wx", (file) => file.writeFile(data).then(() => file.sync()).catch(async (error) => {
    await unlink(path);
    throw error;
  }));

/** Link a file to a name that must not exist; whether this is what stands there. Where links are refused it throws. */
const link = (source, target) =>
  fs.link(source, target).then(() => true, async (error) => {
    const ino = await inode(source);
    if (ino !== null && (await inode(target)) === ino) return true; // the reply was lost, and the second try fails
    return instead(["EEXIST"], false)(error);
  });

/** Put-if-absent of a record; whether it is the one that stands. */
async function put(path, record) {
  const temporary = hidden(dirname(path));
  const data = `${stringify({ protocol: PROTOCOL, ...record }, 2)}\n`;
  let won = null;
  try {
    await create(temporary, data);
    won = await link(temporary, path).catch(instead(NO_LINKS, null));
  } finally {
    await unlink(temporary);
  }
  won ??= await create(path, data).then(() => true, instead(["EEXIST"], false));
  await sync(dirname(path));
  return won;
}

/** One rename, durably; false where the source is gone. After an error the name that stands decides. */
async function rename(source, target) {
  const ino = await inode(source);
  try {
    await fs.rename(source, target);
  } catch (error) {
    const happened = (await holds(target)) && (ino === null || (await inode(target)) === ino);
    if (!happened) return instead(NO_FILE, false)(error);
  }
  await sync(dirname(target));
  return true;
}

/** Make a folder with those above it, but never the run or the unit: where that is gone it was moved (4.1). */
async function makeFolder(path) {
  if (path === RUN || path === self.unit) return;
  await makeFolder(dirname(path));
  const made = await fs.mkdir(path, 0o2775).then(() => true, instead(["EEXIST"], false));
  if (made) await sync(dirname(path));
}

/** Move something to where nothing else can stand: protected work (4.5). False where the source is gone. */
async function move(source, target) {
  for (let again = false; ; again = true) {
    await makeFolder(dirname(target));
    await protect();
    if (await rename(source, target)) return true;
    if (again || !(await holds(source))) return false; // else somebody has removed the empty folder that was made
  }
}

/** Remove by way of trash/ (7); what cannot go now (`.nfs*` files) does at the next take. */
async function discard(path) {
  const away = hidden(`${path.startsWith(`${self.unit}/`) ? self.unit : RUN}/trash`);
  if (await move(path, away)) await remove(away).catch(() => {});
}

// ---- Entries: files and folders that are handed over (5.1, 6.4) ----

/** Files and folders of an entry, links followed: paths as bytes, and names below it as "/a/b" ("" for itself). */
async function* walk(root, name = NOTHING, depth = 0) {
  const path = Buffer.concat([Buffer.from(root), name]);
  const nowhere = depth ? [...NO_FILE, "ELOOP"] : []; // a link in it to nothing, or in a circle
  const stat = await fs.stat(path, { bigint: true }).catch(instead(nowhere, null));
  if (stat?.isFile() || stat?.isDirectory()) yield { path, name, stat }; // nothing else is part of a checkpoint
  if (!stat?.isDirectory() || depth > 40) return;
  for (const part of (await fs.readdir(path, { encoding: "buffer" })).sort(Buffer.compare)) {
    yield* walk(root, Buffer.concat([name, Buffer.from("/"), part]), depth + 1);
  }
}

/** Link an entry to a hidden name, durably, or copy it: file systems that share blocks do so at no cost (5.6). */
async function clone(source, target, mayLink) {
  const made = [];
  for await (const { path, name, stat } of walk(source)) {
    const to = Buffer.concat([Buffer.from(target), name]);
    const linked = async () => link(await fs.realpath(path, "buffer"), to).catch(instead(NO_LINKS, false));
    if (stat.isDirectory()) await fs.mkdir(to, 0o2775);
    else if (!mayLink || !(await linked())) {
      await fs.copyFile(path, to, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    }
    made.push(to);
  }
  if (made.length === 0) throw new Error(`${source} is neither a file nor a folder`);
  for (const path of made.reverse()) await sync(path);
}

/** `kind`, `files` and `size` of an entry as it stands. Names that are no UTF-8 cannot stand in a record. */
async function fingerprint(path) {
  const files = [];
  let kind = "file";
  for await (const { path: file, name, stat } of walk(path)) {
    if (stat.isDirectory()) kind = "folder";
    else if (isUtf8(name)) {
      const [size, mtime_ns] = [Number(stat.size), stat.mtimeNs];
      files.push({ name: `${name.subarray(1)}`, size, mtime_ns, sample: await sampleOf(file, size) });
    }
  }
  return { kind, files, size: files.reduce((sum, { size }) => sum + size, 0) };
}

/** BLAKE2b of a small file, else of three blocks of it (6.4), by b2sum; undefined where that is missing. */
async function sampleOf(path, size) {
  const blocks = size <= 12288 ? [[0, size]] : [[0, 4096], [size - 4096, 4096], [Math.floor(size / 2), 4096]];
  const read = (file) => Promise.all(blocks.map(([position, length]) => file.read(Buffer.alloc(length), { position })));
  const input = Buffer.concat((await using(path, "r", read)).map(({ buffer }) => buffer));
  const { status, stdout } = spawnSync("b2sum", ["-l", "128"], { input });
  return status === 0 ? stdout.toString("latin1", 0, 32) : undefined; // a key that is absent is not compared
}

/** Whether a file that the meta names is missing or another; keys that are absent are not compared, nor other files. */
async function isChanged(path, meta) {
  if (!Array.isArray(meta?.files)) return false;
  const there = new Map((await fingerprint(path)).files.map((file) => [file.name, file]));
  const differs = (said, found) => (key) => said[key] != null && found[key] != null && said[key] != found[key];
  const isOther = (said, found) => !found || ["size", "mtime_ns", "sample"].some(differs(said, found)); // or bigints
  return meta.files.some((said) => isOther(said, there.get(said.name)));
}

// ---- Chains of sessions (4) ----

const emptyChain = (job) => ({ job, highest: 0n, locks: [], ends: new Set(), beat: [], taken: [] });
const chainOf = (listing, job) => chainsOf(listing).get(job) ?? emptyChain(job);
const freshChain = async (job) => chainOf(await list(`${RUN}/jobs`), job);
const isOpen = ({ highest, ends }) => highest > 0n && !ends.has(highest);

/** The chain of each job in a listing of `jobs/`. The highest session is open if it has no end. */
function chainsOf(listing) {
  const chains = new Map();
  for (const name of listing) {
    const [, job, number, record, token, beat, count] = JOB_FILE.exec(name) ?? [];
    if (!job) continue;
    const n = BigInt(number);
    const chain = at(chains, job, () => emptyChain(job));
    if (record === "lock") chain.locks.push(n);
    else if (record === "end") chain.ends.add(n);
    else chain[beat].push({ name, n, token, count: BigInt(count) });
    if (record === "lock" && n > chain.highest) chain.highest = n;
  }
  return chains;
}

const isSizes = (value) => isObject(value) && Object.values(value).every((size) => isWhole(size) && size >= 0);

/** A lock as it stands; null where it is not there yet, or is none. A client that writes refuses what it must (10). */
async function lockOf(job, n) {
  const lock = await recordAt(`${RUN}/jobs/${job}.${n}.lock`);
  const { protocol, must_understand: words = [], token, timeout, fence = null } = lock ?? {};
  if (lock && !(/^0*1(\.|$)/.test(protocol) && Array.isArray(words) && words.length === 0)) {
    const why = `jobs/${job}.${n}.lock: protocol ${protocol}, must understand ${stringify(words)}`;
    if (process.argv[2] !== "read") throw answer("refused", why);
    self.writable = false;
  }
  const isIts = lock?.job === job && lock.session == n; // a bigint beside a number
  const isKnown = typeof token === "string" && typeof timeout === "number" && (fence === null || isSizes(fence));
  return isIts && isKnown ? lock : null;
}

/** The newest lock of main that can be read: it says where the unit is (2). */
async function mainLock(listing) {
  for (const n of chainOf(listing, "main").locks.sort((a, b) => (a < b ? 1 : -1))) {
    const lock = await lockOf("main", n);
    if (lock) return lock;
  }
  return {};
}

/** Find the unit; throws where it cannot be reached, which is not empty. */
async function findUnit() {
  const { unit } = await mainLock(await names(`${RUN}/jobs`));
  if (unit && (await recordAt(`${unit.path}/unit.json`))?.id !== unit.id) {
    throw new Error(`the unit ${unit.path} on ${unit.host} is not reachable`);
  }
  self.unit = unit ? unit.path : RUN;
}

/** The status of a job, and the reason of its end (4.8). */
async function statusOf(chain) {
  if (isOpen(chain)) return { status: "running", reason: null };
  const end = await recordAt(`${RUN}/jobs/${chain.job}.${chain.highest}.end`);
  const status = ["finished", "failed", "crashed"].includes(end?.status) ? end.status : "crashed";
  return { status, reason: typeof end?.reason === "string" ? end.reason : null };
}

/** A fresh listing of `jobs/`, and between which moments it was made. */
async function timedListing() {
  const started = now();
  return { listing: await list(`${RUN}/jobs`), started, ended: now() };
}

const watches = new Map();
/**
 * Judge another's session, the highest of a chain, which is open (4.4): by proof, else from listings alone. `alive`: a
 * beat was seen; `proved dead` or `expired`: it is closed now, or its holder has moved on; null: look again.
 */
async function judge(chain, lock, { started, ended }) {
  const { job, highest: n } = chain;
  const T = lock ? Math.min(Math.max(lock.timeout, 0.2), 86_400) : Math.max(self.T, 30);
  const watch = at(watches, `${job}.${n}.${lock?.token}`, () => ({ beats: [], looks: 0 }));
  const isIts = (file) => file.n === n && (!lock || file.token === lock.token);
  const beats = chain.beat.filter(isIts).map(({ name }) => name).sort();
  const isSame = `${beats}` === `${watch.beats}`;
  const isAlive = !isSame && beats.length > 0 && watch.beats.length > 0;
  const still = isSame && started - watch.ended <= T / 3; // else we were cut off, not they
  watch.looks = ended - started > T / 6 ? 0 : still ? watch.looks + 1 : 1;
  if (watch.looks === 1) watch.first = ended;
  Object.assign(watch, { beats, ended });
  const isVerdict = beats.length === 0 && chain.taken.some(isIts); // somebody has reached it: anyone may finish it
  const isExpired = isVerdict || (!isAlive && watch.looks >= 3 && started - watch.first >= T);
  const verdict = isDead(lock) ? "proved dead" : isExpired ? "expired" : null;
  if (verdict) await closeOther(job, n, beats, verdict);
  return verdict ?? (isAlive ? "alive" : null);
}

/** Close another's session: take the very beats that were watched, put the end, clear up. */
async function closeOther(job, n, beats, reason) {
  if (self.token) await protect();
  for (const name of beats) {
    const taken = `${RUN}/jobs/${name.replace(".beat.", ".taken.")}`;
    if (!(await rename(`${RUN}/jobs/${name}`, taken)) && !(await holds(taken))) return; // the holder has moved on
  }
  const by = { token: "", found_by: ME, ended: rfc3339() };
  await put(`${RUN}/jobs/${job}.${n}.end`, { job, session: n, status: "crashed", reason, ...by });
  await sweep(job, n);
}

/** Remove beats and taken names of closed sessions up to n. */
async function sweep(job, n) {
  const { beat, taken } = await freshChain(job);
  for (const file of [...beat, ...taken]) if (file.n <= n) await unlink(`${RUN}/jobs/${file.name}`);
}

/** The bytes of complete lines, up to the first NUL (8.2). */
function complete(bytes) {
  const hole = bytes.indexOf(0);
  return bytes.subarray(0, bytes.lastIndexOf(0x0a, hole < 0 ? bytes.length : hole) + 1);
}

/** The fence over session n as another process states it: complete lines, and never less than its end says (4.7). */
async function fenceOf(job, n) {
  const said = (await recordAt(`${RUN}/jobs/${job}.${n}.end`))?.sizes;
  const fence = {};
  const logs = ["scalars", "media", "tables", "artifacts"].map((folder) => `${folder}/${job}.${n}.jsonl`);
  for (const path of [...logs, `system/${job}/${n}.jsonl`]) {
    const isThere = await holds(`${RUN}/${path}`);
    const read = isThere ? complete(await bytesOf(`${RUN}/${path}`)).length : 0;
    const size = Math.max(read, isSizes(said) ? Number(said[path] ?? 0) : 0);
    if (isThere || size) fence[path] = size;
  }
  return fence;
}

/** Lock session n: the own beat first (4.1). False: somebody else was faster. */
async function lockNext(n, continues, fence) {
  const [token, began] = [randomBytes(8).toString("hex"), now()];
  const path = (name) => `${RUN}/jobs/${self.job}.${n}.${name}`;
  await fs.writeFile(path(`${token}.beat.0`), "", { flag: "wx" });
  mine.set(token, { n, token, count: 0n, lastGood: began, looked: began, doubt: Infinity });
  const whose = { job: self.job, session: n, token, opened: rfc3339(), holder: ME };
  const lock = { ...whose, timeout: self.T, continues, fence, ...self.told };
  const won = await put(path("lock"), lock).catch(async (error) => {
    if ((await lockOf(self.job, n))?.token === token) return true; // what stands decides
    await unlink(path(`${token}.beat.0`));
    throw error;
  });
  if (won) adopt(mine.get(token));
  else await unlink(path(`${token}.beat.0`));
  await sweep(self.job, n - 1n).catch(() => {});
  return won;
}

/**
 * Open the next session of a job (4.1) with the timeout T. Watches an open predecessor until it has seen one beat,
 * which is answered with held, or may close it (4.4). Refused: a side job without main, and where none may write (10).
 */
async function open(job, timeout) {
  const T = Number(timeout);
  if (!new RegExp(`^${JOB}$`).test(job)) throw new Error(`${job} is no name of a job`);
  if (!(T >= 0.2 && T <= 86_400)) throw new Error(`T = ${timeout} is no timeout of 0.2 to 86400 seconds`);
  const seen = await names(`${RUN}/jobs`); // nothing is written, no temporary either, before these locks are understood
  await mainLock(seen);
  if (chainOf(seen, job).highest) await lockOf(job, chainOf(seen, job).highest);
  const isNew = !chainOf(seen, "main").highest;
  if (isNew && job !== "main") throw answer("refused", "main has no lock: there is no run to join");
  Object.assign(self, { job, T });
  if (isNew) await fs.mkdir(RUN, { recursive: true }); // the first opening of main makes the run, and nobody else does
  if (isNew) for (const folder of FOLDERS) await makeFolder(`${RUN}/${folder}`);
  while (self.token === null) {
    const moment = await timedListing();
    const chain = chainOf(moment.listing, job);
    self.n = chain.highest + 1n;
    if (!isOpen(chain)) {
      // What main's locks say is said again.
      const { project, run, name, config, unit } = await mainLock(moment.listing);
      self.told = { project: project ?? basename(dirname(RUN)), run: run ?? basename(RUN) };
      if (job === "main") Object.assign(self.told, { name: name ?? null, config: config ?? {}, unit: unit ?? null });
      await lockNext(self.n, false, chain.highest ? await fenceOf(job, chain.highest) : null);
      continue;
    }
    const lock = await lockOf(job, chain.highest);
    const verdict = await judge(chain, lock, moment);
    if (verdict === "alive") throw answer("held", lock?.holder?.host ?? "unknown", lock?.holder?.pid ?? 0);
    if (!verdict) await sleep(1000 * Math.min(1, Math.max(0.02, (lock?.timeout ?? T) / 30)));
  }
  beatAlone();
  if (job === "main") await findUnit(); // and a new main process hands over again (5.8)
  if (job === "main" && (await holds(`${self.unit}/queue/FINISHED`))) await discard(`${self.unit}/queue/FINISHED`);
  return ["opened", self.n];
}

// ---- The own session: it beats, and goes on where a verdict about it was false ----
// self.state: open; lapsed, closed by others; gone, another folder or none; fenced; closing

/** For commands, and for going on between them. Beats are beside: they have to come while a command takes its time. */
const alone = serial();
const beats = serial();

const adopt = (opened) => Object.assign(self, opened, { state: "open", acknowledged: 0 });

const logPath = () => `scalars/${self.job}.${self.n}.jsonl`;

/** Beat every T/6. A program that ends without closing must not beat on: nothing waits for this. */
async function beatAlone() {
  while (self.state !== "fenced" && self.state !== "closing") {
    await sleep((1000 * self.T) / 6, null, { ref: false });
    await beat().catch(() => {});
    if (self.state === "lapsed") alone(follow).catch(() => {}); // the next beat tries again
  }
}

/** Beat once (4.2): one rename. Whether protected work may begin after it. */
function beat() {
  return beats(async () => {
    if (self.state !== "open" && self.state !== "gone") return false;
    const started = now();
    const name = (count) => `${RUN}/jobs/${self.job}.${self.n}.${self.token}.beat.${count}`;
    try {
      await fs.rename(name(self.count), name(self.count + 1n));
    } catch {
      self.doubt = Math.min(self.doubt, started);
      const before = self.count;
      // A stale listing may have hidden that an earlier one went through: it counts from the first in doubt.
      if ((await look()) && self.count > before) Object.assign(self, { lastGood: self.doubt, doubt: Infinity });
      return isProtected();
    }
    Object.assign(self, { count: self.count + 1n, lastGood: started, doubt: Infinity });
    if (self.state === "gone" || started - self.looked >= self.T) await look(); // an end that was put by hand
    return isProtected();
  });
}

/** By a fresh listing: whether the beat stands, with the `count` that it has; else `state` says why not. */
async function look() {
  self.looked = now();
  const chain = await freshChain(self.job).catch(instead(NO_FILE, emptyChain(self.job)));
  const isIts = ({ n, token }) => n === self.n && token === self.token;
  const beat = chain.beat.find(isIts);
  if (beat && chain.highest === self.n && isOpen(chain)) {
    Object.assign(self, { state: "open", count: beat.count }); // it is this run, of a mount that came back too
    return true;
  }
  const lock = chain.locks.includes(self.n) ? await lockOf(self.job, self.n) : { token: null };
  if (lock && lock.token !== self.token) self.state = "gone"; // not the folder that was opened: nothing is written
  if (lock?.token !== self.token) return false;
  const isClosed = chain.ends.has(self.n) || chain.taken.some(isIts) || now() - self.lastGood >= self.T;
  if (chain.highest === self.n && isClosed) self.state = "lapsed";
  if (chain.highest === self.n) return false;
  const later = await lockOf(self.job, chain.highest).catch((error) => error.fields ?? Promise.reject(error));
  if (mine.has(later?.token)) adopt(mine.get(later.token)); // opened here, although an error was reported
  else if (later) {
    self.state = "fenced";
    console.error(`${RUN}: session ${chain.highest} has taken ${self.job} over: nothing more is written here`);
  }
  return false;
}

/** Look where this session stands, and follow from it what must: go on, with what it held (4.6). */
async function follow() {
  if (self.state !== "fenced") await beats(look);
  if (self.state === "lapsed") await goOn();
  if (self.state === "fenced") throw answer("fenced");
  if (self.state === "gone") throw new Error(`${RUN} is not there any more`);
  if (self.finished && self.finished !== self.n) await finish().catch(() => {}); // else the next command tries again
  if (self.claim && self.claim.session !== self.n) await adoptClaim().catch(() => {});
}

/** Closed while alive, and still the highest: put a missing end, open the next session with what was acknowledged. */
function goOn() {
  return beats(async () => {
    await put(`${RUN}/jobs/${self.job}.${self.n}.end`, endOf("crashed", "expired"));
    const fence = self.acknowledged ? { [logPath()]: self.acknowledged } : {};
    if (!(await lockNext(self.n + 1n, true, fence))) await look(); // somebody else was faster
  });
}

/** Whether protected work may begin now (4.5). */
const isProtected = () => self.state === "open" && now() - self.lastGood < (self.T * 2) / 3;

/** Wait until protected work may begin. Nothing may come between this and that. */
async function protect() {
  for (const began = now(); !isProtected() && !(await beat()); ) {
    if (self.state === "lapsed") await goOn().catch(() => {});
    if (isProtected()) return;
    if (self.state === "fenced") throw answer("fenced");
    if (self.state === "gone") throw new Error(`${RUN} is not there any more`);
    if (now() - began > self.T) throw new Error(`${RUN}: no beat was possible for ${self.T} s`);
    await sleep((1000 * self.T) / 12);
  }
}

/** Log pairs of tag and value at a step (6.8); durable on return. `entry`: the key of their outcome (5.9). */
async function log(step, time, values, entry) {
  if (toStep(step) === null) throw new Error(`the step ${step} is no whole number of 64 bits`);
  if (!Number.isFinite(time)) throw new Error(`the time ${time} is no number`);
  const pairs = new Map(values);
  for (const [tag, value] of pairs) {
    const isTag = tag !== "" && Buffer.byteLength(tag) <= 512 && !CONTROL.test(tag) && !RESERVED.includes(tag);
    if (!isTag || toValue(value) === undefined) throw new Error(`${stringify(tag)}: ${value} is no scalar`);
  }
  const fields = [["step", step], ["time", time], ...(entry ? [["entry", entry]] : []), ...pairs];
  const line = Buffer.from(`{${fields.map(([key, value]) => `${stringify(key)}:${stringify(value)}`).join(",")}}\n`);
  await protect();
  const path = `${RUN}/${logPath()}`;
  await using(path, "a", async (file) => {
    const { size } = await file.stat();
    if (size > self.acknowledged) await file.truncate(self.acknowledged); // half a line of a write that failed
    await file.appendFile(line);
    await file.datasync();
  }); // opened afresh for each line: what stands there may be another file by now
  if (self.acknowledged === 0) await sync(dirname(path));
  self.acknowledged += line.length;
  if (self.step === null || step > self.step) self.step = step;
  return ["logged"];
}

function endOf(status, reason) {
  const sizes = self.acknowledged ? { [logPath()]: self.acknowledged } : {};
  const { job, n, token, step } = self;
  return { job, session: n, token, status, reason, ended: rfc3339(), step, sizes };
}

/** Give back claims, put the end, remove the beat (4.3). Where another end stands, the next session gets it (4.6). */
async function close(status, reason = null) {
  if (!["finished", "failed"].includes(status)) throw new Error(`${status} is no status`);
  await giveBack().catch((error) => {
    if (self.state === "fenced") throw error;
    console.error(`${RUN}: a claim is not given back, and counts as lost: ${error.message}`);
  });
  for (let tries = 1; self.state !== "closing"; tries++) {
    await protect();
    await beats(async () => {
      self.state = "closing"; // the next session may be open before this is done: no protected work from here on
      const path = `${RUN}/jobs/${self.job}.${self.n}.end`;
      const problem = await put(path, endOf(status, reason)).then(() => null, (error) => error);
      const end = await recordAt(path).catch(() => null);
      if (end?.token === self.token && end.status === status) return; // what stands decides
      self.state = "open";
      await look().catch(() => {});
      if (problem && tries === 30) throw problem;
      await sleep((1000 * self.T) / 12);
    });
  }
  await sweep(self.job, self.n).catch(() => {});
  return ["closed"];
}

// ---- Places and names of the queue (5), below the unit ----

const claimPath = ({ job, session, k, entry }) => `${self.unit}/claimed/${job}.${session}/${k}/${entry}`;
const metaPath = (entry) => `${self.unit}/meta/${entry}.json`;
const outcomePath = ({ entry, k }) => `${RUN}/evals/${entry}.${k}.json`;
const entriesIn = async (folder) => (await names(folder)).filter(isEntry);
/** The entries that have a meta. */
const metasIn = async () => (await matches(`${self.unit}/meta`, META)).map(([, entry]) => entry).filter(isEntry);

/** All names of outcomes: { entry, k }. */
async function outcomesIn() {
  const found = await matches(`${RUN}/evals`, OUTCOME);
  return found.map(([, entry, k]) => ({ entry, k: BigInt(k) })).filter(({ entry }) => isEntry(entry));
}

/** What is claimed: { job, session, k, entry }. */
async function claimsIn() {
  const claims = [];
  for (const [folder, job, session] of await matches(`${self.unit}/claimed`, CLAIM_FOLDER)) {
    for (const [k] of await matches(`${self.unit}/claimed/${folder}`, ATTEMPT)) {
      const entries = await entriesIn(`${self.unit}/claimed/${folder}/${k}`);
      for (const entry of entries) claims.push({ job, session: BigInt(session), k: BigInt(k), entry });
    }
  }
  return claims;
}

/** What waits: { entry, k, path }. */
async function waitingIn() {
  const waiting = [];
  const folders = (await matches(`${self.unit}/retry`, ATTEMPT)).map(([k]) => [`${self.unit}/retry/${k}`, BigInt(k)]);
  for (const [folder, k] of [[`${self.unit}/queue`, 1n], ...folders]) {
    for (const entry of await entriesIn(folder)) waiting.push({ entry, k, path: `${folder}/${entry}` });
  }
  return waiting;
}

/** An outcome as it stands; null: not there yet. One that nobody can understand is about nobody's claim (5.3). */
async function outcomeOf(attempt) {
  const outcome = await recordAt(outcomePath(attempt));
  if (outcome === null) return null;
  const isState = ["done", "failed", "lost", "skipped", "returned"].includes(outcome?.state);
  const isClaims = isState && typeof outcome.job === "string" && isWhole(outcome.session);
  return isClaims && isObject(outcome.scores ?? {}) ? outcome : { state: null, job: "", session: 0 };
}

/** Whether an outcome is about this claim, whoever put it (5.2). */
const isAbout = (outcome, claim) => outcome.job === claim.job && outcome.session == claim.session;

/** Whether FINISHED stands and is obeyed (5.8). */
async function isFinished(main) {
  const path = `${self.unit}/queue/FINISHED`;
  if (!(await holds(path))) return false;
  const named = decode(withoutMark(await bytesOf(path)))?.main_session;
  if (main.highest === 0n) return true;
  return isWhole(named) && named > 0 ? named == main.highest : (await statusOf(main)).status === "finished";
}

// ---- A trainer's hand-over (5.1) ----

let lastOrder = 0;
/** In ns, and rising with every hand-over of this process: breaks ties of a step. */
const nextOrder = () => BigInt((lastOrder = Math.max(Date.now(), lastOrder + 1))) * 1_000_000n;

/** Hand a file or folder over under `name` or its next use; durable on return. */
async function enqueue(source, name, step) {
  if (!isEntry(name)) throw new Error(`${stringify(name)} is no name of an entry`);
  const main_session = (await freshChain("main")).highest;
  const staged = hidden(`${self.unit}/queue`);
  try {
    await clone(source, staged, true);
    const by = { step, main_session, source, handed_over: rfc3339(), order: nextOrder() };
    const facts = { ...by, ...(await fingerprint(staged)) };
    for (let entry = name; ; entry = nextUse(entry, await metasIn())) {
      const target = `${self.unit}/queue/${entry}`;
      if ((await holds(target)) || !(await put(metaPath(entry), { entry, ...facts }))) continue;
      if (await publish(staged, target)) return ["enqueued", entry];
      await unlink(metaPath(entry)); // or that writer's file would be taken for a changed one
    }
  } finally {
    await remove(staged);
  }
}

/** Show what is staged under its name; false where a plain writer's file has that name by now. */
async function publish(staged, target) {
  await protect();
  const linked = await link(staged, target).catch(instead(NO_LINKS, null)); // of folders there are no links
  if (linked === null) return !(await holds(target)) && move(staged, target);
  await sync(dirname(target));
  return linked;
}

/** Say that nothing more is handed over (5.8). */
async function finish() {
  if (self.job !== "main") throw new Error("main alone says that it hands over no more");
  await protect();
  const written = hidden(`${self.unit}/queue`);
  await put(written, { main_session: self.n, token: self.token, written: rfc3339() });
  self.finished = self.n;
  await move(written, `${self.unit}/queue/FINISHED`);
  return ["finished"];
}

// ---- An evaluator: claims (5.2) ----

const used = new Set(); // names that a session has claimed from queue/
let isEvaluator = false;
let mainGone = null; // since when, and which session

/**
 * Look once for something to do: taken, none, or over. Closes sessions that are dead or expired, for which it has to
 * be called at least every T/3 of theirs, and recovers claims.
 */
async function take() {
  if (self.claim) throw new Error(`${self.claim.entry} is claimed and has no outcome yet`);
  if (!isEvaluator) await prune();
  isEvaluator = true;
  for (const trash of [`${RUN}/trash`, `${self.unit}/trash`]) {
    for (const name of await names(trash)) await remove(`${trash}/${name}`).catch(() => {});
  }
  let seen = await recover();
  for (const waiting of await inOrder()) {
    if (!(await claimed(waiting).catch(instead(NO_FILE, false)))) continue;
    return ["taken", self.claim.entry, self.claim.k, claimPath(self.claim)];
  }
  if (!(await isOver(seen))) return ["none"];
  seen = await recover(); // once more: an entry on its way from a claim to retry/ is in neither listing
  return [(await waitingIn()).length === 0 && (await isOver(seen)) ? "over" : "none"];
}

/** By step, main session, hand-over and name; what failed or was lost before comes last: that may happen again. */
async function inOrder() {
  const metas = new Set(await metasIn());
  const waiting = [];
  for (const { entry, k, path } of await waitingIn()) {
    const { step, main_session, order } = factsOf(entry, metas.has(entry) ? await recordAt(metaPath(entry)) : null);
    const isLast = k > 1n && (await outcomeOf({ entry, k: k - 1n }))?.state !== "returned";
    const key = [isLast, step === null, step ?? 0, main_session ?? 0, order ?? 0, bytewise(entry)];
    waiting.push({ entry, k, path, key });
  }
  return waiting.sort((a, b) => compare(a.key, b.key));
}

/** The meta of an entry; null for a plain writer's. */
const metaOf = async (entry) => ((await holds(metaPath(entry))) ? recordAt(metaPath(entry)) : null);

/** Step, main session and order of an entry as its meta says, a step that it lacks as the name says (5.9). */
function factsOf(entry, meta) {
  const facts = { step: toStep(meta?.step) ?? stepOfName(entry), main_session: null };
  for (const key of ["main_session", "order"]) if (isWhole(meta?.[key])) facts[key] = meta[key];
  return facts;
}

/** Claim what waits, check it, and keep it as the claim; false where another was faster, or it has changed. */
async function claimed({ entry, k, path }) {
  await protect();
  const { job, n } = self;
  let claim = { job, session: n, k, entry, since: now(), started: rfc3339() };
  const again = k === 1n && used.has(`${n} ${entry}`);
  if (again) claim.entry = await nextName(entry, path); // two under one path could not be told apart
  if (k === 1n) used.add(`${n} ${entry}`);
  if (!(await move(path, claimPath(claim)))) return false;
  const standing = k === 1n && !again ? await standingOf(claim) : null;
  if (standing && !isAbout(standing, claim)) claim = await renamed(claim); // an earlier file has this name
  if (!claim) return false;
  const meta = await metaOf(claim.entry);
  claim.facts = factsOf(claim.entry, meta);
  claim.files = meta ?? (await fingerprint(claimPath(claim)));
  // What neither meta nor name tells, the claimant alone states (5.9).
  const main = (await freshChain("main")).highest;
  claim.facts.step ??= await lastStepOf(`${RUN}/scalars/main.${main}.jsonl`);
  if (!meta) Object.assign(claim.facts, { main_session: main || null, order: nextOrder() });
  if (await isChanged(claimPath(claim), claim.files)) await settle(claim, "failed", { reason: "changed" });
  else self.claim = claim;
  return self.claim !== null;
}

/** The last step that a log says, or null. */
async function lastStepOf(path) {
  const lines = complete((await holds(path)) ? await bytesOf(path) : NOTHING).toString().trimEnd().split("\n");
  return toStep(decode(Buffer.from(lines.at(-1)))?.step);
}

/** Reserve the next use of a name for what stands at `path`; its meta's facts go along where they are about that. */
async function nextName(name, path) {
  const meta = await metaOf(name);
  const isIts = meta && !(await isChanged(path, meta));
  const fresh = { step: stepOfName(name), source: name, handed_over: rfc3339(), order: nextOrder() };
  const facts = { ...(isIts ? meta : fresh), ...(await fingerprint(path)) };
  for (let entry = name; ; ) {
    entry = nextUse(entry, await metasIn());
    if (await put(metaPath(entry), { ...facts, entry })) return entry;
  }
}

/** The claim under the next use of its name; null where it is gone. */
async function renamed(claim) {
  const next = { ...claim, entry: await nextName(claim.entry, claimPath(claim)) };
  return (await move(claimPath(claim), claimPath(next))) ? next : null;
}

// ---- An evaluator: outcomes (5.3) ----

/** The outcome of a claim's attempt; waits for one that is being written where links are refused, T at most. */
async function standingOf(claim) {
  for (let i = 0; i <= 20 && (await holds(outcomePath(claim))); i++) {
    const standing = await outcomeOf(claim);
    if (standing) return standing;
    await sleep((1000 * self.T) / 20);
  }
  return null;
}

/** Put the outcome of a claim unless one stands; answers the one that stands. */
async function putOutcome(claim, state, fields) {
  const { entry, k, job, session } = claim;
  const token = job === self.job && session === self.n ? self.token : "";
  const whose = { job, session, token, by: ME, ended: rfc3339() };
  const outcome = { entry, attempt: k, state, reason: null, ...whose, ...fields };
  const path = outcomePath(claim);
  for (;;) {
    await protect();
    if (await put(path, outcome)) return outcome;
    const standing = await standingOf(claim);
    if (standing) return standing;
    await protect();
    await rename(path, hidden(dirname(path))); // half a record, for T (11)
  }
}

/** Put an outcome, and make the move of the one that stands: { claim, standing, place }; null: the claim is gone. */
async function settle(claim, state, fields) {
  const facts = claim.facts ?? factsOf(claim.entry, await metaOf(claim.entry));
  while (claim) {
    const standing = await putOutcome(claim, state, { ...facts, ...fields });
    if (isAbout(standing, claim)) return { claim, standing, place: await moveAs(claim, standing.state) };
    claim = await renamed(claim); // an earlier file has this name
  }
  return null;
}

/** Move a claim as its standing outcome says; the place. */
async function moveAs(claim, state) {
  const { entry, k } = claim;
  const path = claimPath(claim);
  if (state === "done" && (await ruleOf())) return (await keep(claim), "best");
  if (state === "done" || state === "skipped") return (await discard(path), "trash");
  let count = 0;
  for (let i = 1n; i <= k; i++) if ((await outcomeOf({ entry, k: i }))?.state === state) count++;
  const isGivenUp = (state === "failed" && count >= 3) || (state === "lost" && count >= 10);
  await move(path, isGivenUp ? `${self.unit}/failed/${entry}` : `${self.unit}/retry/${k + 1n}/${entry}`);
  return isGivenUp ? "failed" : "retry";
}

/** To best/: by a rename, or a copy where the trainer may still write over it, or the unit stands elsewhere (5.6). */
async function keep(claim) {
  const path = claimPath(claim);
  const kept = `${RUN}/best/${claim.entry}`;
  const here = await holds(path);
  let isShared = self.unit !== RUN;
  if (here) for await (const { stat } of walk(path)) isShared ||= stat.isFile() && stat.nlink > 1n;
  if (!isShared) return move(path, kept);
  const best = await entriesIn(`${RUN}/best`);
  const rule = await ruleOf();
  const isSurplus = rule.keep && (await ranked(rule, [...best, claim.entry])).indexOf(claim.entry) >= rule.keep;
  const copy = hidden(`${RUN}/best`);
  try {
    await makeFolder(dirname(copy));
    if (here && !best.includes(claim.entry) && !isSurplus) await clone(path, copy, false).then(() => move(copy, kept));
  } finally {
    await remove(copy);
  }
  return discard(path);
}

/** End the claim: `done` with { scores }, `failed` or `skipped` with { reason }, `returned`; says where it went. */
async function outcome(state, fields = {}) {
  if (!["done", "failed", "skipped", "returned"].includes(state)) throw new Error(`${state} is no outcome`);
  if (!self.claim) throw new Error("no claim is held: none was taken, or it was lost while this one counted as dead");
  const { claim } = self;
  const path = claimPath(claim);
  const isThere = state === "done" && (await holds(path)); // else a recoverer has moved it
  if (isThere && (await isChanged(path, claim.files))) [state, fields] = ["failed", { reason: "changed" }];
  const times = { started: claim.started, time: Date.now() / 1000, duration_s: now() - claim.since };
  const settled = await settle(claim, state, { ...times, ...fields });
  self.claim = null;
  if (!settled) return ["moved", "retry"]; // recovered by another meanwhile: it waits again, or has gone on
  const { standing, place } = settled;
  const isOurs = standing.state === "done" && standing.started === claim.started;
  if (isOurs && toStep(standing.step) !== null && Object.keys(standing.scores).length) {
    const key = `${settled.claim.entry}.${settled.claim.k}`; // 5.9: after it stands
    await log(standing.step, standing.time, Object.entries(standing.scores), key);
  }
  if (standing.state === "done") await prune();
  return ["moved", place];
}

/** Take the claim of the session that this one continues over: returned under k, then claimed as k + 1 (5.4). */
async function adoptClaim() {
  const { claim } = self;
  const standing = await putOutcome(claim, "returned", { ...claim.facts, reason: "adopted" });
  const next = { ...claim, session: self.n, k: claim.k + 1n };
  const isIts = standing.state === "returned" && isAbout(standing, claim);
  self.claim = isIts && (await move(claimPath(claim), claimPath(next))) ? next : null;
}

/** Before the end: nothing stays claimed, nor superfluous. */
async function giveBack() {
  if (isEvaluator) await findUnit();
  if (self.claim) await outcome("returned");
  if (isEvaluator) await prune();
}

// ---- An evaluator: recovery (5.5), and the end (5.8) ----

/** Close what is dead or expired, bring home the claims of closed sessions. What is left: { main, held, coming }. */
async function recover() {
  const claims = await claimsIn();
  const moment = await timedListing();
  let coming = false; // somebody hands over
  for (const chain of chainsOf(moment.listing).values()) {
    const { job, highest: n } = chain;
    if (!isOpen(chain) || job === self.job) continue;
    const lock = await lockOf(job, n).catch((error) => error);
    if (lock instanceof Error) continue; // of a newer protocol: not ours to close
    const handsOver = job !== "main" && lock?.hands_over === true;
    if (!handsOver && job !== "main" && !claims.some((claim) => claim.job === job && claim.session === n)) continue;
    const verdict = await judge(chain, lock, moment);
    coming ||= handsOver && (!verdict || verdict === "alive");
  }
  const chains = chainsOf(await list(`${RUN}/jobs`));
  let held = false; // others hold a claim
  for (const claim of claims) {
    const { highest, ends } = chains.get(claim.job) ?? emptyChain(claim.job);
    const isOwn = claim.job === self.job && claim.session === self.n; // an error left it behind
    if (isOwn) await settle(claim, "returned", {});
    else if (ends.has(claim.session) || claim.session < highest) await settle(claim, "lost", {});
    else held = true;
  }
  return { main: chains.get("main") ?? emptyChain("main"), held, coming };
}

/** Whether this evaluator may end, where nothing waits. */
async function isOver({ main, held, coming }) {
  const { status } = await statusOf(main);
  const isGone = main.highest > 0n && (status === "failed" || status === "crashed");
  if (!isGone || mainGone?.n !== main.highest) mainGone = isGone ? { n: main.highest, since: now() } : null;
  if (coming) return false;
  if (isGone && now() - mainGone.since >= Math.max(600, 4 * self.T)) return true; // it lingered
  return !held && ((main.highest > 0n && status === "finished") || isFinished(main));
}

// ---- An evaluator: what is kept (5.7) ----

const isRule = ({ mode, tag, keep }) =>
  ["max", "min"].includes(mode) && typeof tag === "string" && isWhole(keep) && keep >= 0;

async function ruleOf() {
  if (!(await holds(`${RUN}/best.json`))) return null;
  const { mode, tag, keep = 1 } = (await recordAt(`${RUN}/best.json`)) ?? {};
  if (!isRule({ mode, tag, keep })) throw new Error("best.json cannot be read");
  return { mode, tag, keep: Number(keep) };
}

/** Put the rule of the run; refused where it has another. */
async function best(mode, tag, keep) {
  if (!isRule({ mode, tag, keep })) throw new Error(`${mode} ${tag} ${keep} is no rule`);
  await protect();
  if (!(await ruleOf())) await put(`${RUN}/best.json`, { mode, tag, keep });
  const rule = await ruleOf();
  if (rule.mode === mode && rule.tag === tag && rule.keep === keep) return ["ruled"];
  throw answer("refused", `best.json says ${rule.mode} ${rule.tag}, keep ${rule.keep}`);
}

/** Those of some entries that have the rule's score, best first: NaN last, then the earlier step, then the name. */
async function ranked({ mode, tag }, entries) {
  const scored = [];
  for (const attempt of (await outcomesIn()).filter(({ entry }) => entries.includes(entry))) {
    const { state, scores, step: said } = (await outcomeOf(attempt)) ?? {};
    const score = state === "done" && Object.hasOwn(scores ?? {}, tag) ? toValue(scores[tag]) : undefined;
    const step = toStep(said);
    const order = Number.isNaN(score) ? [true, 0] : [false, mode === "max" ? -score : score];
    const key = [...order, step === null, step ?? 0, bytewise(attempt.entry)];
    if (score !== undefined) scored.push({ entry: attempt.entry, key });
  }
  return scored.sort((a, b) => compare(a.key, b.key)).map(({ entry }) => entry);
}

/** Delete what `keep` better ones beside it make superfluous; what has not the rule's score is not ranked. */
async function prune() {
  const rule = await ruleOf();
  if (!rule?.keep) return;
  const surplus = (await ranked(rule, await entriesIn(`${RUN}/best`))).slice(rule.keep);
  for (const entry of surplus) await discard(`${RUN}/best/${entry}`);
}

// ---- Reading (8). Nothing is written ----

/** What the run folder says, as docs/clients.md has it. */
async function read() {
  for (let looks = 0, listing = await names(`${RUN}/jobs`); ; looks++) {
    const found = await readOnce(listing);
    const again = await names(`${RUN}/jobs`);
    const isNew = again.some((name) => name.endsWith(".lock") && !listing.includes(name));
    if (!isNew || looks === 8) return found; // the fence of a new lock may void what was read (8.4)
    listing = again;
  }
}

async function readOnce(listing) {
  const locks = new Map();
  const jobs = {};
  for (const chain of chainsOf(listing).values()) {
    if (chain.highest > 0n) jobs[chain.job] = { session: chain.highest, ...(await statusOf(chain)) };
    for (const n of chain.locks) locks.set(`${chain.job}.${n}`, await lockOf(chain.job, n));
  }
  const { points, skipped } = await readLogs(locks);
  const outcomes = new Map();
  for (const attempt of await outcomesIn()) {
    outcomes.set(`${attempt.entry}.${attempt.k}`, { ...attempt, outcome: await outcomeOf(attempt) });
  }
  const counted = countingPoints(points, outcomes, locks);
  const isReachable = await findUnit().then(() => true, () => false); // of a unit that is not nothing is known
  const finished = isReachable ? await isFinished(chainOf(listing, "main")) : null;
  const entries = isReachable ? await readEntries(outcomes) : null;
  return { writable: self.writable, jobs, points: counted, skipped, entries, finished };
}

/** All points that fences let count, in order: sessions, a session's log, then its spill pieces, then lines. */
async function readLogs(locks) {
  const found = await matches(`${RUN}/scalars`, LOG);
  const logs = found.map(([name, job, n, piece = -1]) => ({ name, job, n: BigInt(n), piece: BigInt(piece) }));
  const points = [];
  const skipped = {};
  for (const { name, job, n, piece } of logs.sort((a, b) => compare([a.job, a.n, a.piece], [b.job, b.n, b.piece]))) {
    const fence = piece < 0n ? locks.get(`${job}.${n + 1n}`)?.fence : null;
    const path = `scalars/${name}`;
    let bytes = await bytesOf(`${RUN}/${path}`);
    if (fence) bytes = bytes.subarray(0, Number(Object.hasOwn(fence, path) ? fence[path] : 0));
    const lines = withoutMark(complete(bytes));
    for (let start = 0, end, number = 1; start < lines.length; start = end + 1, number++) {
      end = lines.indexOf(0x0a, start);
      const line = readLine(lines.subarray(start, end));
      if (line.isFaulty) (skipped[path] ??= []).push(number);
      for (const point of line.points) points.push({ ...point, job, n });
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
    return { points: [], isFaulty: /[^ \t\r]/.test(bytes.toString("latin1")) };
  }
  const values = Object.entries(line).filter(([tag, value]) => !RESERVED.includes(tag) && value !== null);
  const all = values.map(([tag, value]) => ({ tag, step, time: timeOf(line), value: toValue(value), entry }));
  const points = all.filter(({ value }) => value !== undefined);
  return { points, isFaulty: points.length < all.length };
}

/** Which points count (8.3): by tag, [step, value] in the order of steps. */
function countingPoints(logged, outcomes, locks) {
  const mains = logged.filter(({ job, entry }) => job === "main" && entry === null);
  const sides = logged.filter(({ job, entry }) => job !== "main" && entry === null);
  const scored = logged.filter(({ entry }) => entry !== null && outcomes.has(entry));
  const lined = new Set(scored.map(({ entry }) => entry));
  for (const [entry, { outcome }] of outcomes) {
    const step = toStep(outcome?.step);
    if (outcome?.state !== "done" || step === null || lined.has(entry)) continue;
    const scores = Object.entries(outcome.scores ?? {}).map(([tag, score]) => ({ tag, value: toValue(score) }));
    const points = scores.filter(({ value }) => value !== undefined);
    scored.push(...points.map((point) => ({ ...point, step, time: timeOf(outcome), entry })));
  }
  const groupOf = (n) => {
    while (n > 1n && locks.get(`main.${n}`)?.continues === true) n--; // sessions joined by `continues` count as one
    return n;
  };
  const firsts = new Map(); // of each tag, by groups of main: the lowest step
  for (const point of mains) {
    point.group = groupOf(point.n);
    const first = at(firsts, point.tag, () => new Map());
    if (!(first.get(point.group) <= point.step)) first.set(point.group, point.step);
  }
  const isVoid = ({ tag, step, group }) =>
    [...firsts.get(tag)].some(([later, first]) => later > group && first <= step);
  const fates = new Map(); // of each group of main, by the steps at which it logged: whether a point there is void
  for (const point of mains) {
    const fate = at(fates, point.group, () => new Map());
    fate.set(point.step, fate.get(point.step) || isVoid(point));
  }
  for (const [group, fate] of fates) fates.set(group, [...fate].sort(compare));
  for (const point of scored) {
    const { outcome, k } = outcomes.get(point.entry);
    const main = isWhole(outcome?.main_session) ? groupOf(BigInt(outcome.main_session)) : -1n;
    point.rank = [main, isWhole(outcome?.order) ? BigInt(outcome.order) : 0n, k];
    // It shares the fate of what its main session had logged last by then.
    point.isVoid = fates.get(main)?.findLast(([step]) => step <= point.step)?.[1] ?? false;
  }
  const standing = scored.filter((point) => !point.isVoid).sort((a, b) => compare(a.rank, b.rank));
  const result = Object.create(null); // a tag may be called __proto__
  for (const [tag, series] of groupBy([...mains, ...sides, ...standing], ({ tag }) => tag)) {
    const layers = groupBy(series, ({ job, rank }) => (rank ? "outcomes" : `job ${job}`));
    const main = layers.get("job main") ?? [];
    layers.delete("job main");
    const stands = new Map(); // of each layer the last point at a step; of side jobs, then outcomes, the later time
    for (const layer of layers.values()) {
      for (const [step, point] of new Map(layer.map((point) => [point.step, point]))) {
        if (!(stands.get(step)?.time > point.time)) stands.set(step, point);
      }
    }
    const from = [...stands.keys()].reduce((a, step) => (a === null || step < a ? step : a), null);
    for (const point of main) if (!isVoid(point) && (from === null || point.step < from)) stands.set(point.step, point);
    if (stands.size) result[tag] = [...stands].map(([step, { value }]) => [step, value]).sort(compare);
  }
  return result;
}

/** What stands in a place, has a meta or has an outcome; of several places the last one that is asked here counts. */
async function readEntries(outcomes) {
  const entries = Object.create(null);
  const found = (entry) => (entries[entry] ??= { place: null, outcomes: {} });
  const stand = (place, listed) => listed.forEach((entry) => (found(entry).place = place));
  stand("best", await entriesIn(`${RUN}/best`));
  stand("failed", await entriesIn(`${self.unit}/failed`));
  for (const { entry, k } of await waitingIn()) stand(k === 1n ? "queue" : "retry", [entry]);
  stand("claimed", (await claimsIn()).map(({ entry }) => entry));
  for (const entry of await metasIn()) found(entry);
  for (const { entry, k, outcome } of outcomes.values()) {
    const { outcomes: states } = found(entry);
    if (outcome?.state) states[k] = outcome.state;
  }
  return entries;
}

// ---- Commands (docs/clients.md) ----

/** Pairs of tag and value. */
function pairsOf(fields) {
  if (fields.length % 2) throw new Error(`${fields.at(-1)} has no value`);
  const valueOf = (text) => (Object.hasOwn(WORDS, text) ? WORDS[text] : parse(text));
  return fields.flatMap((tag, i) => (i % 2 ? [] : [[tag, valueOf(fields[i + 1])]]));
}

const commands = {
  beat: async () => ((await beat()) ? ["beaten", self.count] : ["error", "no beat was possible"]),
  log: (step, time, ...fields) => log(BigInt(step), Number(time), pairsOf(fields)),
  enqueue: (path, name, step) => enqueue(resolve(path), name, BigInt(step)),
  finish,
  best: (mode, tag, keep) => best(mode, tag, Number(keep)),
  take,
  outcome: (state, ...fields) =>
    outcome(state, state === "done" ? { scores: Object.fromEntries(pairsOf(fields)) } : { reason: fields[0] ?? null }),
  close,
};

async function obey(command, ...fields) {
  try {
    if (command !== "open" && !Object.hasOwn(commands, command)) throw new Error(`no such command: ${command}`);
    if ((command === "open") !== (self.token === null)) throw new Error(`${self.token ? "a" : "no"} session is open`);
    if (command === "open") return await open(...fields);
    await follow(); // whatever is asked for, nothing is written to a run that a newer session has
    if (["enqueue", "finish", "take", "outcome"].includes(command)) await findUnit();
    return await commands[command](...fields);
  } catch (error) {
    if (self.state === "fenced") return ["fenced"];
    return error.fields ?? ["error", error.message];
  }
}

async function drive() {
  process.stdout.on("error", () => {}); // nobody listens any more: the input ends as well
  let rest = "";
  for await (const chunk of process.stdin.setEncoding("utf8")) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop(); // half a command is none
    for (const [command, ...fields] of lines.map((line) => line.split("\t"))) {
      const answer = await alone(() => obey(command, ...fields));
      process.stdout.write(`${answer.map((field) => `${field}`.replace(/[\t\r\n]+/g, " ") || "-").join("\t")}\n`);
      if (command === "close" && ["closed", "fenced"].includes(answer[0])) return;
    }
  }
  if (self.token) await alone(() => obey("close", "failed", "input ended"));
}

if (process.argv[2] === "read" && process.argv[3]) process.stdout.write(`${stringify(await read())}\n`);
else if (process.argv[2] === "drive" && process.argv[3]) await drive().then(() => process.stdin.destroy());
else {
  console.error("usage: node fsrun.mjs read|drive RUN");
  process.exitCode = 2;
}
