// The four figures of the report, drawn from its state (see report.js).

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
    label: "K against I", rest: points.length === 1 ? "One input." : `Up to ${DATA.points[state.method][own[0]][0].length} inputs of each set, evenly by rank of K.`,
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
