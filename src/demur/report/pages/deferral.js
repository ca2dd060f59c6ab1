// The report's threshold: the slider, what it does to each set, and what is promised at it. State: see report.js.

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
  $("condition").textContent = !held ? "" : `The promise does not cover ${others.length ? `${others.join(", ").replace(/, ([^,]*)$/, " or $1")}: see the table below.` : "inputs of another kind."}` +
    (promise.target > low ? ` That the interval begins lower is no contradiction: it leaves ${doubt(2)} of doubt on each side, the promise ${doubt(1)} on one.` : "");
  for (const id of ["looked", "promised", "condition"]) $(id).hidden = !$(id).textContent;
  $("again").hidden = !held;
  $("fit").textContent = `demur evaluate defer fit FRESH.csv --score ${score().column} --accuracy ${promise.target}${DATA.clusters ? ` --clusters ${DATA.clusters}` : ""} --out policy.json`;
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
