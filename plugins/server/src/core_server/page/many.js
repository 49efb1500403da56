// Many pasted texts, a line each, and their accuracy where the gold label is pasted with them.

import { classify } from "./server.js";

const MOST = 1000; // texts of one request
const at = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Start the form; `question` gives the request without texts, or throws what is wrong with it. */
export function startMany(question) {
  at("many").addEventListener("submit", async (event) => {
    event.preventDefault();
    problem("");
    at("classify").disabled = true;
    try {
      const rows = pasted();
      const answer = await classify({ ...question(), texts: rows.map((row) => row.text) });
      show(rows, answer.data);
    } catch (error) {
      at("results").hidden = true;
      problem(error.message);
    }
    at("classify").disabled = false;
  });
}

/** The rows that were pasted: a text, and behind a tab, as spreadsheets copy it, a gold label. */
function pasted() {
  const lines = at("lines").value.split(/\r?\n/).filter((line) => line.trim());
  if (!lines.length) throw new Error("Paste texts, one a line.");
  if (lines.length > MOST) throw new Error(`Paste at most ${MOST} texts; infer-cli takes any number.`);
  return lines.map((line) => {
    const end = line.lastIndexOf("\t");
    return end < 0
      ? { text: line, gold: "" }
      : { text: line.slice(0, end), gold: line.slice(end + 1).trim() };
  });
}

function show(rows, decisions) {
  const judged = rows.map((row, place) => ({ ...row, ...read(decisions[place]) }));
  at("rows").replaceChildren(...judged.map(line));
  at("results").hidden = false;
  at("accuracy").textContent = accuracy(judged.filter((row) => row.gold && !row.error));
}

function read(decision) {
  if (decision.error) return { error: decision.error.message, label: "", share: null };
  const shares = decision.labels.map((label) => decision.probabilities[label]);
  return { label: decision.labels.join(", "), share: shares.length ? Math.min(...shares) : null };
}

const set = (labels) => labels.split(",").map((label) => label.trim()).sort().join(",");
const right = (row) => row.label === row.gold || set(row.label) === set(row.gold);

function line(row) {
  const made = document.createElement("tr");
  if (row.gold && !row.error) made.className = right(row) ? "right" : "wrong";
  const shown = [row.text, row.error ?? row.label, row.share === null ? "" : percent(row.share), row.gold];
  for (const text of shown) {
    const cell = document.createElement("td");
    cell.textContent = text;
    made.append(cell);
  }
  return made;
}

/** Correct labels of those with a gold label, with the 95 % interval of Wilson (1927). */
function accuracy(rows) {
  if (!rows.length) return "For the accuracy, paste the gold label after a tab, as a spreadsheet copies it.";
  const n = rows.length;
  const hits = rows.filter(right).length;
  const z2 = 1.959964 ** 2;
  const middle = (hits + z2 / 2) / (n + z2);
  const half = Math.sqrt(z2 * ((hits * (n - hits)) / n + z2 / 4)) / (n + z2);
  const counts = Map.groupBy ? Map.groupBy(rows, (row) => row.gold) : new Map();
  const most = Math.max(0, ...[...counts.values()].map((own) => own.length));
  const guess = most ? ` Always the commonest label: ${percent(most / n)}.` : "";
  const interval = `${percent(Math.max(0, middle - half))} to ${percent(Math.min(1, middle + half))}`;
  return `Correct: ${hits} of ${n}, ${percent(hits / n)} (${interval}).${guess}`;
}

function problem(text) {
  at("many-problem").textContent = text;
  at("many-problem").hidden = !text;
}
