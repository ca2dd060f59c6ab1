// The report's answers of language models: their text, each token shaded by its own score. State: see report.js.

const ANSWERS_SHOWN = 20, WORST_NAMED = 3;

// What is known of the tokens of the set that is shown; nothing where it has none.
const answerTokens = () => (DATA.tokens[state.method] ?? [])[source()] ?? null;

// Whose shades are shown: the chosen score, or what tokens have in its place.
function tokenScore(about) {
  const own = about.scores.indexOf(score().column), surprisal = about.scores.indexOf("surprisal");
  if (own >= 0) return own;
  return score().column === "perplexity" && surprisal >= 0 ? surprisal : 0;
}

const tokenName = (column) => (column === "surprisal" ? "surprisal" : DATA.scores.find((each) => each.column === column).short);

// A token that is only space, a line's end, a control or a mark without a width would not be seen.
const NAMED = { "\n": "\u23ce\n", " ": "\u2423" };
const nameLetter = (letter) => NAMED[letter] ?? `\\u${letter.codePointAt(0).toString(16).padStart(4, "0")}`;
const visible = (token) => (/^[\s\p{C}]*$/u.test(token) ? [...token].map(nameLetter).join("") : token);

function shaded(token, value, [mark, deepest], name) {
  const [, before, word] = /^(\s*)([^]*)$/.exec(visible(token));
  const made = element(value >= mark && value > 0 ? "mark" : "span", { class: "token", title: `${name} ${text(value)}` }, word);
  const depth = deepest > 0 ? Math.max(0, Math.min(1, value / deepest)) : 0;
  made.style.setProperty("--depth", `${Math.round(65 * depth)}%`);
  return [before, made];
}

function showAnswers() {
  const about = answerTokens();
  $("answers-section").hidden = !about;
  if (!about) return;
  const at = tokenScore(about), name = tokenName(about.scores[at]), scale = about.scales[at].map(real);
  const all = DATA.rows[state.method][source()].filter((row) => row.answer); // also where only mistakes are listed below
  const rows = [...all].sort((a, b) => compare(real(b.scores[state.score]), real(a.scores[state.score])) || a.input - b.input).slice(0, Math.min(DATA.top, ANSWERS_SHOWN));
  const whose = DATA.sets.length > 1 ? `, of ${DATA.sets[source()].name}` : "";
  $("answers-why").textContent = `By ${score().short} of the whole answer${whose}${about.limits ? ", from lists of the likeliest tokens: the least that it can be" : ""}. ` +
    `Words are shaded by their own ${name}; those in bold are among the 5 % of all tokens with the highest.`;
  const steps = [0.05, 0.35, 0.65, 1].flatMap((depth) => shaded("word", depth * scale[1], [Infinity, scale[1]], name));
  $("answers-key").replaceChildren(element("span", {}, "low"), ...steps, element("span", {}, `${text(scale[1])} and above`));
  $("answers").replaceChildren(...rows.map((row) => {
    const values = row.answer.values[at].map(real);
    const worst = values.map((_, index) => index).sort((a, b) => values[b] - values[a] || a - b).slice(0, WORST_NAMED).filter((index) => values[index] > 0);
    const words = row.answer.tokens.flatMap((token, index) => shaded(token, values[index], scale, name));
    // Text that is read from the right does not move what stands around it.
    const named = (index, place) => [place ? ", \u201c" : "\u201c", element("bdi", {}, visible(row.answer.tokens[index]).trim()), `\u201d ${text(values[index], 3)}`];
    const rest = row.answer.rest ? [element("span", { class: "unscored", title: "not scored: members had written different words before, or too long to show" }, row.answer.rest)] : [];
    return element("li", {}, element("p", { class: "head" }, element("b", { dir: "auto" }, row.id ?? `input ${row.input}`), ` ${score().short} ${text(row.scores[state.score])}`,
      ...(row.right === undefined ? [] : [element("span", { class: row.right ? "right" : "wrong" }, row.right ? " right" : " wrong")])),
    element("p", { class: "answer", dir: "auto" }, ...words, ...rest),
    element("p", { class: "worst" }, ...(worst.length ? ["most doubtful: ", ...worst.flatMap(named)] : ["no token is doubtful"])));
  }));
}
