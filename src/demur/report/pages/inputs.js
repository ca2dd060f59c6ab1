// The report's table of the most uncertain inputs. State: see report.js.

// A picture out of the row of all pictures of its set.
function picture(sheet, place, name) {
  const scale = sheet.shown / Math.max(sheet.width, sheet.height);
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
  if (has("map")) {
    const label = `map of ${DATA.scores[DATA.mapped].short}, dark: high`;
    found.push({ name: "map", label, cell: (row) => (row.map === undefined ? "" : picture(DATA.maps[state.method][source()], row.map, `${label}, of input ${row.input}`)) });
  }
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
  if (DATA.byTask || DATA.numbers || answerTokens()) return ""; // there are no classes
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
    `An input's number is ${DATA.byTask ? "in the column input of" : "its row in"} ${DATA.files[state.method][source()]}, from 0.` +
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
