"use strict";
// Decisions: kept in the browser or sent to the server, taken back, written as CSV.

const data = JSON.parse(document.getElementById("data").textContent);

const decisions = (() => {
  const key = `imae-audit-${data.identity}`;
  const listeners = [];
  const unsent = new Map(); // row id -> its decision, or null if it was taken back
  let actions = [];         // each a list of decisions that one undo takes back
  let current = new Map();  // row id -> its last decision
  let sending = false;
  let kept = true;          // whether the storage has the actions

  const isDecision = one => one !== null && typeof one === "object" && typeof one.row_id === "string";

  function read() {
    if (data.served) return data.saved.map(one => [one]);
    try {
      const stored = JSON.parse(localStorage.getItem(key) || "[]");
      return stored.filter(action => Array.isArray(action) && action.every(isDecision));
    } catch {
      return []; // no storage, or something else in it
    }
  }

  function replay() {
    current = new Map();
    for (const action of actions) for (const one of action) current.set(one.row_id, one);
  }

  function changed(rowIds) {
    replay();
    if (data.served) {
      for (const rowId of rowIds) unsent.set(rowId, current.get(rowId) || null);
      send();
    } else {
      try {
        localStorage.setItem(key, JSON.stringify(actions));
        kept = true;
        tell("");
      } catch {
        kept = false;
        tell("This browser cannot keep decisions: download them before you close the page.");
      }
    }
    for (const listener of listeners) listener();
  }

  function tell(words) {
    document.getElementById("alert").textContent = words;
  }

  async function send() {
    if (sending || unsent.size === 0) return;
    sending = true;
    const batch = [...unsent];
    const changes = batch.map(([rowId, one]) => one || { row_id: rowId, decision: null });
    let problem = "";
    try {
      const answer = await fetch("decisions", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ identity: data.identity, changes }),
      });
      if (!answer.ok) problem = (await answer.text()).trim() || `answer ${answer.status}`;
    } catch {
      problem = "the server does not answer";
    }
    sending = false;
    if (problem) {
      tell(`Not saved: ${problem}. The next decision tries again.`);
      return;
    }
    for (const [rowId, one] of batch) if (unsent.get(rowId) === one) unsent.delete(rowId);
    tell("");
    send(); // what was decided in the meantime
  }

  actions = read();
  replay();
  function adopt(all) {
    actions = all;
    replay();
    for (const listener of listeners) listener();
  }
  async function readAgain() { // another page of this run may have decided
    if (!data.served) {
      if (kept) adopt(read());
      return;
    }
    const number = actions.length;
    try {
      const answer = await fetch("decided");
      const saved = answer.ok ? await answer.json() : [];
      // What was decided here in the meantime is on its way to the server.
      const isIdle = !sending && unsent.size === 0 && actions.length === number;
      const isNew = saved.length !== current.size || saved.some(isOther);
      if (answer.ok && isIdle && isNew) adopt(saved.map(one => [one]));
    } catch {
      return; // the next decision says that the server does not answer
    }
  }
  function isOther(one) {
    const known = current.get(one.row_id);
    return known === undefined || ["decision", "label", "time"].some(name => known[name] !== one[name]);
  }
  addEventListener("storage", event => { if (event.key === key) readAgain(); });
  addEventListener("focus", readAgain); // an event that was missed would cost decisions

  return {
    of: rowId => current.get(rowId),
    number: () => current.size,
    onChange: listener => listeners.push(listener),
    waiting: () => unsent.size > 0,
    make(list) {
      const time = new Date().toISOString().replace(/\.\d+Z$/, "Z");
      const action = list.map(one => ({ ...one, by: "person", time }));
      actions.push(action);
      changed(action.map(one => one.row_id));
    },
    last: () => (actions.at(-1) ?? []).map(one => one.row_id),
    tell,
    undo() {
      const action = actions.pop();
      if (action === undefined) return [];
      const rowIds = action.map(one => one.row_id);
      changed(rowIds);
      return rowIds;
    },
    csv() {
      const names = ["row_id", "given", "decision", "label", "by", "time", "audit"];
      const rows = [...current.values()].map(one => [
        guard(one.row_id), guard(one.given), one.decision, guard(one.label), guard(one.by), one.time, data.identity,
      ]);
      return [names, ...rows].map(row => row.map(quoted).join(",") + "\r\n").join("");
    },
  };
})();

// A spreadsheet runs a cell that begins like a formula; the apostrophe makes it text.
function guard(text) {
  return /^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
}

function quoted(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// The exact lower bound of Clopper and Pearson: the p at which P(X >= wrong) is 1 - confidence.
function lowerBound(wrong, rows, confidence) {
  if (wrong === 0) return 0;
  const logs = [0];
  for (let number = 1; number <= rows; number += 1) logs.push(logs[number - 1] + Math.log(number));
  const chance = p => {
    let sum = 0;
    for (let count = wrong; count <= rows; count += 1) {
      const ways = logs[rows] - logs[count] - logs[rows - count];
      sum += Math.exp(ways + count * Math.log(p) + (rows - count) * Math.log1p(-p));
    }
    return sum;
  };
  let [low, high] = [0, 1];
  for (let halving = 0; halving < 60; halving += 1) {
    const middle = (low + high) / 2;
    if (chance(middle) < 1 - confidence) low = middle;
    else high = middle;
  }
  return low;
}
