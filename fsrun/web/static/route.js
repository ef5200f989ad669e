// Addresses behind the #: #/  #/run/<project>/<run>[/tab]  #/compare?runs=a,b

/** What an address says: `{page, key, tab, params}`; `params` is a URLSearchParams. */
export function parse(hash) {
  const [path, query = ""] = split(hash.replace(/^#/, ""));
  const params = new URLSearchParams(query);
  const parts = path.split("/").filter(Boolean).map(decode);
  if (parts[0] === "run" && parts.length >= 3) {
    return { page: "run", key: `${parts[1]}/${parts[2]}`, tab: parts[3] ?? "", params };
  }
  if (parts[0] === "compare") return { page: "compare", key: "", tab: parts[1] ?? "", params };
  return { page: parts.length === 0 ? "runs" : "nowhere", key: "", tab: "", params };
}

function split(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of all runs. */
export function toRuns(params = {}) {
  return `#/${query(params)}`;
}

/** The address of a run, `project/run`, and of one of its tabs. */
export function toRun(key, tab = "", params = {}) {
  const at = key.indexOf("/");
  const path = [key.slice(0, at), key.slice(at + 1), tab].filter(Boolean).map(encodeURIComponent).join("/");
  return `#/run/${path}${query(params)}`;
}

/** The address where runs are compared. */
export function toCompare(keys, tab = "", params = {}) {
  const runs = keys.map((key) =>
    key
      .split("/")
      .map((part) => encodeURIComponent(encodeURIComponent(part)))
      .join("/"),
  );
  const rest = query(params).slice(1);
  return `#/compare${tab && `/${encodeURIComponent(tab)}`}?runs=${runs.join(",")}${rest && `&${rest}`}`;
}

/** The runs that an address compares. */
export function comparedRuns(params) {
  return [...new Set((params.get("runs") ?? "").split(",").filter(Boolean).map(decode))];
}

function query(params) {
  const pairs = params instanceof URLSearchParams ? params : new URLSearchParams(given(params));
  const text = pairs.toString();
  return text && `?${text}`;
}

function given(params) {
  return Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
}

/** Go to an address. */
export function go(hash) {
  if (location.hash === hash) return;
  location.hash = hash;
}

/** Change parameters of the present address without a new page: null takes one away. */
export function setParams(changes) {
  const [path, text = ""] = split(location.hash || "#/");
  const params = new URLSearchParams(text);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") params.delete(name);
    else params.set(name, value);
  }
  const changed = params.toString();
  history.replaceState(history.state, "", `${path}${changed && `?${changed}`}`);
}

/** Call `listener(parse(...))` now and whenever the address changes. */
export function start(listener) {
  const tell = () => listener(parse(location.hash));
  window.addEventListener("hashchange", tell);
  tell();
}
