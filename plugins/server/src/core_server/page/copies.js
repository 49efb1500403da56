// The way from the page to the work: the same request as a command or a program.

const at = (id) => document.getElementById(id);
const shell = (text) => (/^[\w./:=,@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
const address = (path) => new URL(path, document.baseURI).href;
const keyed = () => sessionStorage.getItem("core-api-key") !== null;

/** Show and copy what `make[kind]()` returns, for the buttons in `place`. */
export function startCopies(place, make) {
  for (const button of at(place).querySelectorAll("button")) {
    button.addEventListener("click", async () => {
      const text = make[button.value]();
      const shown = at(place).querySelector("pre");
      shown.textContent = text;
      shown.hidden = false;
      const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
      at(place).querySelector(".hint").textContent = copied ? "Copied." : "Copy it from here:";
    });
  }
}

/** The request as a curl command. */
export function curl(path, body) {
  const key = keyed() ? ` -H "Authorization: Bearer $INFER_API_KEY"` : "";
  const json = shell(JSON.stringify(body));
  return `curl ${shell(address(path))} -H 'Content-Type: application/json'${key} -d ${json}`;
}

/** The request as a Python program without dependencies. JSON without flags is Python. */
export function python(path, body, result) {
  const headers = keyed()
    ? `{"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["INFER_API_KEY"]}`
    : `{"Content-Type": "application/json"}`;
  return [
    "import json",
    ...(keyed() ? ["import os"] : []),
    "import urllib.request",
    "",
    `body = ${JSON.stringify(body, null, 4)}`,
    `headers = ${headers}`,
    "request = urllib.request.Request(",
    `    ${JSON.stringify(address(path))}, json.dumps(body).encode(), headers`,
    ")",
    "with urllib.request.urlopen(request) as reply:",
    `    ${result}`,
    "",
  ].join("\n");
}

/** The same classification on the command line, where the model is loaded from this machine. */
export function classifyCommand({ model, task, labels, template, level, texts }) {
  const named = ["-m", model];
  const ending = texts.map((text) => shell(text)).join(" ");
  if (task) return `infer-cli classify ${words([...named, "--task", `${task}.toml`])} -- ${ending}`;
  const typed = template.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
  const asked = [...named, "--template", typed, "--labels", labels.map(cell).join(",")];
  if (level === "raw") return `infer-cli classify ${words(asked)} -- ${ending}`;
  const file = "task.toml";
  return [
    `printf '%s\\n' ${ending} | infer-cli calibrate -i - ${words([...asked, "--method", level, "-o", file])}`,
    `infer-cli classify ${words([...named, "--task", file])} -- ${ending}`,
  ].join("\n");
}

/** The last message of a chat on the command line. */
export function chatCommand({ model, messages, temperature, max_tokens }) {
  const system = messages.find((message) => message.role === "system");
  const last = messages.findLast((message) => message.role === "user");
  const flags = ["-m", model];
  if (system) flags.push("--system", system.content);
  if (temperature !== undefined) flags.push("--temperature", String(temperature));
  if (max_tokens !== undefined) flags.push("--max-tokens", String(max_tokens));
  return `infer-cli chat ${words(flags)} -- ${shell(last?.content ?? "Hello")}`;
}

const words = (list) => list.map(shell).join(" ");
const cell = (label) => (/[",]/.test(label) ? `"${label.replaceAll('"', '""')}"` : label);
