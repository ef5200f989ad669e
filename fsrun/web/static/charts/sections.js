// Which charts there are, from the names of tags: by what stands before the first slash; train and evaluation together.

const PHASES = new Set(["train", "training", "eval", "evaluation", "val", "valid", "validation", "test"]);
export const TOGETHER = "train & eval";
const REST = "other";

/**
 * Sections of charts: [{name, charts: [{name, title, tags}]}]. `together`: tags that are the same behind train/, eval/
 * and the like stand in one chart.
 */
export function sectionsOf(tags, together) {
  const sections = new Map();
  for (const tag of [...tags].sort(inOrder)) {
    const at = tag.indexOf("/");
    const [first, rest] = at > 0 ? [tag.slice(0, at), tag.slice(at + 1)] : ["", tag];
    const phase = together && PHASES.has(first.toLowerCase());
    const section = phase ? TOGETHER : first || REST;
    // No tag begins so.
    const name = phase ? `\n${rest}` : tag;
    if (!sections.has(section)) sections.set(section, new Map());
    const charts = sections.get(section);
    if (!charts.has(name)) charts.set(name, { name, title: tag, tags: [] });
    const chart = charts.get(name);
    chart.tags.push(tag);
    if (chart.tags.length > 1) chart.title = rest;
  }
  const rank = (name) => (name === TOGETHER || name === "train" ? 0 : name === "eval" ? 1 : name === REST ? 3 : 2);
  return [...sections]
    .map(([name, charts]) => ({ name, charts: [...charts.values()].sort((a, b) => b.tags.length - a.tags.length) }))
    .sort((a, b) => rank(a.name) - rank(b.name) || inOrder(a.name, b.name));
}

/** train before eval, the rest by name; numbers within by size. */
function inOrder(a, b) {
  const rank = (tag) => (/^train/i.test(tag) ? 0 : 1);
  return rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true });
}

/** A test of tags by what was typed: a regular expression, or plain text where it is none. */
export function matcher(text) {
  if (!text) return () => true;
  try {
    const expression = new RegExp(text, "i");
    return (tag) => expression.test(tag);
  } catch {
    const plain = text.toLowerCase();
    return (tag) => tag.toLowerCase().includes(plain);
  }
}
