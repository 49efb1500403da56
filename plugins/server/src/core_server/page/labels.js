// The labels box: what is typed is asked about when typing pauses, and a bar moves for each label.
// All that comes from models and users is set as text, never as markup.

import { classify } from "./server.js";

const PAUSE = 150; // milliseconds without a key
const at = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Start the box; `model` gives the name of the model to ask. Returns `ask`: ask now. */
export function startLabels(model) {
  let timer = 0;
  let running = null; // what aborts the request that is under way

  function later() {
    running?.abort(); // its answer is stale, and the server stops working on it
    clearTimeout(timer);
    at("bars").classList.add("stale");
    timer = setTimeout(ask, PAUSE);
  }

  async function ask() {
    clearTimeout(timer);
    running?.abort();
    const request = asked();
    if (!model()) return;
    if (request.labels.length < 2) return fail("Give two labels or more, one a line.");
    const mine = (running = new AbortController());
    const begun = performance.now();
    try {
      const answer = await classify({ model: model(), ...request }, mine.signal);
      const [decision] = answer.data;
      if (mine.signal.aborted) return;
      if (decision.error) throw new Error(decision.error.message);
      show(request.labels, decision, answer.usage, performance.now() - begun);
    } catch (error) {
      if (!mine.signal.aborted) fail(error.message);
    }
  }

  at("labels").addEventListener("input", later); // some of the form's fields lie outside of it
  at("asked").addEventListener("submit", (event) => event.preventDefault());
  return { ask };
}

function asked() {
  const lines = at("names").value.split("\n").map((line) => line.trim());
  const request = {
    texts: [at("text").value],
    labels: [...new Set(lines.filter(Boolean))],
    level: new FormData(at("asked")).get("level"),
  };
  const template = at("template").value;
  return template.trim() ? { ...request, template } : request;
}

function fail(message) {
  at("labels-problem").textContent = message;
  at("labels-problem").hidden = false;
  at("bars").replaceChildren();
  at("facts").replaceChildren();
  at("prompt").textContent = "";
}

function show(labels, decision, usage, milliseconds) {
  at("labels-problem").hidden = true;
  at("bars").classList.remove("stale");
  drawBars(labels, decision);
  tell("facts", [
    ["level", decision.level],
    ["margin", percent(decision.margin)],
    ["label mass", percent(decision.label_mass)],
    ["tokens", `${usage.prompt_tokens}, ${usage.prompt_tokens_details.cached_tokens} cached`],
    ["took", `${milliseconds.toFixed(0)} ms`],
  ]);
  at("prompt").replaceChildren(decision.prompts[0], goesOn(decision));
  at("said").textContent = `${decision.label}, ${percent(decision.probabilities[decision.label])}`;
}

/** A bar for each label, in the order of the labels; bars that are there stay, and move. */
function drawBars(labels, decision) {
  const bars = at("bars");
  while (bars.children.length > labels.length) bars.lastChild.remove();
  while (bars.children.length < labels.length) bars.append(newBar());
  labels.forEach((label, place) => {
    const row = bars.children[place];
    const share = decision.probabilities[label];
    row.classList.toggle("best", label === decision.label);
    row.querySelector(".name").textContent = label;
    row.querySelector(".share").textContent = percent(share);
    row.querySelector(".fill").style.transform = `scaleX(${share})`;
  });
}

function newBar() {
  const row = document.createElement("li");
  for (const name of ["name", "share", "track"]) {
    const part = document.createElement("span");
    part.className = name;
    row.append(part);
  }
  const fill = document.createElement("span");
  fill.className = "fill";
  row.querySelector(".track").append(fill);
  return row;
}

function goesOn(decision) {
  const mark = document.createElement("mark");
  const spaced = /\s$/.test(decision.prompts[0]); // then a label follows at once
  mark.textContent = (spaced ? "" : " ") + decision.label;
  return mark;
}

function tell(id, facts) {
  at(id).replaceChildren(
    ...facts.map(([name, value]) => {
      const pair = document.createElement("div");
      for (const [tag, text] of [["dt", name], ["dd", value]]) {
        const part = document.createElement(tag);
        part.textContent = text;
        pair.append(part);
      }
      return pair;
    }),
  );
}
