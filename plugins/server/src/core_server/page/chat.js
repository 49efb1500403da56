// The chat: an answer is shown as it is made, and stops when it is told to.
// All text from models and users is set as text, never as markup: see markdown.js.

import { chatCommand, curl, python, startCopies } from "./copies.js";
import { elements } from "./markdown.js";
import { chat, prompt } from "./server.js";

const PAUSE = 250; // milliseconds without a key, before the prompt is asked for
const at = (id) => document.getElementById(id);

/** Start the chat; `model` gives the name of the model to ask. Returns `showPrompt`. */
export function startChat(model) {
  let said = []; // {role, content} of what was said until now; a new chat has its own
  let running = null; // what stops the answer that is under way

  async function send() {
    const words = at("words").value;
    if (running || !words.trim() || !model()) return;
    problem("");
    at("log").querySelector(".empty")?.remove();
    const asked = add("user", words);
    const shown = add("assistant", "");
    const mine = said;
    mine.push({ role: "user", content: words });
    at("words").value = "";
    begin();
    try {
      mine.push({ role: "assistant", content: await read(shown) });
    } catch (error) {
      mine.pop(); // nothing was answered: the words go back to where they came from
      asked.remove();
      shown.remove();
      if (mine === said) at("words").value = words;
      if (!running.signal.aborted) problem(error.message);
    }
    end();
  }

  /** The answer as far as it came. Throws where nothing did. */
  async function read(shown) {
    const text = shown.querySelector(".text");
    const begun = performance.now();
    let answer = "";
    let how = "the connection ended";
    let tokens = 0;
    try {
      for await (const chunk of chat({ model: model(), messages: messages(), ...options() }, running.signal)) {
        const choice = chunk.choices[0];
        if (choice?.delta.content) {
          answer += choice.delta.content;
          draw(text, answer);
        }
        if (choice?.finish_reason) how = choice.finish_reason;
        if (chunk.usage) tokens = chunk.usage.completion_tokens;
      }
    } catch (error) {
      if (!answer) throw error;
      how = running.signal.aborted ? "stopped" : error.message;
    }
    const seconds = (performance.now() - begun) / 1000;
    follow(() => {
      text.replaceChildren(...elements(answer));
      shown.querySelector(".how").textContent = told(how, tokens, seconds);
      shown.append(copyButton(answer));
    });
    return answer;
  }

  function begin() {
    running = new AbortController();
    at("log").setAttribute("aria-busy", "true"); // is read out when it is whole
    at("send").hidden = true;
    at("stop").hidden = false;
    at("stop").focus();
  }

  function end() {
    running = null;
    at("log").removeAttribute("aria-busy");
    const stopHadFocus = document.activeElement === at("stop");
    at("send").hidden = false;
    at("stop").hidden = true;
    if (stopHadFocus) at("words").focus();
    showPrompt();
  }

  function messages(draft = "") {
    const system = at("system").value.trim();
    const before = system ? [{ role: "system", content: system }] : [];
    const typed = draft.trim() ? [{ role: "user", content: draft }] : [];
    return [...before, ...said, ...typed];
  }

  const request = () => {
    const asked = messages(at("words").value);
    while (asked.at(-1)?.role === "assistant") asked.pop(); // the question, not its answer
    return { model: model(), messages: asked, ...options() };
  };
  startCopies("chat-copies", {
    curl: () => curl("v1/chat/completions", request()),
    python: () =>
      python("v1/chat/completions", request(), `print(json.load(reply)["choices"][0]["message"]["content"])`),
    command: () => chatCommand(request()),
  });

  const showPrompt = startPrompt(model, () => messages(running ? "" : at("words").value));

  at("say").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  at("words").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
  at("stop").addEventListener("click", () => running?.abort());
  at("anew").addEventListener("click", () => {
    running?.abort();
    said = [];
    at("log").replaceChildren();
    problem("");
    showPrompt();
    at("words").focus();
  });
  return { showPrompt };
}

/** Keeps the prompt up to date while it is looked at. Returns what asks for it anew. */
function startPrompt(model, messages) {
  let timer = 0;
  let running = null;

  async function show() {
    clearTimeout(timer);
    running?.abort();
    if (!at("chat-prompt").open || !model()) return;
    const mine = (running = new AbortController());
    const asked = messages();
    try {
      const text = asked.length ? await prompt(model(), asked, mine.signal) : "";
      if (!mine.signal.aborted) at("rendered").textContent = text;
    } catch (error) {
      if (!mine.signal.aborted) at("rendered").textContent = error.message;
    }
  }

  at("chat-prompt").addEventListener("toggle", show);
  at("say").addEventListener("input", () => {
    running?.abort();
    clearTimeout(timer);
    timer = setTimeout(show, PAUSE);
  });
  return show;
}

function options() {
  const number = (id) => (at(id).value === "" ? undefined : Number(at(id).value));
  return { temperature: number("temperature"), max_tokens: number("max-tokens") };
}

function add(role, words) {
  const turn = document.createElement("article");
  turn.className = role;
  for (const [tag, name, text] of [
    ["h2", "who", role === "user" ? "You" : "Model"],
    ["div", "text", words],
    ["p", "how", ""],
  ]) {
    const part = document.createElement(tag);
    part.className = name;
    part.textContent = text;
    turn.append(part);
  }
  follow(() => at("log").append(turn));
  return turn;
}

/** Draw an answer as far as it has come, once a frame: to draw it takes longer as it grows. */
function draw(text, answer) {
  text.answer = answer;
  text.frame ??= requestAnimationFrame(() => {
    text.frame = undefined;
    follow(() => text.replaceChildren(...elements(text.answer)));
  });
}

function copyButton(answer) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const copied = await navigator.clipboard?.writeText(answer).then(() => true, () => false);
    button.textContent = copied ? "Copied" : "Select the text to copy it";
  });
  return button;
}

/** Change the log, and stay at its end where that was in sight. */
function follow(change) {
  const log = at("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function told(how, tokens, seconds) {
  const cut = `cut at ${at("max-tokens").value || tokens} tokens: raise the number under Options`;
  const ended = { stop: "", length: cut }[how] ?? how;
  const rate = tokens ? `${tokens} tokens, ${(tokens / seconds).toFixed(1)} a second` : "";
  return [rate, ended].filter(Boolean).join(" · ");
}

function problem(text) {
  at("chat-problem").textContent = text;
  at("chat-problem").hidden = !text;
}
