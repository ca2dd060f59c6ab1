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
  return `${several ? `${DATA.methods.length} ${ROW}s. ` : ""}Inputs: ${DATA.sets.map((set) => `${count(set.number)} ${set.number === 1 ? set.name.replace(/inputs$/, "input") : set.name}`).join(", ")}. ` +
    "Higher scores mean less certain predictions.";
}

const glued = (words) => words.replaceAll(" %", "\u00a0%"); // no line breaks there

function card(content) {
  const [value, low, high] = content.bounds;
  const [from, to] = content.ends ?? [Math.min(0.5, low), 1], place = (share) => `${(100 * (share - from)) / (to - from)}%`;
  const ends = content.ends ? [from, to].map((end) => String(end).replace("-", "\u2212")) : [`${percent(from, 0)}${content.chance && from === 0.5 ? ", a coin toss" : ""}`, "100 %"];
  const range = element("span", { class: "range" }), dot = element("span", { class: "dot" });
  Object.assign(range.style, { left: place(low), right: `calc(100% - ${place(high)})` });
  dot.style.left = place(value);
  const toss = content.chance && from < 0.5 ? [element("span", { class: "toss" }, "coin toss")] : []; // where the axis begins below it
  for (const mark of toss) mark.style.left = place(0.5);
  return element("article", { class: "card" }, element("h3", {}, content.title),
    element("p", { class: "figure" }, glued(content.figure), element("small", {}, ` ${content.unit ?? (content.chance ? "AUROC" : "accuracy")}`)),
    element("div", { class: "whisker", "aria-hidden": "true" }, ...toss, range, dot, ...ends.map((end) => element("small", {}, end))),
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
  const together = `Inputs with the same ${DATA.clusters} belong together: intervals, bands and tests are over draws of whole clusters, and promises are fitted on one input of each, so that they hold for an input of a new cluster. `;
  const alone = `DeLong for AUROC; for other areas the bootstrap up to ${count(DATA.resampled)} inputs and influence functions above; Clopper-Pearson for shares. `;
  $("method-notes").textContent = `Intervals have a confidence level of ${Math.round(100 * DATA.confidence)} %${DATA.clusters ? `. ${together}` : `: ${alone}`}` +
    "The band of a ROC curve covers the whole curve (Massart), that of the accuracy each point by itself. " +
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
  showAnswers();
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
$("cards").replaceChildren(...[...DATA.cards, DATA.parts].filter(Boolean).map(card));
buildControls();
showNotes();
$("method").addEventListener("change", () => { state.method = Number($("method").value); state.target = null; update(); });
$("score").addEventListener("change", () => { state.score = Number($("score").value); state.target = state.sort = null; update(); });
$("threshold").addEventListener("input", () => moved(nearest($("threshold").valueAsNumber)));
$("threshold").addEventListener("keydown", step);
$("target").addEventListener("change", () => { state.target = Number($("target").value); const at = state.at; buildSlider(); moved(result().slider.promises[state.target].at ?? at); });
$("go").addEventListener("click", () => moved(result().slider.promises[state.target].at));
$("input-set").addEventListener("change", () => { state.set = Number($("input-set").value); showInputs(); showAnswers(); });
$("theme").addEventListener("change", () => setTheme($("theme").value));
setTheme($("theme").value); // browsers may keep a choice when a page is loaded again
update();
let width = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === width) return;
  width = document.body.clientWidth;
  showFigures();
}).observe(document.body);
