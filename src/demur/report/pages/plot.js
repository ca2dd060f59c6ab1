// Figures as SVG, with a cursor that follows the pointer and the arrow keys.

const real = (value) => (value === "inf" ? Infinity : value === "-inf" ? -Infinity : value);

// A number with so many digits, in powers of ten where it would be long.
function text(value, digits = 4) {
  value = real(value);
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  const size = Math.abs(value), rounded = Number(value.toPrecision(digits));
  const long = size > 0 && (size < 1e-3 || size >= 10 ** (digits + 2));
  return (long ? rounded.toExponential() : String(rounded)).replace("e+", "e").replaceAll("-", "−");
}

// A share in percent: more digits near none and all, so that 99.97 % is not 100 %.
function percent(share, digits = null) {
  const rest = Math.min(share, 1 - share);
  if (rest === 0) return `${100 * share}\u00a0%`;
  const places = digits ?? (rest < 0.01 ? 2 : 1), shown = (100 * share).toFixed(places);
  if (Number(shown) === 0) return `under ${(10 ** -places).toFixed(places)}\u00a0%`;
  if (Number(shown) === 100) return `over ${(100 - 10 ** -places).toFixed(places)}\u00a0%`;
  return `${shown}\u00a0%`;
}
// As many digits as an interval of this width makes worth reading.
const digitsFor = ([, low, high]) => (high - low < 0.01 ? 2 : high - low < 0.2 ? 1 : 0);
const between = (bounds) => bounds.slice(1).map((end) => percent(end, digitsFor(bounds))).join(" to ");
const said = (bounds) => percent(bounds[0], digitsFor(bounds));
const count = (number) => number.toLocaleString("en");

const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const power = (k) => (k >= -2 && k <= 3 ? String(Number((10 ** k).toPrecision(1))) : `10${[...String(k)].map((c) => SUPERSCRIPT[c]).join("")}`);

// Where ticks go between two ends: [value, label].
function ticks(axis, room) {
  const { min, max } = axis;
  if (axis.log) {
    const first = Math.ceil(Math.log10(min) - 1e-9), last = Math.floor(Math.log10(max) + 1e-9);
    const every = Math.max(1, Math.ceil((last - first + 1) / room)), found = [];
    for (let k = first; k <= last; k += every) found.push([10 ** k, power(k)]);
    return found.length > 1 ? found : [min, max].map((v) => [v, text(v, 2)]);
  }
  const rough = (max - min) / room, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * unit).find((s) => s >= rough * (1 - 1e-9)), found = [];
  for (let k = Math.ceil(min / step - 1e-9); k * step <= max * (1 + 1e-9); k++) {
    const value = Number((k * step).toPrecision(12));
    found.push([value, axis.percent ? `${Number((100 * value).toPrecision(5))} %` : text(value, 6)]);
  }
  return found;
}

// Places of values along an axis, in pixels; what has no place on it goes to slots before and after it.
function placed(axis, from, to) {
  const way = axis.log ? Math.log10 : (v) => v;
  const low = way(axis.min), high = way(axis.max), sign = Math.sign(to - from);
  const start = from + sign * (axis.before ?? 0), end = to - sign * (axis.after ?? 0);
  const at = (value) => {
    value = real(value);
    if (value === Infinity) return end + sign * (axis.after ?? 0) * 0.6;
    if (axis.log && !(value > 0)) return start - sign * (axis.before ?? 0) * 0.6;
    return start + ((Math.min(Math.max(way(value), low), high) - low) / (high - low || 1)) * (end - start);
  };
  return Object.assign(at, { start, end });
}

const line = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
let figures = 0;

// Draw a figure into a host. spec: x, y (axes: min, max, log, label, percent, before and after: room for what has no place, least: its name), marks(x, y, box) -> nodes,
// points ([{x, y, text}], in reading order), key ([[class, label]]), label (for those who do not see it).
function chart(host, spec) {
  const width = Math.max(250, host.clientWidth), height = Math.round(Math.min(330, Math.max(230, width * 0.62)));
  const box = { left: 68, right: width - 16, top: 12, bottom: height - 46 };
  const x = placed(spec.x, box.left, box.right), y = placed(spec.y, box.bottom, box.top);
  const nodes = [], id = `clip-${(figures += 1)}`;
  for (const [value, label] of ticks(spec.x, Math.max(3, Math.floor(width / 90)))) {
    if (spec.x.before && x(value) - x(0) < 34) continue; // beside the 0 there is no room
    nodes.push(drawn("line", { class: "axis", x1: x(value), x2: x(value), y1: box.bottom, y2: box.bottom + 5 }),
      drawn("text", { x: x(value), y: box.bottom + 19, "text-anchor": "middle" }, label));
  }
  for (const [value, label] of ticks(spec.y, 5)) {
    if (spec.y.before && y(0) - y(value) < 16) continue;
    nodes.push(drawn("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      drawn("text", { x: box.left - 7, y: y(value) + 4, "text-anchor": "end" }, label));
  }
  const beside = (axis, at, attributes) => {
    const found = [];
    if (axis.before) found.push(drawn("text", attributes(at(0)), axis.least ?? "0"));
    if (axis.after) found.push(drawn("text", { ...attributes(at(Infinity)), class: "endless" }, "∞"));
    return found;
  };
  nodes.push(...beside(spec.x, x, (place) => ({ x: place, y: box.bottom + 19, "text-anchor": "middle" })),
    ...beside(spec.y, y, (place) => ({ x: box.left - 7, y: place + 4, "text-anchor": "end" })));
  const inside = drawn("clipPath", { id }, drawn("rect", { x: box.left, y: box.top - 6, width: box.right - box.left, height: box.bottom - box.top + 6 }));
  const cursor = drawn("g", { class: "cursor", visibility: "hidden" }, drawn("line", { y1: box.top, y2: box.bottom }), drawn("circle", { r: 5 }));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, inside, ...nodes,
    drawn("g", { "clip-path": `url(#${id})` }, ...spec.marks(x, y, box)),
    drawn("path", { class: "axis", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }),
    drawn("text", { class: "label", x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, spec.x.label),
    drawn("text", { class: "label", transform: `translate(11 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, spec.y.label), cursor);
  const frame = element("div", { class: "frame", tabindex: "0", role: "slider", "aria-label": spec.label,
    "aria-valuemin": 0, "aria-valuemax": Math.max(0, spec.points.length - 1), "aria-valuenow": 0, "aria-valuetext": spec.rest }, svg);
  const reading = element("p", { class: "reading" }, spec.rest);
  let at = -1;
  const show = (index) => {
    at = index;
    const point = spec.points[index];
    cursor.setAttribute("visibility", point ? "visible" : "hidden");
    reading.textContent = point ? point.text : spec.rest;
    frame.setAttribute("aria-valuetext", reading.textContent);
    frame.setAttribute("aria-valuenow", Math.max(0, index));
    if (!point) return;
    const [line_, dot] = cursor.children;
    for (const end of ["x1", "x2"]) line_.setAttribute(end, x(point.x));
    dot.setAttribute("cx", x(point.x));
    dot.setAttribute("cy", y(point.y));
  };
  frame.addEventListener("pointermove", (event) => {
    const edge = svg.getBoundingClientRect(), scale = width / edge.width;
    const px = (event.clientX - edge.left) * scale, py = (event.clientY - edge.top) * scale;
    let nearest = -1, best = Infinity;
    spec.points.forEach((point, index) => {
      const far = Math.hypot(x(point.x) - px, (spec.planar ? 1 : 0.2) * (y(point.y) - py));
      if (far < best) [nearest, best] = [index, far];
    });
    show(nearest);
  });
  frame.addEventListener("pointerleave", () => { if (document.activeElement !== frame) show(-1); });
  frame.addEventListener("blur", () => show(-1));
  frame.addEventListener("keydown", (event) => {
    const last = spec.points.length - 1, wide = Math.max(1, Math.round(last / 10));
    const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, Home: 0, End: last,
      PageUp: at + wide, PageDown: at - wide }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    show(Math.min(last, Math.max(0, to)));
  });
  const key = element("p", { class: "key" }, ...spec.key.map(([kind, label]) => element("span", {}, element("i", { class: `swatch ${kind}` }), label)));
  const focused = document.activeElement?.closest?.(".frame")?.parentElement === host;
  host.replaceChildren(key, frame, reading);
  if (focused) frame.focus({ preventScroll: true });
}
