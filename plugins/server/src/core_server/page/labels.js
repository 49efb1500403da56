// The labels box: a pause in typing sends the question, and a bar moves for each label.
// All text from models and users is set as text, never as markup.

import { classifyCommand, curl, python, startCopies } from "./copies.js";
import { startMany } from "./many.js";
import { classify } from "./server.js";

const PAUSE = 150; // milliseconds without a key
const SHOWN = 12; // bars; the rest are folded
const at = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const MEANINGS = {
  method: "How the probabilities were calibrated: raw (not at all), a method such as content-free, or a classifier head.",
  margin: "The best label's probability minus the second best: small if the model hesitates.",
  "label mass":
    "The share of the model's probability that any of the labels has, before it is spread over them. " +
    "It is small if the prompt does not name the labels; compare it between prompts.",
  tokens: "The length of the prompt in the model's units, and how many of them were computed before.",
  took: "The time from the question to the answer, network included.",
};

/** Start the box; `model` gives the name of the selected model. Returns `ask` and `setTasks`. */
export function startLabels(model) {
  let timer = 0;
  let running = null; // aborts the request that is under way
  let last = null; // the last question with its answer
  let tasks = [];

  const task = () => tasks.find((one) => one.id === at("task").value);

  function later() {
    running?.abort(); // its answer is stale, and the server stops working on it
    clearTimeout(timer);
    at("bars").classList.add("stale");
    timer = setTimeout(ask, PAUSE);
  }

  async function ask() {
    clearTimeout(timer);
    running?.abort();
    if (!model()) return;
    const mine = (running = new AbortController());
    const begun = performance.now();
    try {
      const question = { model: model(), ...asked(task()), texts: [at("text").value] };
      const answer = await classify(question, mine.signal);
      const [decision] = answer.data;
      if (mine.signal.aborted) return;
      if (decision.error) throw new Error(decision.error.message);
      last = { question, decision };
      show(decision, answer.usage, performance.now() - begun);
    } catch (error) {
      if (!mine.signal.aborted) fail(error.message);
    }
  }

  function setTasks(listed) {
    tasks = listed;
    const options = tasks.map((one) => new Option(`${one.id} (${one.object}, ${one.labels.length} labels)`, one.id));
    at("task").replaceChildren(new Option("my own labels", ""), ...options);
    at("task-row").hidden = !tasks.length;
    chosen();
  }

  function chosen() {
    const own = !task();
    for (const id of ["own", "wording"]) at(id).hidden = !own;
    if (task() && [...at("model").options].some((option) => option.value === task().model)) {
      at("model").value = task().model; // a calibration or a head belongs to one model
    }
  }

  at("task").addEventListener("change", () => {
    chosen();
    later();
  });
  at("labels").addEventListener("input", (event) => event.target.form?.id === "asked" && later());
  at("asked").addEventListener("submit", (event) => event.preventDefault());
  startMany(() => ({ model: model(), ...asked(task()) }));

  const question = () => last?.question ?? { model: model(), texts: [at("text").value] };
  startCopies("copies", {
    curl: () => curl("v1/classify", question()),
    python: () => python("v1/classify", question(), `print(json.load(reply)["data"][0])`),
    command: () => classifyCommand({ level: "raw", labels: [], ...question(), template: template(last) }),
  });
  return { ask, setTasks };
}

/** The question, without texts. Throws an error that says what is missing. */
function asked(task) {
  if (task) return { task: task.id };
  const lines = at("names").value.split("\n").map((line) => line.trim()).filter(Boolean);
  const labels = [...new Set(lines)];
  if (labels.length < 2) {
    const twice = lines.length > 1 ? `'${labels[0]}' is listed ${lines.length} times. ` : "";
    throw new Error(`${twice}Give two ${twice ? "different " : ""}labels or more, one a line.`);
  }
  const request = { labels, level: new FormData(at("asked")).get("level") };
  const template = at("template").value;
  return template.trim() ? { ...request, template } : request;
}

/** The template of a question: its own, or the server's, of which the prompt is known. */
function template(last) {
  if (!last || last.question.template) return last?.question.template ?? "{text}";
  const [text, prompt] = [last.question.texts[0], last.decision.prompts[0]];
  return prompt.startsWith(text) ? `{text}${prompt.slice(text.length)}` : "{text}";
}

function fail(message) {
  at("labels-problem").textContent = message;
  at("labels-problem").hidden = false;
  for (const id of ["bars", "rest", "facts"]) at(id).replaceChildren();
  at("folded").hidden = true;
  at("prompt").textContent = "";
}

function show(decision, usage, milliseconds) {
  at("labels-problem").hidden = true;
  at("bars").classList.remove("stale");
  drawBars(decision);
  tell("facts", [
    ["method", decision.level],
    ["margin", decision.margin ?? null, percent],
    ["label mass", decision.label_mass ?? null, percent],
    ["tokens", `${usage.prompt_tokens}, ${usage.prompt_tokens_details.cached_tokens} cached`],
    ["took", `${milliseconds.toFixed(0)} ms`],
  ]);
  at("prompt").replaceChildren(decision.prompts.join("\n"), goesOn(decision));
  const best = decision.labels.map((label) => `${label}, ${percent(decision.probabilities[label])}`);
  at("said").textContent = best.join("; ") || "no label";
}

/** A bar for each label, the most probable first; those beyond `SHOWN` are folded. */
function drawBars(decision) {
  const sorted = Object.entries(decision.probabilities).sort(([, one], [, other]) => other - one);
  fill(at("bars"), sorted.slice(0, SHOWN), decision);
  fill(at("rest"), sorted.slice(SHOWN), decision);
  const more = sorted.length - SHOWN;
  at("folded").hidden = more <= 0;
  at("more").textContent = `${more} more ${more === 1 ? "label" : "labels"}`;
}

function fill(bars, shares, decision) {
  while (bars.children.length > shares.length) bars.lastChild.remove();
  while (bars.children.length < shares.length) bars.append(newBar());
  shares.forEach(([label, share], place) => {
    const row = bars.children[place];
    row.classList.toggle("best", decision.labels.includes(label));
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

/** The label after the prompt, as the model reads it; a head, or several labels, read none. */
function goesOn(decision) {
  if (decision.level === "head" || !decision.label) return "";
  const mark = document.createElement("mark");
  const spaced = /\s$/.test(decision.prompts[0]); // then a label follows at once
  mark.textContent = (spaced ? "" : " ") + decision.label;
  return mark;
}

function tell(id, facts) {
  const known = facts.filter(([, value]) => value !== null);
  at(id).replaceChildren(
    ...known.map(([name, value, shown = String]) => {
      const pair = document.createElement("div");
      pair.title = MEANINGS[name];
      for (const [tag, text] of [["dt", name], ["dd", shown(value)]]) {
        const part = document.createElement(tag);
        part.textContent = text;
        pair.append(part);
      }
      return pair;
    }),
  );
  at("meanings").replaceChildren(
    ...known.map(([name]) => {
      const row = document.createElement("li");
      const word = document.createElement("strong");
      word.textContent = name;
      row.append(word, `: ${MEANINGS[name]}`);
      return row;
    }),
  );
}
