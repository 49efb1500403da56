// Markdown of an answer as elements. All text is set as text, and elements are created one by one,
// so that nothing in an answer can become other markup. It knows the part of CommonMark that
// language models write.

const INLINE = /(`+)(.+?)\1|\*\*(?=\S)(.+?)\*\*|\*(?=\S)([^*]+?)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/s;
const LIST = /^\s*(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const FENCE = /^\s*(```+|~~~+)\s*([\w+-]*)\s*$/;
const RULE = /^\s*(?:-{3,}|\*{3,}|_{3,})\s*$/;

/** The elements of a text. */
export function elements(text) {
  const lines = text.split("\n");
  const made = [];
  while (lines.length) {
    if (!lines[0].trim()) lines.shift();
    else made.push(block(lines));
  }
  return made;
}

/** The element of the first block; its lines are removed. */
function block(lines) {
  const fence = FENCE.exec(lines[0]);
  if (fence) return code(lines, fence[1]);
  const heading = HEADING.exec(lines[0]);
  if (heading) return lines.shift() && inline(element("h3", `level-${heading[1].length}`), heading[2]);
  if (RULE.test(lines[0])) return lines.shift() && element("hr");
  if (lines[0].startsWith(">")) return quote(lines);
  if (LIST.test(lines[0])) return list(lines);
  if (isTable(lines)) return table(lines);
  return paragraph(lines);
}

/** A block of code, to its fence or, while it is being written, to the end. */
function code(lines, fence) {
  lines.shift();
  const own = [];
  while (lines.length && !lines[0].trim().startsWith(fence)) own.push(lines.shift());
  lines.shift();
  const pre = element("pre");
  pre.append(element("code", "", own.join("\n")));
  return pre;
}

function quote(lines) {
  const own = [];
  while (lines.length && lines[0].startsWith(">")) own.push(lines.shift().replace(/^> ?/, ""));
  const made = element("blockquote");
  made.append(...elements(own.join("\n")));
  return made;
}

function list(lines) {
  const [, bullet, number] = LIST.exec(lines[0]);
  const made = element(bullet ? "ul" : "ol");
  if (number) made.start = Number(number);
  for (let item; lines.length && (item = LIST.exec(lines[0])) && Boolean(item[1]) === Boolean(bullet); ) {
    lines.shift();
    const own = [item[3]];
    while (lines.length && /^\s+\S/.test(lines[0]) && !LIST.test(lines[0])) own.push(lines.shift().trim());
    made.append(inline(element("li"), own.join("\n")));
  }
  return made;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
const isTable = (lines) => lines.length > 1 && lines[0].includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[1]);

function table(lines) {
  const made = element("table");
  const rows = [];
  while (lines.length && lines[0].includes("|")) rows.push(lines.shift());
  rows.splice(1, 1); // the line below the head
  rows.forEach((line, place) => {
    const row = element("tr");
    row.append(...cells(line).map((cell) => inline(element(place ? "td" : "th"), cell)));
    made.append(row);
  });
  return made;
}

function paragraph(lines) {
  const own = [lines.shift()];
  const begins = (line) => FENCE.test(line) || HEADING.test(line) || LIST.test(line) || line.startsWith(">");
  while (lines.length && lines[0].trim() && !begins(lines[0])) own.push(lines.shift());
  return inline(element("p"), own.join("\n"));
}

/** Append a text with its code, emphasis and links to an element. */
function inline(parent, text) {
  let rest = text;
  for (let match; (match = INLINE.exec(rest)); rest = rest.slice(match.index + match[0].length)) {
    const [, ticks, literal, strong, em, label, address] = match;
    parent.append(rest.slice(0, match.index));
    if (ticks) parent.append(element("code", "", literal.trim()));
    else if (strong) parent.append(inline(element("strong"), strong));
    else if (em) parent.append(inline(element("em"), em));
    else parent.append(link(label, address));
  }
  parent.append(rest);
  return parent;
}

function link(label, address) {
  const made = element("a", "", label);
  made.href = address;
  made.rel = "noopener noreferrer";
  made.target = "_blank";
  return made;
}

function element(tag, name = "", text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.textContent = text;
  return made;
}
