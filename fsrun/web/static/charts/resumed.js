// Where a run was resumed: a thin line down a chart, and a label that says so.

import { h, replace } from "../dom.js";

const MOST_NAMES = 3;
const APART = 16;

/** The lines, on the canvas. `sessions`: `[{x, colour}]`. */
export function drawSessions(plot, sessions, paint) {
  const { ctx, bbox } = plot;
  const scale = window.devicePixelRatio || 1;
  ctx.save();
  ctx.lineWidth = scale;
  ctx.setLineDash([4 * scale, 3 * scale]);
  for (const { x, colour } of sessions) {
    const left = Math.round(plot.valToPos(x, "x", true)) + 0.5;
    if (!(left >= bbox.left && left <= bbox.left + bbox.width)) continue;
    ctx.strokeStyle = colour ?? paint.text;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** The labels, over the canvas: where many stand close together just some of them. */
export function labelSessions(plot, sessions) {
  const { over } = plot;
  const layer = over.querySelector(".chart-sessions") ?? over.appendChild(h("div", { class: "chart-sessions" }));
  const width = over.clientWidth;
  let free = -Infinity;
  const labels = [];
  const seen = sessions.map((one) => ({ ...one, left: plot.valToPos(one.x, "x") })).filter(({ left }) => left >= 0 && left <= width);
  for (const { name, title, colour, left } of seen) {
    if (left < free) continue;
    const text = seen.length <= MOST_NAMES ? name : name.replace("session ", "");
    const back = left > width - 60;
    labels.push(h("span", { class: ["chart-session", back && "is-back"], title, style: { left: `${left}px`, color: colour ?? "" } }, text));
    free = left + (seen.length <= MOST_NAMES ? 60 : APART);
  }
  replace(layer, labels);
}
