// A finger on a drawing: sideways it marks a part of the axis, as a mouse does; up and down it scrolls the page.

const LEAST = 8;

/** `plot()`: the drawing in `box` now. Returns a function that ends it. */
export function watchTouch(box, plot) {
  let began = null;

  const at = (event) => {
    const { over } = plot();
    const { left, width } = over.getBoundingClientRect();
    return Math.min(width, Math.max(0, event.clientX - left));
  };
  const down = (event) => {
    if (event.pointerType === "mouse" || !event.isPrimary || !plot() || !event.target.closest(".u-over")) return;
    began = { id: event.pointerId, from: at(event) };
  };
  const move = (event) => {
    if (event.pointerId !== began?.id || !plot()) return;
    const now = at(event);
    const { over } = plot();
    plot().setCursor({ left: now, top: over.clientHeight / 2 });
    plot().setSelect({ left: Math.min(now, began.from), width: Math.abs(now - began.from), top: 0, height: over.clientHeight }, false);
  };
  const up = (event) => {
    if (event.pointerId !== began?.id) return;
    const { from } = began;
    began = null;
    if (!plot()) return;
    const { left, width, height } = plot().select;
    const far = event.type === "pointerup" && Math.abs(at(event) - from) >= LEAST;
    plot().setSelect(far ? { left, width, top: 0, height } : { left: 0, width: 0, top: 0, height: 0 }, far);
  };
  const events = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up };
  for (const [name, handler] of Object.entries(events)) box.addEventListener(name, handler);
  return () => {
    for (const [name, handler] of Object.entries(events)) box.removeEventListener(name, handler);
  };
}
