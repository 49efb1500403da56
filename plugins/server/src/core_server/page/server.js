// The server's routes, as any client calls them. Addresses are relative: the page may lie behind a
// proxy, under a path of its own.

const KEY = "core-api-key";

/** Remember the key, for as long as the tab is open. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** The names of the served models. */
export async function models() {
  const body = await (await call("v1/models")).json();
  return body.data.filter((model) => !model.root).map((model) => model.id); // aliases have a root
}

/** The tasks and classifier heads that the server answers by name. */
export async function namedTasks() {
  return (await (await call("v1/tasks")).json()).data;
}

/** The decisions of texts, with their prompts: the answer of /v1/classify. */
export async function classify(body, signal) {
  return (await call("v1/classify", { ...body, show_prompts: true }, signal)).json();
}

/** The prompt that a chat's messages make. */
export async function prompt(model, messages, signal) {
  return (await (await call("apply-template", { model, messages }, signal)).json()).prompt;
}

/** The chunks of a streamed chat, as they come. */
export async function* chat(body, signal) {
  const streamed = { ...body, stream: true, stream_options: { include_usage: true } };
  const answer = await call("v1/chat/completions", streamed, signal);
  for await (const line of lines(answer.body)) {
    if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
    const chunk = JSON.parse(line.slice("data: ".length));
    if (chunk.error) throw new Error(chunk.error.message);
    yield chunk;
  }
}

async function call(path, body, signal) {
  const headers = new Headers();
  const key = sessionStorage.getItem(KEY);
  if (key) headers.set("Authorization", `Bearer ${key}`);
  if (body) headers.set("Content-Type", "application/json");
  const method = body ? "POST" : "GET";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal })
    .catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Error("The server does not answer. Is it running?");
    });
  if (answer.ok) return answer;
  if (answer.status === 401) document.dispatchEvent(new Event("key-wanted"));
  throw new Error(await told(answer));
}

async function told(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const whole = (rest + value).split("\n");
      rest = whole.pop();
      yield* whole;
    }
  } finally {
    reader.cancel().catch(() => {}); // who stops early lets the server stop, too
  }
}
