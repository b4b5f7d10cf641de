"use strict";
// The cards: shown by filters, moved through by arrows, decided by keys and buttons.

const cards = [...document.querySelectorAll(".card")];
const filters = document.getElementById("filters");
const selected = new Set();
let shown = cards.map((_, index) => index);
let current = 0;

const suggestionOf = row => (row.suggested === null ? null : data.classes[row.suggested]);

function decisionOf(index, act, label) {
  const row = data.rows[index];
  const made = { row_id: row.id, given: data.classes[row.given], decision: act, label: "" };
  if (act === "relabel") made.label = label;
  if (act === "accept") {
    if (row.suggested === null) made.decision = "no_class";
    else if (row.suggested === row.given) made.decision = "keep";
    else made.label = suggestionOf(row);
  }
  if (made.decision === "relabel" && made.label === made.given) Object.assign(made, { decision: "keep", label: "" });
  return made;
}

function decide(act, label = "") {
  if (shown.length === 0) return;
  const targets = selected.size > 0 ? [...selected] : [current];
  decisions.make(targets.map(index => decisionOf(index, act, label)));
  const last = Math.max(...targets);
  unselect();
  const open = index => decisions.of(data.rows[index].id) === undefined;
  const next = shown.find(index => index > last && open(index)) ?? shown.find(open);
  moveTo(next ?? current);
}

function undo() {
  const isHere = data.rows.some(row => decisions.last().includes(row.id));
  if (!isHere && decisions.last().length > 0) {
    decisions.tell("The last decision was made on another page: take it back there.");
    return;
  }
  const rowIds = decisions.undo();
  const index = data.rows.findIndex(row => rowIds.includes(row.id));
  if (index >= 0 && cards[index].hidden) resetFilters();
  if (index >= 0) moveTo(index);
}

function moveTo(index, { focus = true } = {}) {
  cards[current].removeAttribute("aria-current");
  cards[current].tabIndex = -1;
  current = index;
  const card = cards[current];
  card.setAttribute("aria-current", "true");
  card.tabIndex = 0;
  if (focus) {
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
  }
}

function step(by, extend) {
  const place = shown.indexOf(current);
  const target = shown[Math.min(Math.max(place + by, 0), shown.length - 1)];
  if (target === undefined) return;
  if (extend) select([current, target], true);
  moveTo(target);
}

function columns() {
  const top = cards[shown[0]].offsetTop;
  const below = shown.findIndex(index => cards[index].offsetTop > top);
  return below < 0 ? shown.length : below;
}

function select(indices, isOn) {
  for (const index of indices) {
    if (isOn) selected.add(index);
    else selected.delete(index);
    cards[index].classList.toggle("selected", isOn);
    cards[index].querySelector("input").checked = isOn;
  }
  showStatus();
}

function unselect() {
  select([...selected], false);
}

const words = {
  accept: one => `accepted: ${shownName(one.label)}`,
  keep: () => "kept",
  relabel: one => `→ ${shownName(one.label)}`,
  no_class: () => "no class",
  skip: () => "skipped",
  flag: () => "marked",
};

function shownName(name) {
  return data.shown[data.classes.indexOf(name)] ?? name;
}

function paint() {
  cards.forEach((card, index) => {
    const one = decisions.of(data.rows[index].id);
    if (one === undefined) delete card.dataset.decision;
    else card.dataset.decision = one.decision;
    card.querySelector("[data-verdict]").textContent = one && words[one.decision] ? words[one.decision](one) : "";
  });
  showStatus();
  showBound();
}

function showStatus() {
  const done = data.rows.filter(row => decisions.of(row.id) !== undefined).length;
  const picked = selected.size > 0 ? `, ${selected.size} selected` : "";
  const all = Math.min(decisions.number(), data.num_suspects).toLocaleString("en");
  const others = data.others.length > 0 ? ` on this page, ${all} of ${data.num_suspects.toLocaleString("en")} in all` : "";
  document.getElementById("status").textContent = `${done} of ${data.rows.length} decided${others}${picked}`;
}

function showBound() {
  const place = document.getElementById("bound");
  if (place === null) return;
  const made = data.rows.map(row => decisions.of(row.id)).filter(one => one !== undefined);
  const wrong = made.filter(one => ["accept", "relabel", "no_class"].includes(one.decision)).length;
  if (made.length < data.rows.length) {
    place.textContent = `${made.length} of ${data.rows.length} judged; the bound needs all of them.`;
    return;
  }
  if (data.rows.length === data.num_flagged) {
    place.textContent = `${wrong} of all ${data.num_flagged} flagged rows are wrong: ${(100 * wrong / data.num_flagged).toFixed(1)}% of them.`;
    return;
  }
  const bound = 100 * lowerBound(wrong, data.rows.length, data.confidence);
  place.textContent = `${wrong} of ${data.rows.length} are wrong: with ${+(100 * data.confidence).toFixed(6)}% confidence at least ${(Math.floor(10 * bound) / 10).toFixed(1)}% of all ${data.num_flagged} flagged labels are wrong.`;
}

const kinds = {
  "": () => true,
  other: row => row.suggested !== null && row.suggested !== row.given,
  none: row => row.suggested === null,
  group: row => row.group >= 0,
};

// Decisions are known only for the rows of this page.
const decided = {
  open: row => decisions.of(row.id) === undefined,
  decided: row => decisions.of(row.id) !== undefined,
  flag: row => decisions.of(row.id)?.decision === "flag",
};

function isMatch(row, chosen) {
  return (chosen.pair === "" || chosen.pair === pairOf(row))
    && (chosen.class === "" || row.given === Number(chosen.class) || row.suggested === Number(chosen.class))
    && 100 * row.certainty >= Number(chosen.certainty)
    && (kinds[chosen.kind] ?? decided[chosen.kind])(row);
}

function countOn(page, chosen) {
  return page.given.filter((given, place) => isMatch({
    given,
    suggested: page.suggested[place] < 0 ? null : page.suggested[place],
    certainty: page.certainty[place] / 100,
    group: page.group[place] - 1,
  }, chosen)).length;
}

function applyFilters() {
  const chosen = Object.fromEntries(new FormData(filters));
  filters.querySelector("output").textContent = `${chosen.certainty}%`;
  shown = [];
  cards.forEach((card, index) => {
    card.hidden = !isMatch(data.rows[index], chosen);
    if (!card.hidden) shown.push(index);
  });
  select([...selected].filter(index => cards[index].hidden), false);
  showMatches(chosen);
  if (!shown.includes(current) && shown.length > 0) moveTo(shown[0], { focus: false });
}

// How many rows match the filters on this page and on others, with a link to the next page.
function showMatches(chosen) {
  const isFiltered = Object.entries(chosen).some(([name, value]) => value !== (name === "certainty" ? "0" : ""));
  const mark = isFiltered ? `#${new URLSearchParams(chosen)}` : "";
  for (const link of document.querySelectorAll(".pages a")) link.href = link.getAttribute("href").split("#")[0] + mark;
  const place = document.getElementById("matches");
  place.hidden = !isFiltered;
  if (!isFiltered) return;
  const rows = number => `${number.toLocaleString("en")} row${number === 1 ? "" : "s"}`;
  if (data.others.length === 0) {
    place.textContent = shown.length > 0 ? `${rows(shown.length)} under these filters.` : "No row is left under these filters.";
    return;
  }
  if (chosen.kind in decided) {
    place.textContent = `${rows(shown.length)} on this page; what was decided is known page by page.`;
    return;
  }
  const found = data.others.map(page => ({ ...page, count: countOn(page, chosen) })).filter(page => page.count > 0);
  const total = shown.length + found.reduce((sum, page) => sum + page.count, 0);
  place.textContent = `${shown.length.toLocaleString("en")} of ${rows(total)} under these filters ${shown.length === 1 ? "is" : "are"} on this page. `;
  const next = found.find(page => page.part > data.part) ?? found[0];
  if (next === undefined) return;
  const link = document.createElement("a");
  link.href = next.file + mark;
  link.textContent = `Next: ${next.count.toLocaleString("en")} on page ${next.part + 1}`;
  place.append(link);
}

function pairOf(row) {
  return `${row.given}-${row.suggested ?? "none"}`;
}

function resetFilters() {
  filters.reset();
  applyFilters();
}

function showPair(key) {
  resetFilters();
  filters.elements.pair.value = key;
  applyFilters();
  document.getElementById("suspects").scrollIntoView();
  if (shown.length > 0) moveTo(shown[0]);
}

// Filters set by a link from another page.
function takeFilters() {
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    const field = ["pair", "class", "kind", "certainty"].includes(name) ? filters.elements[name] : null;
    if (field !== null) field.value = value;
    if (field instanceof HTMLSelectElement && field.selectedIndex < 0) field.value = "";
  }
  applyFilters();
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([decisions.csv()], { type: "text/csv;charset=utf-8" }));
  link.download = data.file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const acts = {
  accept: () => decide("accept"),
  keep: () => decide("keep"),
  no_class: () => decide("no_class"),
  skip: () => decide("skip"),
  flag: () => decide("flag"),
  search: () => search.open(),
  undo,
  help: () => document.getElementById("help").showModal(),
  download,
  more: () => {
    const isOpen = document.getElementById("bar").classList.toggle("open");
    document.querySelector("[data-act=more]").setAttribute("aria-expanded", String(isOpen));
  },
};

const keys = {
  a: acts.accept, x: acts.keep, n: acts.no_class, " ": acts.skip, f: acts.flag, "/": acts.search,
  Backspace: acts.undo, h: acts.help, "?": acts.help, Escape: unselect,
  s: () => select([current], !selected.has(current)), Enter: () => look.open(current),
  ArrowLeft: event => step(-1, event.shiftKey), ArrowRight: event => step(1, event.shiftKey),
  ArrowUp: event => step(-columns(), event.shiftKey), ArrowDown: event => step(columns(), event.shiftKey),
  Home: () => step(-shown.length), End: () => step(shown.length),
};

// Keys belong to whatever is being typed in, and space and enter to a button that has the focus.
function isTaken(event) {
  const target = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return true;
  const dialog = document.querySelector("dialog[open]");
  if (dialog !== null && (dialog !== look.dialog || event.key === "Escape")) return true;
  if (target.matches("select, textarea, input:not([type=checkbox]), [contenteditable]")) return true;
  return [" ", "Enter"].includes(event.key) && target.matches("button, a, input, summary, .scroll, .whole");
}

// The digit on a key, on any layout; not where it types "/", and not an arrow of the numeric pad.
function digitOf(event) {
  const code = /^(Digit|Numpad)(\d)$/.exec(event.code);
  const isDigit = code !== null && event.key !== "/" && (code[1] === "Digit" || event.key === code[2]);
  return isDigit ? code[2] : null;
}

addEventListener("keydown", event => {
  if (isTaken(event)) return;
  const digit = digitOf(event);
  if (digit !== null) {
    const number = data.keys.indexOf(`${event.shiftKey ? "shift " : ""}${digit}`);
    if (number < 0) return;
    look.dialog.close();
    decide("relabel", data.classes[number]);
  } else {
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act === undefined || shown.length === 0 && ![acts.undo, acts.help].includes(act)) return;
    look.dialog.close();
    act(event);
  }
  event.preventDefault();
});

cards.forEach((card, index) => {
  card.addEventListener("click", event => {
    if (event.target.closest("button, label") !== null) return;
    if (event.shiftKey) {
      const [low, high] = [Math.min(current, index), Math.max(current, index)];
      select(shown.filter(each => each >= low && each <= high), true);
    } else if (event.ctrlKey || event.metaKey) select([index], !selected.has(index));
    moveTo(index);
    const isPlain = !event.shiftKey && !event.ctrlKey && !event.metaKey;
    if (isPlain && event.target.closest(".opens") !== null) look.open(index);
  });
  card.querySelector("input").addEventListener("change", event => {
    select([index], event.target.checked);
    moveTo(index);
  });
});

for (const button of document.querySelectorAll("[data-act]")) {
  button.addEventListener("click", () => acts[button.dataset.act]());
}
for (const button of document.querySelectorAll("[data-class]")) {
  button.addEventListener("click", () => decide("relabel", data.classes[Number(button.dataset.class)]));
}
for (const button of document.querySelectorAll("[data-look]")) {
  const index = Number(button.dataset.look);
  button.addEventListener("click", () => { moveTo(index); look.open(index); });
}
for (const button of document.querySelectorAll("[data-pair]")) {
  button.addEventListener("click", () => showPair(button.dataset.pair));
}
for (const button of document.querySelectorAll("[data-group]")) {
  const group = Number(button.dataset.group);
  button.addEventListener("click", () => select(shown.filter(index => data.rows[index].group === group), true));
}
document.getElementById("select-all").addEventListener("click", () => select(shown, true));
filters.addEventListener("input", applyFilters);
filters.addEventListener("reset", () => setTimeout(applyFilters)); // once it is reset
filters.addEventListener("submit", event => event.preventDefault());
addEventListener("hashchange", takeFilters);
addEventListener("beforeunload", event => { if (decisions.waiting()) event.preventDefault(); });

decisions.onChange(paint);
const filtering = document.getElementById("filtering");
filtering.hidden = false;
filtering.open = matchMedia("(min-width: 40rem)").matches;
document.getElementById("bar").hidden = false;
if (cards.length > 0) {
  paint();
  const first = data.rows.findIndex(row => decisions.of(row.id) === undefined);
  moveTo(Math.max(first, 0), { focus: false });
  takeFilters();
}
