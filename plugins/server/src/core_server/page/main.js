// What both halves of the page share: tabs, the picker of models, the key, and what is wrong.

import { startChat } from "./chat.js";
import { startLabels } from "./labels.js";
import { models, namedTasks, useKey } from "./server.js";

const at = (id) => document.getElementById(id);
const picker = at("model");
const model = () => picker.value;

const labels = startLabels(model);
const chat = startChat(model);
startTabs();
startKey();
picker.addEventListener("change", changed);
load();

/** Ask for the models, and then for what the page shows of the first. */
async function load() {
  let names, tasks;
  try {
    [names, tasks] = await Promise.all([models(), namedTasks()]);
  } catch (error) {
    if (at("key").hidden) problem(error.message);
    return;
  }
  problem("");
  at("key").hidden = true;
  const kept = picker.value;
  picker.replaceChildren(...names.map((name) => new Option(name, name, false, name === kept)));
  picker.disabled = false;
  labels.setTasks(tasks);
  changed();
}

function changed() {
  labels.ask();
  chat.showPrompt();
}

function problem(text) {
  at("problem").textContent = text;
  at("problem").hidden = !text;
}

function startKey() {
  document.addEventListener("key-wanted", () => {
    if (!at("key").hidden) problem("That is not the key of this server.");
    at("key").hidden = false;
    at("key-text").focus();
  });
  at("key").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(at("key-text").value);
    load();
  });
}

/** Tabs as https://www.w3.org/WAI/ARIA/apg/patterns/tabs/ has them, and in the address. */
function startTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];

  function show(wanted) {
    for (const tab of tabs) {
      const chosen = tab === wanted;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      at(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    history.replaceState(null, "", `#${wanted.getAttribute("aria-controls")}`);
  }

  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => show(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(place + step + tabs.length) % tabs.length];
      show(next);
      next.focus();
    });
  });
  const named = () => tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
  addEventListener("hashchange", () => named() && show(named()));
  if (named()) show(named());
}
