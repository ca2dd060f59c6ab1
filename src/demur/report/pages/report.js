// The report: one state, and every part of the page shown from it. All figures come from the data; none is computed here
// but shares of counts.

const DATA = JSON.parse($("data").textContent);
const KNOWN = DATA.sets.findIndex((set) => set.kind === "id");
const ERRORS = -1, MISTAKES = "mistakes"; // the task of finding wrong predictions, beside the sets
const WRONG = DATA.sets.length; // their place behind the sets
const state = { method: DATA.start[0], score: DATA.start[1], task: null, at: null, target: null, set: null, sort: null };

const shareAt = (slider, at) => [slider.sets[KNOWN].kept[at] / DATA.sets[KNOWN].number, slider.share[0][at], slider.share[1][at]];
const accuracyAt = (slider, at) => [slider.sets[KNOWN].right[at] / slider.sets[KNOWN].kept[at], slider.accuracy[0][at], slider.accuracy[1][at]];
const result = () => DATA.results[state.method][state.score];
const score = () => DATA.scores[state.score];
const several = DATA.methods.length > 1;
const ROW = DATA.byTask ? "task" : "method"; // what stands in the place of methods: tasks do not compete
const colour = (index) => `set${index < 0 ? "-wrong" : index % 6}`;

function options(select, labels, chosen) {
  select.replaceChildren(...labels.map((label, index) => element("option", { value: index }, label)));
  select.value = chosen;
}

function lead() {
  return `${several ? `${DATA.methods.length} ${ROW}s. ` : ""}Inputs: ${DATA.sets.map((set) => `${count(set.number)} ${set.name}`).join(", ")}. ` +
    "Higher scores mean less certain predictions.";
}

const glued = (words) => words.replaceAll(" %", "\u00a0%"); // no line breaks there

function card(content) {
  const [value, low, high] = content.bounds;
  const from = Math.min(0.5, low), place = (share) => `${(100 * (share - from)) / (1 - from)}%`;
  const range = element("span", { class: "range" }), dot = element("span", { class: "dot" });
  Object.assign(range.style, { left: place(low), right: `calc(100% - ${place(high)})` });
  dot.style.left = place(value);
  const toss = content.chance && from < 0.5 ? [element("span", { class: "toss" }, "coin toss")] : []; // where the axis begins below it
  for (const mark of toss) mark.style.left = place(0.5);
  return element("article", { class: "card" }, element("h3", {}, content.title),
    element("p", { class: "figure" }, glued(content.figure), element("small", {}, content.chance ? " AUROC" : " accuracy")),
    element("div", { class: "whisker", "aria-hidden": "true" }, ...toss, range, dot, element("small", {}, `${percent(from, 0)}${content.chance && from === 0.5 ? ", a coin toss" : ""}`), element("small", {}, "100 %")),
    element("p", { class: "certainty" }, glued(content.interval)), element("p", {}, glued(content.caption)),
    ...content.sentences.map((sentence) => element("p", { class: "sentence" }, glued(sentence))),
    ...(content.show ? [shower(...content.show)] : []));
}

// A button that sets method, measure and threshold, and goes there.
function shower(method, place, kept) {
  const button = element("button", { type: "button" }, "Show its threshold");
  button.addEventListener("click", () => {
    Object.assign(state, { method, score: place, target: null, sort: null });
    $("method").value = method;
    $("score").value = place;
    update();
    moved(Math.max(0, result().slider.sets[KNOWN].kept.findIndex((each) => each >= kept)));
    const bar = $("controls"); // what stays at the top would cover the heading
    $("deferral").style.scrollMarginTop = getComputedStyle(bar).position === "sticky" ? `${bar.offsetHeight + 8}px` : "";
    $("deferral").scrollIntoView();
    $("threshold").focus({ preventScroll: true });
  });
  return button;
}

// What there is to tell from in-distribution inputs: other sets, and mistakes.
function tasks() {
  if (KNOWN < 0) return [];
  const found = DATA.sets.map((set, index) => [index, set.name]).filter(([index]) => index !== KNOWN);
  if (DATA.results.some((scores) => scores[0].errors)) found.push([ERRORS, MISTAKES]);
  return found;
}

function buildControls() {
  options($("method"), DATA.methods.map((name) => name || "scores"), state.method);
  $("method-label").hidden = !several;
  $("method-label").firstChild.textContent = DATA.byTask ? "Task " : "Method ";
  options($("score"), DATA.scores.map((each) => each.long), state.score);
  const choices = tasks();
  state.task = choices.length ? choices[0][0] : null;
  $("task-choice").hidden = choices.length === 0;
  $("tasks").replaceChildren(...choices.map(([index, name]) => {
    const radio = element("input", { type: "radio", name: "task", value: index });
    radio.checked = index === state.task;
    radio.addEventListener("change", () => { state.task = index; state.set = index === ERRORS ? WRONG : index; show(); });
    return element("label", {}, radio, element("i", { class: `swatch ${colour(index)}` }), name);
  }));
  state.set = state.task === null ? 0 : state.task === ERRORS ? WRONG : state.task;
  options($("input-set"), [...DATA.sets.map((set) => set.name), ...(DATA.rows.some((rows) => rows[WRONG]) ? [MISTAKES] : [])], state.set);
}

// The sets that the first figure shows: [place in the counts, label, class].
function shown() {
  if (state.task === null) return DATA.sets.map((set, index) => [index, set.name, colour(index)]);
  const other = state.task === ERRORS ? WRONG : state.task;
  const name = state.task === ERRORS ? MISTAKES : DATA.sets[state.task].name;
  return [[KNOWN, `${state.task === ERRORS ? "all " : ""}${DATA.sets[KNOWN].name}`, colour(KNOWN)], [other, name, colour(state.task)]];
}

function showDensity() {
  const { edges, log, counts, below, infinite } = result().density, sets = shown().filter(([index]) => counts[index]);
  const total = (index) => counts[index].reduce((a, b) => a + b, 0) + below[index] + infinite[index];
  const share = (index, bin) => (bin < 0 ? below[index] : bin >= edges.length - 1 ? infinite[index] : counts[index][bin]) / Math.max(1, total(index));
  const some = (what) => sets.some(([index]) => what[index] > 0);
  const low = some(below), high = some(infinite), bins = edges.map((_, bin) => bin).slice(0, -1);
  const range = [...(low ? [-1] : []), ...bins, ...(high ? [bins.length] : [])];
  const top = Math.max(0.001, ...sets.flatMap(([index]) => range.map((bin) => share(index, bin))));
  const middle = (bin) => (bin < 0 ? 0 : bin >= bins.length ? Infinity : log ? Math.sqrt(edges[bin] * edges[bin + 1]) : (edges[bin] + edges[bin + 1]) / 2);
  $("density-why").textContent = sets.length > 1 && state.task !== null ? "The less the two shapes overlap, the better the measure tells them apart."
    : "How many inputs have which score. With one kind of input there is nothing to tell apart.";
  const slider = result().slider, cut = slider ? real(slider.threshold[state.at]) : null;
  chart($("density"), {
    label: `Spread of ${score().long}`, rest: "Point at the figure or tap it, or use the arrow keys, to read it off.",
    x: { min: edges[0], max: edges[edges.length - 1], log, label: score().long, before: low ? 38 : 0, least: "less", after: high ? 34 : 0 },
    y: { min: 0, max: top * 1.06, percent: true, label: "share of each set" },
    key: [...sets.map(([, name, kind]) => [kind, name]), ...(cut !== null ? [["cut", "threshold"]] : [])],
    marks: (x, y) => [
      ...sets.flatMap(([index, , kind]) => {
        const steps = bins.flatMap((bin) => [[x(edges[bin]), y(share(index, bin))], [x(edges[bin + 1]), y(share(index, bin))]]);
        const floor = [[x.start, y(0)], ...steps, [x.end, y(0)]], extra = [];
        for (const [bin, there] of [[-1, low], [bins.length, high]]) {
          if (there) extra.push(drawn("rect", { class: `area ${kind}`, x: x(middle(bin)) - 8, width: 16, y: y(share(index, bin)), height: y(0) - y(share(index, bin)) }));
        }
        return [drawn("polygon", { class: `area ${kind}`, points: line(floor) }), drawn("polyline", { class: `curve ${kind}`, points: line(floor) }), ...extra];
      }),
      ...(cut !== null && cut < Infinity ? [drawn("line", { class: "cut", x1: x(cut), x2: x(cut), y1: y.end, y2: y.start })] : []),
    ],
    points: range.map((bin) => {
      const where = bin < 0 ? `Score below ${text(edges[0], 2)}` : bin >= bins.length ? "Score infinite" : `Score ${text(edges[bin], 3)} to ${text(edges[bin + 1], 3)}`;
      return { x: middle(bin), y: Math.max(...sets.map(([index]) => share(index, bin))),
        text: `${where}: ${sets.map(([index, name]) => `${percent(share(index, bin))} of ${name}`).join(", ")}.` };
    }),
  });
}

const unit = { min: 0, max: 1, percent: true };

function showRoc() {
  const found = state.task === ERRORS ? result().errors : state.task === null ? null : result().detection[state.task];
  $("roc-section").hidden = !found;
  if (!found) return;
  const what = state.task === ERRORS ? MISTAKES : DATA.sets[state.task].name;
  const those = state.task === ERRORS ? "right predictions" : DATA.sets[KNOWN].name;
  $("roc-why").textContent = `AUROC ${said(found.auroc)} (${between(found.auroc)}). At the threshold that finds 95 % of ${what}, ` +
    `the false-positive rate is ${said(found.fpr95)} of ${those} (${between(found.fpr95)}). Average precision ${said(found.aupr)} (${between(found.aupr)}).`;
  const [fpr, tpr] = found.roc, kind = colour(state.task);
  chart($("roc"), {
    label: `ROC curve of ${score().long} for ${what}`, rest: "The band holds the whole true curve with the stated confidence. Every curve ends at the top right.",
    x: { ...unit, label: `false-positive rate: share of ${those}` }, y: { ...unit, label: "true-positive rate" },
    key: [[kind, "curve"], [`band ${kind}`, `${Math.round(100 * DATA.confidence)} % band`], ["chance", "coin toss"]],
    marks: (x, y) => {
      const [[lowX, low], [highX, high]] = found.band;
      const around = [...lowX.map((v, k) => [x(v), y(low[k])]), ...highX.map((v, k) => [x(v), y(high[k])]).reverse()];
      return [drawn("polygon", { class: `band ${kind}`, points: line(around) }),
        drawn("line", { class: "chance", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
        drawn("polyline", { class: `curve ${kind}`, points: line(fpr.map((v, k) => [x(v), y(tpr[k])])) })];
    },
    points: fpr.map((v, k) => ({ x: v, y: tpr[k],
      text: `${k ? `Threshold ${text(found.thresholds[k])}` : "No threshold"}: ${percent(tpr[k])} of ${what} found, ${percent(v)} of ${those} too.` })),
  });
}

function showKept() {
  const found = result().kept;
  $("kept-section").hidden = !found;
  if (!found) return;
  const number = DATA.sets[KNOWN].number, shares = found.at.map((k) => k / number), slider = result().slider;
  const lowest = Math.min(found.chance, ...found.accuracy.filter((_, k) => shares[k] >= 0.05), ...found.low.filter((_, k) => shares[k] >= 0.1));
  const curve = (values) => (x, y) => line(values.map((v, k) => [x(shares[k]), y(v)]));
  const here = slider && [slider.sets[KNOWN].kept[state.at] / number, accuracyAt(slider, state.at)[0]];
  chart($("kept"), {
    label: `Accuracy over the share kept, by ${score().long}`,
    rest: `Area ${percent(found.auc[0], 2)} (${percent(found.auc[1], 2)} to ${percent(found.auc[2], 2)}). The band holds for each share by itself.`,
    x: { ...unit, label: "share of inputs kept" }, y: { min: Math.max(0, lowest - 0.03 * (1 - lowest) - 1e-4), max: 1, percent: true, label: "accuracy" },
    key: [["set0", "accuracy"], ["band set0", `${Math.round(100 * DATA.confidence)} % interval`], ["oracle", "best possible"], ["chance", "any order"], ["cut", "threshold"]],
    marks: (x, y) => [
      drawn("polygon", { class: "band set0", points: `${curve(found.low)(x, y)} ${line(found.high.map((v, k) => [x(shares[k]), y(v)]).reverse())}` }),
      drawn("line", { class: "chance", x1: x(0), x2: x(1), y1: y(found.chance), y2: y(found.chance) }),
      drawn("polyline", { class: "oracle", points: curve(found.oracle)(x, y) }),
      drawn("polyline", { class: "curve set0", points: curve(found.accuracy)(x, y) }),
      ...(here ? [drawn("line", { class: "cut", x1: x(here[0]), x2: x(here[0]), y1: y.end, y2: y.start }), drawn("circle", { class: "cut-dot", cx: x(here[0]), cy: y(here[1]), r: 5 })] : []),
    ],
    points: found.at.map((k, i) => ({ x: shares[i], y: found.accuracy[i],
      text: `${percent(shares[i])} kept (${count(k)}): accuracy ${percent(found.accuracy[i])}, interval ${percent(found.low[i])} to ${percent(found.high[i])}; at best ${percent(found.oracle[i])}.` })),
  });
}

const named = (column) => DATA.scores.find((each) => each.column === column)?.long ?? column;

function showPoints() {
  const sets = state.task === null || state.task === ERRORS ? DATA.sets.map((_, index) => index) : [KNOWN, state.task];
  const own = sets.filter((index) => DATA.points[state.method][index]);
  $("points-section").hidden = own.length === 0;
  if (!own.length) return;
  const points = own.flatMap((index) => DATA.points[state.method][index][0].map((i, n) => ({ set: index, x: real(i), y: real(DATA.points[state.method][index][1][n]) })));
  const positive = points.flatMap((point) => [point.x, point.y]).filter((v) => v > 0 && v < Infinity);
  const max = positive.length ? Math.max(...positive) * 1.3 : 1, least = positive.length ? Math.min(...positive) : 0.1;
  const min = Math.max(least / 1.3, max * 1e-10), zero = points.some((point) => point.x < min || point.y < min);
  const axis = { min, max, log: true, before: zero ? 26 : 0 }, endless = points.some((point) => point.y === Infinity);
  const place = (v) => (v < min ? 0 : v);
  chart($("points"), {
    label: "K against I", rest: `Up to ${DATA.points[state.method][own[0]][0].length} inputs of each set, evenly by rank of K.`,
    planar: true, x: { ...axis, label: named("average_epistemic") }, y: { ...axis, after: endless ? 26 : 0, label: named("pairwise_epistemic") },
    key: [...own.map((index) => [`${colour(index)} round`, DATA.sets[index].name]), ["oracle", "K = 2 I"], ["chance", "K = I"]],
    marks: (x, y) => [
      drawn("line", { class: "chance", x1: x(min), y1: y(min), x2: x(max), y2: y(max) }),
      drawn("line", { class: "oracle", x1: x(min), y1: y(2 * min), x2: x(max / 2), y2: y(max) }),
      ...points.map((point) => drawn("circle", { class: `point ${colour(point.set)}`, cx: x(place(point.x)), cy: y(place(point.y)), r: 3 })),
    ],
    points: [...points].sort((a, b) => a.y - b.y || a.x - b.x).map((point) => ({ x: place(point.x), y: place(point.y),
      text: `An input of ${DATA.sets[point.set].name}: I ${text(point.x)}, K ${text(point.y)}${point.x > 0 && point.y < Infinity ? `, K/I ${text(point.y / point.x, 3)}` : ""}.` })),
  });
}

const target = (promise) => `${Number((100 * promise.target).toPrecision(6))} %`;

// The slider and what its threshold does. It stands where the share of in-distribution inputs is that is kept.
function buildSlider() {
  const slider = result().slider;
  $("deferral").hidden = !slider;
  if (!slider) return;
  const promises = slider.promises ?? [], last = slider.threshold.length - 1;
  $("promise-box").hidden = $("accuracy-box").hidden = !slider.accuracy;
  options($("target"), promises.map((each) => `${target(each)}${each.at === null ? ": cannot be promised" : ""}`), 0);
  const held = promises.map((each) => each.at !== null), all = slider.accuracy ? accuracyAt(slider, last)[0] : 0;
  // At first: the least that is above what keeping all gives, where it can be promised; else the most that can.
  const higher = promises.findIndex((each, k) => held[k] && each.target > all), first = higher >= 0 ? higher : Math.max(0, held.lastIndexOf(true));
  if (state.target === null || !promises[state.target]) state.target = first;
  $("target").value = state.target;
  $("target-why").textContent = state.target !== first || !held[first] ? "" : `${target(promises[first])} is selected at first: ` +
    (higher >= 0 ? `the lowest of these that can be promised and is above the accuracy without asking (${percent(all)}).` : "the highest of these that can be promised.");
  const mark = promises[state.target]?.at ?? null;
  state.at = mark ?? Math.round(0.9 * last);
  $("marks").replaceChildren();
  if (mark !== null) {
    const share = shareAt(slider, mark)[0], left = `${100 * share}% + ${(0.5 - share) * 1.1}rem`;
    $("marks").append(element("span", {}, `${target(promises[state.target])} promised`), element("span", {}, "▼"));
    $("marks").firstChild.style.left = `clamp(3.5rem, ${left}, 100% - 3.5rem)`;
    $("marks").lastChild.style.left = `calc(${left})`;
  }
}

// The place of the slider that is nearest to a share kept.
function nearest(share) {
  const { sets } = result().slider, far = sets[KNOWN].kept.map((kept) => Math.abs(kept / DATA.sets[KNOWN].number - share));
  return far.indexOf(Math.min(...far));
}

// From place to place, however close they lie.
function step(event) {
  const last = result().slider.threshold.length - 1;
  const to = { ArrowRight: state.at + 1, ArrowUp: state.at + 1, ArrowLeft: state.at - 1, ArrowDown: state.at - 1, Home: 0, End: last,
    PageUp: state.at + 10, PageDown: state.at - 10 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  moved(Math.min(last, Math.max(0, to)));
}

let saying = 0;
function showSlider() {
  const slider = result().slider;
  if (!slider) return;
  const at = state.at, last = slider.threshold.length - 1, own = slider.sets[KNOWN];
  $("threshold").value = shareAt(slider, at)[0];
  $("share").textContent = percent(shareAt(slider, at)[0]);
  $("share-interval").textContent = `${count(own.kept[at])} of ${count(DATA.sets[KNOWN].number)}; ${between(shareAt(slider, at))}`;
  if (slider.accuracy) {
    $("accuracy").textContent = percent(accuracyAt(slider, at)[0]);
    $("accuracy-interval").textContent = `${count(own.right[at])} of ${count(own.kept[at])} right; ${between(accuracyAt(slider, at))}`;
    showPromise(slider);
  }
  const endless = real(slider.threshold[at]) === Infinity;
  $("cut").textContent = endless ? "none" : slider.written[at];
  $("cut-note").textContent = endless ? "all are kept" : `${score().short} above it: ask a person`;
  const slip = showSlip(slider);
  const head = ["set", "kept", "deferred", ...(slider.sets.some((set) => set.right) ? ["accuracy of the kept"] : [])];
  $("acted").tHead?.remove();
  $("acted").tBodies[0]?.remove();
  $("acted").append(element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...DATA.sets.map((set, index) => {
      const { kept } = slider.sets[index];
      const cells = [`${count(kept[at])} (${percent(kept[at] / set.number)})`, `${count(set.number - kept[at])} (${percent(1 - kept[at] / set.number)})`];
      if (head.length > 3) cells.push(keptAccuracy(set, slider.sets[index], at));
      return element("tr", {}, element("th", { scope: "row" }, element("i", { class: `swatch ${colour(index)}` }), set.name), ...cells.map((cell) => element("td", {}, cell)));
    })));
  const summary = `${percent(shareAt(slider, at)[0])} kept${slider.accuracy ? `, accuracy ${percent(accuracyAt(slider, at)[0])}` : ""}`;
  $("threshold").setAttribute("aria-valuetext", `${endless ? "no threshold" : `threshold ${slider.written[at]}`}, ${summary}, step ${at + 1} of ${last + 1}`);
  clearTimeout(saying); // said once a drag has come to rest
  saying = setTimeout(() => { $("slider-status").textContent = summary + slip; }, 400);
}

// What was measured at the threshold, and what is promised where it is that of the target.
function showPromise(slider) {
  const at = state.at, promise = slider.promises[state.target], held = promise.at === at;
  const level = percent(DATA.confidence, 0), [value, low] = accuracyAt(slider, at);
  $("now").textContent = `Measured at this threshold: ${percent(value)} of the kept are right (${level} interval ${between(accuracyAt(slider, at))}), ` +
    `${percent(shareAt(slider, at)[0])} are kept. ${held || promise.at === null ? "" : `The promise of ${target(promise)} belongs to the marked threshold alone.`}`;
  $("promised").textContent = held || promise.at === null ? promise.text : "";
  const doubt = (sides) => `${Number(((100 * (1 - DATA.confidence)) / sides).toPrecision(6))} %`;
  const others = DATA.sets.filter((set) => set.kind !== "id").map((set) => set.name);
  const measures = DATA.scores.length > 1, rivals = several && !DATA.byTask;
  const what = rivals && measures ? "method and measure" : rivals ? "the method" : measures ? "the measure" : "its accuracy";
  const first = DATA.chosen && (rivals || measures) && (DATA.byTask || state.method === DATA.start[0]) && state.score === DATA.start[1];
  $("looked").textContent = !held ? "" : first ? `This page chose ${what} by looking at these inputs: until the threshold is fitted on fresh ones, take the promise as optimistic.`
    : `If you chose ${what} by looking at these inputs, take the promise as optimistic until the threshold is fitted on fresh ones.`;
  $("condition").textContent = !held ? "" : `The promise is not for ${others.length ? `${others.join(", ").replace(/, ([^,]*)$/, " or $1")}: see the table below.` : "inputs of another kind."}` +
    (promise.target > low ? ` That the interval begins lower is no contradiction: it leaves ${doubt(2)} of doubt on each side, the promise ${doubt(1)} on one.` : "");
  for (const id of ["looked", "promised", "condition"]) $(id).hidden = !$(id).textContent;
  $("again").hidden = !held;
  $("fit").textContent = `demur evaluate defer fit FRESH.csv --score ${score().column} --accuracy ${promise.target} --out policy.json`;
  $("go").disabled = promise.at === null || held;
}

// How many of those to be found are kept all the same.
function showSlip(slider) {
  $("slip-box").hidden = state.task === null;
  if (state.task === null) return "";
  const of = slider.sets[state.task === ERRORS ? KNOWN : state.task], last = of.kept.length - 1;
  const slipped = state.task === ERRORS ? (at) => (of.right ? of.kept[at] - of.right[at] : 0) : (at) => of.kept[at];
  const name = state.task === ERRORS ? MISTAKES : DATA.sets[state.task].name, all = state.task === ERRORS ? slipped(last) : DATA.sets[state.task].number;
  $("slip").textContent = all ? percent(slipped(state.at) / all) : "–";
  $("slip-what").textContent = `of ${name} slip through`;
  $("slip-note").textContent = all ? `${count(slipped(state.at))} of ${count(all)} are kept` : "there are none";
  return all ? `, ${count(slipped(state.at))} of ${count(all)} ${name} slip through` : "";
}

// How accurate what is kept of a set is, as far as anybody can tell.
function keptAccuracy(set, { kept, right }, at) {
  if (!kept[at]) return "none kept";
  if (right) return `${percent(right[at] / kept[at])} (${right[at] ? `${count(kept[at] - right[at])} wrong` : kept[at] > 1 ? `all ${count(kept[at])} wrong` : "wrong"})`;
  return set.kind === "ood" ? `not known: ${count(kept[at])} of ${count(set.number)} out-of-distribution inputs are kept` : "not known";
}

// A picture out of the row of all pictures of its set.
function picture(sheet, place, name) {
  const scale = 48 / Math.max(sheet.width, sheet.height);
  const made = element("span", { class: "picture", role: "img", "aria-label": name });
  Object.assign(made.style, {
    width: `${sheet.width * scale}px`, height: `${sheet.height * scale}px`, backgroundImage: `url("${sheet.image}")`,
    backgroundSize: `${sheet.width * scale * sheet.count}px ${sheet.height * scale}px`, backgroundPosition: `${-place * sheet.width * scale}px 0`,
  });
  return made;
}

function columns(rows) {
  const has = (name) => rows.some((row) => row[name] !== undefined), found = [];
  if (has("picture")) found.push({ name: "picture", label: "picture", cell: (row) => picture(DATA.pictures[source()], row.picture, `input ${row.input}`) });
  found.push({ name: "input", label: "input", number: true, value: (row) => row.input });
  if (has("id")) found.push({ name: "id", label: "id", value: (row) => row.id });
  if (has("label")) found.push({ name: "label", label: "label", value: (row) => row.label });
  if (has("prediction")) {
    found.push({ name: "prediction", label: "predicted", value: (row) => row.prediction,
      cell: (row) => (row.right === false ? element("span", { class: "wrong" }, row.prediction, element("small", {}, " wrong")) : row.prediction) });
  }
  const wanted = ["pairwise_epistemic", "average_epistemic", "pairwise_aleatoric"];
  const places = [state.score, ...wanted.map((name) => DATA.scores.findIndex((each) => each.column === name))];
  for (const k of [...new Set(places)].filter((place) => place >= 0)) {
    found.push({ name: `score ${k}`, label: DATA.scores[k].short, score: k, number: true, value: (row) => real(row.scores[k]), cell: (row) => text(row.scores[k]) });
  }
  const chips = (name, label, said) => found.push({ name, label, cell: (row) => element("span", { class: "chips" },
    ...row[name].map(([each, part]) => element("span", {}, `${/^\d+$/.test(each) ? "class " : ""}${each}: `, element("small", {}, said(part))))) });
  if (has("drivers")) {
    chips("likely", "members on average: class, probability", (part) => percent(part, 0));
    chips("drivers", "they disagree about: class, part of K", (part) => text(part, 2));
  }
  return found;
}

// How many mistakes the method makes.
function wrongs() {
  const { kept, right } = result().slider.sets[KNOWN];
  return right ? kept.at(-1) - right.at(-1) : 0;
}

const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b || 0 : String(a).localeCompare(String(b), "en", { numeric: true }));

// The set that the inputs are of: mistakes are in-distribution inputs.
const source = () => (state.set === WRONG ? KNOWN : state.set);

// Why the table does not say what makes an input uncertain.
function missing() {
  if (DATA.members[state.method][source()]) return " There is one member, so nobody disagrees.";
  const whose = DATA.methods[state.method], file = `${whose ? `${whose}/` : ""}members-${DATA.sets[source()].file}.npy`;
  return ` Which classes make them uncertain is not known: the run has no ${file}.`;
}

function showInputs() {
  const all = DATA.rows[state.method][state.set] ?? [], found = columns(all);
  $("input-set").value = state.set;
  const sort = state.sort && found.some((column) => column.name === state.sort.name) ? state.sort : { name: `score ${state.score}`, down: true };
  const column = found.find((each) => each.name === sort.name);
  // The rows hold the first by each score: sorted down by a score they are the first of the whole set.
  const basis = column.score !== undefined && sort.down ? column.score : state.score;
  const rows = [...all].sort((a, b) => compare(real(b.scores[basis]), real(a.scores[basis])) || a.input - b.input).slice(0, DATA.top);
  rows.sort((a, b) => (sort.down ? -1 : 1) * compare(column.value(a), column.value(b)) || a.input - b.input);
  const number = state.set === WRONG ? wrongs() : DATA.sets[state.set].number, by = DATA.scores[basis].short;
  $("inputs-why").textContent = !rows.length ? "There are none." : `The ${count(rows.length)} with the highest ${by}, of ${count(number)}. ` +
    `An input's number is its row in ${DATA.files[state.method][source()]}, from 0.` +
    (found.at(-1).name === "drivers" ? ` Why they are uncertain: what the members predict on average, and what they disagree about, as parts of K in nats${by === "K" ? "" : ", since K can be told class by class"}.` : missing());
  const head = found.map((each) => {
    if (!each.value) return element("th", { role: "columnheader", scope: "col", class: "plain" }, each.label);
    const own = each.name === sort.name, button = element("button", { type: "button", "data-column": each.name }, each.label, element("span", { "aria-hidden": "true" }, own ? (sort.down ? " ▼" : " ▲") : " ↕"));
    button.addEventListener("click", () => {
      state.sort = { name: each.name, down: own ? !sort.down : each.number && each.name !== "input" };
      showInputs();
      $("inputs").querySelector(`[data-column="${each.name}"]`).focus();
    });
    return element("th", { role: "columnheader", scope: "col", "aria-sort": own ? (sort.down ? "descending" : "ascending") : "none", class: each.number ? "number" : "" }, button);
  });
  $("inputs").replaceChildren(element("caption", { class: "unseen" }, "The most uncertain inputs"), element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...head)),
    element("tbody", { role: "rowgroup" }, ...rows.map((row) => element("tr", { role: "row" }, ...found.map((each) =>
      element("td", { role: "cell", "data-label": each.label, class: each.number ? "number" : "" }, each.cell ? each.cell(row) : String(each.value(row))))))));
}

const SIGN = { best: " ★", tie: " ≈", "": "" };

function showAll() {
  const found = tasks(), kept = DATA.results.some((scores) => scores[0].kept);
  $("all-section").hidden = found.length === 0 && !kept;
  if ($("all-section").hidden) return;
  const heads = found.map(([task, name]) => ({ name: `AUROC, ${name}`, of: (each) => (task === ERRORS ? each.errors : each.detection[task]) }));
  const rows = DATA.methods.flatMap((method, m) => DATA.scores.map((each, s) => {
    const cell = (bounds, kind) => element("td", { class: kind }, element("span", {}, percent(bounds[0], 2).replace("\u00a0%", ""), SIGN[kind]), element("small", {}, ` ${bounds.slice(1).map((v) => percent(v, 2).replace("\u00a0%", "")).join(" to ")}`));
    const own = DATA.results[m][s], here = m === state.method && s === state.score;
    const cells = heads.map(({ of }) => (of(own) ? cell(of(own).auroc, of(own).mark) : element("td", {}, "–")));
    if (kept) cells.push(own.kept ? cell(own.kept.auc, "") : element("td", {}, "–"));
    return element("tr", here ? { "aria-current": "true" } : {}, element("th", { scope: "row" }, each.short, ...(several ? [element("small", {}, method)] : [])), ...cells);
  }));
  $("all-why").textContent = "In percent, with interval." + (DATA.tally ? ` ★ the best${several ? ` of its ${ROW}'s measures` : ""}, several where they are equal; ≈ statistically tied with it by a paired test. No mark where the AUROC is not shown to be above 50 %, a coin toss.` : "");
  $("all").replaceChildren(element("caption", { class: "unseen" }, "All measures side by side"),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "measure"), ...[...heads.map(({ name }) => name), ...(kept ? ["area of accuracy"] : [])].map((name) => element("th", { scope: "col" }, name)))), element("tbody", {}, ...rows));
  showTally();
}

// What the verdict counts: the marks of the table below it.
function showTally() {
  $("tally").hidden = $("tally-why").hidden = !DATA.tally;
  if (!DATA.tally) return;
  const { number, good, loss } = DATA.tally;
  if (number === 0) {
    $("tally").hidden = true;
    $("tally-why").textContent = "No measure is shown to be better than a coin toss anywhere, so nothing is counted.";
    return;
  }
  $("tally-why").textContent = "The verdict picks the measure that is most often the best or tied (★ or ≈ below); among equals, the one with the smallest largest loss. Comparisons in which no measure is better than a coin toss do not count.";
  $("tally").replaceChildren(element("caption", { class: "unseen" }, "How often each measure is the best or tied"),
    element("thead", {}, element("tr", {}, ...["measure", "best or tied", "largest loss, below the best"].map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...DATA.scores.map((each, s) => element("tr", s === DATA.start[1] ? { class: "chosen" } : {}, element("th", { scope: "row" }, each.short),
      element("td", {}, `${good[s]} of ${number}`), element("td", {}, loss[s])))));
}

function unitOf() {
  if (!DATA.unit || DATA.unit === "nats") return ["nats", "The unit of uncertainty with natural logarithms: a coin toss has 0.69."];
  return DATA.unit === "bits" ? ["bits", "The unit of uncertainty with logarithms to base 2: a coin toss has 1."] : ["unit", `Scores are in ${DATA.unit}.`];
}

function showNotes() {
  $("provenance").replaceChildren(...DATA.provenance.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, element("code", {}, value))]));
  const about = (test) => DATA.scores.filter((each) => test(each.column)).map((each) => [each.short, each.about]);
  const order = [(name) => name.endsWith("aleatoric"), (name) => name.endsWith("epistemic"), (name) => name.endsWith("total")];
  const words = [...about(order[0]), ["epistemic", "Uncertainty because models that fit the data disagree: out-of-distribution inputs tend to have a lot of it."],
    ...about(order[1]), ...about(order[2]), ...about((name) => !order.some((test) => test(name))),
    DATA.byTask ? ["task", "One of the things that the members predict for each input (the column task). Tasks are no rivals: each is measured by itself."]
      : ["method", "A way to get several predictions for one input."],
    ["members", "What gives these predictions, one each: networks of an ensemble, or draws of weights."],
    ["in-distribution inputs", "Inputs of the kinds that the models were trained on (id.csv)."],
    ["out-of-distribution inputs", "Inputs of other kinds (ood-NAME.csv). Adversarial inputs are not among them: those were changed so that a model errs (adversarial-NAME.csv)."],
    ["mistakes", "Wrong predictions for in-distribution inputs."], ["deferred", "Handed to a person because the score is above the threshold; the others are kept."],
    ["AUROC", "How often an input of one kind scores higher than one of the other: 50 % is a coin toss, 100 % perfect."],
    ["points", "Percentage points: from 95.1 % to 95.4 % is 0.3 points."],
    ["statistically tied", "A paired test on these inputs shows no difference; there may still be one."],
    ["area of accuracy", "Mean accuracy over all shares kept, the most certain first."],
    unitOf()];
  $("glossary").replaceChildren(...words.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  $("method-notes").textContent = `Intervals have a confidence level of ${Math.round(100 * DATA.confidence)} %: DeLong for AUROC; for other areas the bootstrap up to ${count(DATA.resampled)} inputs and ` +
    "influence functions above; Clopper-Pearson for shares. The band of a ROC curve covers the whole curve (Massart), that of the accuracy each point by itself. " +
    "The best measure is picked and compared on the same inputs, so p-values are corrected for all pairs of a task (Holm). Each promise holds by itself, for a method, measure and target chosen before seeing the page; " +
    "if you look at several and take the best, it may be luck.";
}

function showFigures() {
  showDensity();
  showRoc();
  showKept();
  showPoints();
}

function update() {
  $("about").textContent = score().about + (score().long === score().column ? "" : ` Column ${score().column}.`);
  buildSlider();
  show();
}

// All but the slider's own place, which a comparison with another set leaves alone.
function show() {
  showFigures();
  showSlider();
  showInputs();
  showAll();
}

function moved(at) {
  state.at = at;
  showSlider();
  showDensity();
  showKept();
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

$("lead").textContent = lead();
$("headline").textContent = glued(DATA.headline[0]);
$("findings").replaceChildren(...DATA.headline.slice(1).map((each) => element("li", {}, glued(each))));
$("accuracies").textContent = glued(DATA.accuracies);
$("accuracies").hidden = !DATA.accuracies;
$("cards").replaceChildren(...DATA.cards.map(card));
buildControls();
showNotes();
$("method").addEventListener("change", () => { state.method = Number($("method").value); state.target = null; update(); });
$("score").addEventListener("change", () => { state.score = Number($("score").value); state.target = state.sort = null; update(); });
$("threshold").addEventListener("input", () => moved(nearest($("threshold").valueAsNumber)));
$("threshold").addEventListener("keydown", step);
$("target").addEventListener("change", () => { state.target = Number($("target").value); const at = state.at; buildSlider(); moved(result().slider.promises[state.target].at ?? at); });
$("go").addEventListener("click", () => moved(result().slider.promises[state.target].at));
$("input-set").addEventListener("change", () => { state.set = Number($("input-set").value); showInputs(); });
$("theme").addEventListener("change", () => setTheme($("theme").value));
setTheme($("theme").value); // browsers may keep a choice when a page is loaded again
update();
let width = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === width) return;
  width = document.body.clientWidth;
  showFigures();
}).observe(document.body);
