// The page: controls in, picture, bars, table and a sentence out.

const FAMILIES = {
  beta: {
    parameters: [
      { name: "a", label: "a: evidence for outcome 1", start: 5, log: true },
      { name: "b", label: "b: evidence for outcome 0", start: 5, log: true },
    ],
    check: ([a, b]) => (a > 0 && b > 0 ? null : ["a and b must be above 0", a > 0 ? 1 : 0]),
    figures: ([a, b]) => ofBeta(a, b),
    name: ([a, b]) => `Beta(${text(a)}, ${text(b)})`,
  },
  uniform: {
    parameters: [
      { name: "lo", label: "lo: the lowest θ", start: 0.3 },
      { name: "hi", label: "hi: the highest θ", start: 0.7 },
    ],
    check: ([lo, hi]) => outside([lo, hi]) ?? (lo < hi ? null : ["lo must be below hi", 0]),
    figures: ([lo, hi]) => ofUniform(lo, hi),
    name: ([lo, hi]) => `Uniform on [${text(lo)}, ${text(hi)}]`,
  },
  deltas: {
    parameters: [
      { name: "first", label: "first point", start: 0.1 },
      { name: "second", label: "second point", start: 0.9 },
      { name: "weight", label: "weight of the first point", start: 0.5 },
    ],
    check: (values) => outside(values),
    figures: ([first, second, weight]) => ofDeltas(first, second, weight),
    name: ([first, second, weight]) =>
      `Deltas at ${text(first)} (weight ${text(weight)}) and ${text(second)} (weight ${text(1 - weight)})`,
  },
};
const MEASURES = {
  average: ["average", "mutual information"],
  pairwise: ["pairwise", "pairwise KL"],
  reverse: ["reverse", "average and a draw"],
  difference: ["pairwise − average", "equals M"],
};
const PARTS = ["total", "aleatoric", "epistemic"];
const LOWEST = -3, HIGHEST = 4; // powers of ten that the sliders of a Beta reach; typed numbers may go further

const state = { family: "beta", values: { beta: [5, 5], uniform: [0.3, 0.7], deltas: [0.1, 0.9, 0.5] } };
let sentence = 0;

// A number with so many digits, in powers of ten where it would be long.
function text(value, digits = 7) {
  if (!Number.isFinite(value)) return "∞";
  const size = Math.abs(value), rounded = Number(value.toPrecision(digits));
  const long = size > 0 && (size < 1e-4 || size >= 10 ** (digits + 1));
  return (long ? rounded.toExponential() : String(rounded)).replace("e+", "e").replaceAll("-", "−");
}

function outside(values) {
  const bad = values.findIndex((x) => !(x >= 0 && x <= 1));
  return bad < 0 ? null : ["each number must be between 0 and 1", bad];
}

// Sliders of a Beta run over powers of ten.
const toSlider = (parameter, value) => (parameter.log ? Math.min(HIGHEST, Math.max(LOWEST, Math.log10(value))) : value);
const fromSlider = (parameter, value) => (parameter.log ? Number((10 ** value).toPrecision(3)) : value);

function buildParameters() {
  const rows = FAMILIES[state.family].parameters.map((parameter, index) => {
    const limits = parameter.log ? [LOWEST, HIGHEST, 0.01] : [0, 1, 0.001];
    const range = element("input", {
      type: "range", id: `${parameter.name}-range`, min: limits[0], max: limits[1], step: limits[2],
      "aria-label": `${parameter.label}, slider`,
    });
    const number = element("input", {
      type: "number", id: parameter.name, step: "any", inputmode: "decimal", "aria-describedby": "complaint",
    });
    range.addEventListener("input", () => slid(index, fromSlider(parameter, range.valueAsNumber)));
    number.addEventListener("input", () => { change(index, number.value === "" ? NaN : Number(number.value)); update(number); });
    const label = element("label", { class: "name", for: parameter.name }, parameter.label);
    return element("div", { class: "parameter" }, label, range, number);
  });
  $("parameters").replaceChildren(...rows);
}

function change(index, value) {
  state.values[state.family] = state.values[state.family].map((old, i) => (i === index ? value : old));
}

// A slider of a uniform pushes the other end before it.
function slid(index, value) {
  change(index, value);
  if (state.family === "uniform") {
    const gap = 0.001, [lo, hi] = state.values.uniform;
    if (!(hi - lo >= gap / 2)) {
      const moved = index === 0 ? [Math.min(lo, 1 - gap), Math.min(lo, 1 - gap) + gap] : [Math.max(hi, gap) - gap, Math.max(hi, gap)];
      state.values.uniform = moved.map((x) => Number(x.toFixed(3)));
    }
  }
  update();
}

// Show the state. The field that is being typed in is left as it is.
function update(typedIn = null) {
  const family = FAMILIES[state.family], values = state.values[state.family];
  family.parameters.forEach((parameter, index) => {
    const range = $(`${parameter.name}-range`), number = $(parameter.name), value = values[index];
    if (number !== typedIn) number.value = !Number.isFinite(value) ? "" : value < 1e8 ? value : value.toExponential();
    if (Number.isFinite(value)) range.value = toSlider(parameter, value);
    range.setAttribute("aria-valuetext", text(value, 4));
  });
  const unfinished = values.findIndex((x) => !Number.isFinite(x));
  const problem = unfinished >= 0 ? ["type a number", unfinished] : family.check(values);
  family.parameters.forEach((parameter, index) => {
    $(parameter.name).setAttribute("aria-invalid", String(problem !== null && problem[1] === index));
  });
  $("complaint").textContent = problem === null ? "" : `${family.parameters[problem[1]].name}: ${problem[0]}. Shown is the last that was right.`;
  for (const radio of document.querySelectorAll("[name=family]")) radio.checked = radio.value === state.family;
  const key = [state.family, ...values].join(",");
  for (const button of document.querySelectorAll("[data-preset]")) {
    button.setAttribute("aria-pressed", String(button.dataset.preset === key));
  }
  if (problem !== null) return;
  state.shown = { family: state.family, values };
  show();
}

function show() {
  const { family, values } = state.shown;
  const figures = FAMILIES[family].figures(values), found = decompose(figures);
  found.difference = {
    total: found.pairwise.epistemic - found.average.epistemic, aleatoric: 0,
    epistemic: found.pairwise.epistemic - found.average.epistemic,
  };
  $("mean").textContent = text(figures.mean);
  $("posterior-title").textContent = `Posterior: ${FAMILIES[family].name(values)}`;
  showPlot(family, values, figures.mean);
  showBars(found);
  showTable(found);
  const sentenceNow = `${FAMILIES[family].name(values)}: epistemic uncertainty ${text(found.average.epistemic, 4)} by the mutual ` +
    `information, ${text(found.pairwise.epistemic, 4)} by the pairwise KL, ${text(found.reverse.epistemic, 4)} by the reverse mutual information; ` +
    `aleatoric ${text(found.pairwise.aleatoric, 4)}.`;
  clearTimeout(sentence); // said once a drag has come to rest, not at every step of it
  sentence = setTimeout(() => { $("summary").textContent = sentenceNow.replaceAll("∞", "∞ (infinite)"); }, 250);
}

function showTable(found) {
  const rows = Object.entries(MEASURES).map(([measure, [label]]) => {
    const cells = PARTS.map((part) => {
      const value = found[measure][part];
      const cell = element("td", { "data-measure": measure, "data-part": part, "data-value": value }, text(value));
      if (value === Infinity) cell.setAttribute("aria-label", "infinite");
      return cell;
    });
    return element("tr", { class: measure }, element("th", { scope: "row" }, label), ...cells);
  });
  $("values").replaceChildren(...rows);
}

// A round number of steps up to a round number not below the largest value.
function scale(largest) {
  const rough = largest / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((x) => x * power).find((x) => x >= rough * (1 - 1e-9));
  return { step, top: step * Math.ceil(largest / step - 1e-9) };
}

function showBars(found) {
  const finite = Object.values(found).flatMap((parts) => [parts.total, parts.aleatoric]).filter(Number.isFinite);
  const endless = Object.values(found).some((parts) => parts.total === Infinity);
  const { step, top } = scale(Math.max(0.01, ...finite) * (endless ? 1.6 : 1));
  const at = (value) => `${(100 * Math.min(value, top)) / top}%`;
  const box = $("bars");
  // The bars stay and change their width, so that the change is seen.
  if (!box.children.length) {
    for (const [measure, [label, note]] of Object.entries(MEASURES)) {
      box.append(element("div", { class: `bar ${measure}`, id: `bar-${measure}` },
        element("div", { class: "label" }, label, element("small", {}, note)),
        element("div", { class: "track" }, element("div", { class: "aleatoric" }), element("div", { class: "epistemic" }))));
    }
    box.append(element("div", { class: "ticks" }));
  }
  for (const measure of Object.keys(MEASURES)) {
    const { aleatoric, epistemic } = found[measure];
    const [left, right] = $(`bar-${measure}`).querySelectorAll(".track > div");
    const length = epistemic === Infinity ? `calc(100% - ${at(aleatoric)})` : at(epistemic);
    Object.assign(left.style, { left: 0, width: at(aleatoric), visibility: aleatoric > 0 ? "" : "hidden" });
    Object.assign(right.style, { left: at(aleatoric), width: length, visibility: epistemic > 0 ? "" : "hidden" });
    right.classList.toggle("endless", epistemic === Infinity);
    right.replaceChildren(...(epistemic === Infinity ? [element("span", {}, "∞")] : []));
  }
  const ticks = [];
  for (let k = 0; k * step <= top * (1 + 1e-9); k++) {
    const tick = element("span", {}, text(k * step, 3));
    tick.style.left = at(k * step);
    ticks.push(tick);
  }
  box.lastChild.replaceChildren(...ticks);
  const said = Object.entries(MEASURES).map(([measure, [label]]) =>
    `${label}: ${PARTS.map((part) => `${part} ${text(found[measure][part], 4)}`).join(", ")}`);
  box.setAttribute("aria-label", `Bars of uncertainty in nats. ${said.join("; ")}.`);
}

// Places where a Beta density is worth looking at: everywhere, near both ends, and about its mean.
function betaPlaces(a, b) {
  const mean = a / (a + b), deviation = Math.sqrt((mean * (1 - mean)) / (a + b + 1));
  const places = [];
  for (let k = 0; k <= 240; k++) {
    places.push((1 - Math.cos((Math.PI * k) / 240)) / 2, mean + (k / 24 - 5) * deviation);
  }
  return places.filter((x) => x >= 0 && x <= 1).sort((x, y) => x - y);
}

function showPlot(family, values, mean) {
  const width = Math.max(260, $("plot").clientWidth), height = width < 420 ? 180 : 230;
  const left = 52, right = width - 16, bottom = height - 44, topEdge = 12;
  const x = (theta) => left + theta * (right - left);
  let highest, marks, unit = "density";
  if (family === "deltas") {
    const [first, second, weight] = values;
    const masses = first === second ? [[first, 1]] : [[first, weight], [second, 1 - weight]];
    highest = 1;
    unit = "mass";
    marks = (y) => masses.filter(([, mass]) => mass > 0).flatMap(([place, mass]) => [
      drawn("line", { class: "stem", x1: x(place), x2: x(place), y1: y(0), y2: y(mass) }),
      drawn("circle", { class: "dot", cx: x(place), cy: y(mass), r: 6 }),
    ]);
  } else {
    let outline;
    if (family === "uniform") {
      const [lo, hi] = values, density = 1 / (hi - lo);
      outline = [[lo, 0], [lo, density], [hi, density], [hi, 0]];
      highest = Math.max(2, 1.15 * density);
    } else {
      const [a, b] = values, density = betaDensity(a, b);
      outline = betaPlaces(a, b).map((theta) => [theta, density(theta)]);
      const peak = Math.max(...outline.map(([, d]) => d));
      highest = Math.min(a, b) < 1 ? 4 : Math.max(2, 1.1 * peak);
    }
    marks = (y) => {
      const points = outline.map(([theta, d]) => `${x(theta).toFixed(2)},${y(Math.min(d, 1.2 * highest)).toFixed(2)}`);
      const ends = [`${x(outline[0][0])},${y(0)}`, `${x(outline[outline.length - 1][0])},${y(0)}`];
      return [
        drawn("polygon", { class: "fill", points: [ends[0], ...points, ends[1]].join(" ") }),
        drawn("polyline", { class: "curve", points: points.join(" ") }),
      ];
    };
  }
  const y = (d) => bottom - (d / highest) * (bottom - topEdge);
  const { step } = scale(highest);
  const ticks = [];
  for (const theta of [0, 0.25, 0.5, 0.75, 1]) {
    ticks.push(drawn("line", { class: "axis", x1: x(theta), x2: x(theta), y1: bottom, y2: bottom + 5 }));
    ticks.push(drawn("text", { x: x(theta), y: bottom + 19, "text-anchor": "middle" }, text(theta)));
  }
  for (let d = 0; d <= highest * (1 + 1e-9); d += step) {
    ticks.push(drawn("line", { class: "axis", x1: left - 5, x2: left, y1: y(d), y2: y(d) }));
    ticks.push(drawn("text", { x: left - 8, y: y(d) + 4, "text-anchor": "end" }, text(d, 2)));
  }
  const title = `${FAMILIES[family].name(values)}, ${unit} over θ from 0 to 1; expected value ${text(mean, 4)}`;
  const clip = drawn("clipPath", { id: "inside" }, drawn("rect", { x: left - 8, y: topEdge - 8, width: right - left + 16, height: bottom - topEdge + 8 }));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-labelledby": "plot-title" },
    drawn("title", { id: "plot-title" }, title), clip,
    drawn("g", { "clip-path": "url(#inside)" }, ...marks(y)),
    drawn("path", { class: "axis", d: `M${left} ${topEdge}V${bottom}H${right}` }), ...ticks,
    drawn("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, "probability θ of outcome 1"),
    drawn("text", { transform: `translate(12 ${(topEdge + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, unit),
    drawn("path", { class: "mean", d: `M${x(mean)} ${bottom - 9}l8 15h-16z` }));
  $("plot").replaceChildren(svg);
}

function choose(family, values = null) {
  const other = family !== state.family;
  state.family = family;
  if (values) state.values[family] = values;
  if (other || !$("parameters").children.length) buildParameters();
  update();
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

for (const radio of document.querySelectorAll("[name=family]")) {
  radio.addEventListener("change", () => choose(radio.value));
}
for (const button of document.querySelectorAll("[data-preset]")) {
  const [family, ...values] = button.dataset.preset.split(",");
  button.addEventListener("click", () => choose(family, values.map(Number)));
}
$("theme").addEventListener("change", () => setTheme($("theme").value));
setTheme($("theme").value); // browsers may keep a choice when a page is loaded again
choose("beta");
new ResizeObserver(() => show()).observe($("plot"));
