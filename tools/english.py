"""Counts of puzzling English in docstrings, messages and names: ``python tools/english.py [-v]``.

A function's docstring starts with a verb and a class's with a noun; no sentence starts with What,
Whether, Those or That of; after and before are the words for time, and "is not a" for a negation.
Locals and arguments are named after their contents. A table shows the counts by distribution,
``-v`` each place. tests/test_english.py sets the limits.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("first words", "docstrings", "messages", "locals", "other locals", "all docstrings")

_NO_VERBS = (
    *(
        "a",
        "after",
        "all",
        "an",
        "and",
        "any",
        "as",
        "at",
        "before",
        "both",
        "by",
        "each",
        "either",
    ),
    *("every", "everything", "for", "from", "how", "if", "in", "is", "it", "its", "many", "more"),
    *("most", "no", "none", "nothing", "of", "on", "one", "only", "other", "others", "same"),
    *("several", "some", "something", "such", "that", "the", "their", "them", "these", "they"),
    *("this", "those", "to", "true", "two", "what", "whatever", "when", "where", "whether"),
    *("which", "who", "whoever", "whole", "whose", "why", "with", "without"),
)
_NO_NOUNS = (
    *("how", "if", "is", "it", "those", "that", "what", "whatever", "whether", "which", "who"),
    *("whoever", "why"),
)
PHRASES = re.compile(
    r"\b(?:behind|in front of|anew|broken off|go(?:es|ing)? on)\b"
    r"|\b(?:is|are|was|were) no(?! (?:longer|more|less|matter|one)\b)(?:ne)?\b"
    r"|(?:^|[.:!?]\s+)(?:What|Whether|Those|That of)\b"
)
LOCALS = {
    **dict.fromkeys(("told", "found", "held", "said", "made"), "locals"),
    **dict.fromkeys(("each", "asked", "kept"), "other locals"),
}
"""Names of locals and arguments that say nothing of their contents, with the kind of finding."""
_PROPERTIES = frozenset({"property", "cached_property", "fixture"})
_SPEAKING = frozenset({"echo", "say", "secho", "warn", "warning", "exit", "info"})
_OF_MESSAGES = frozenset({"help", "message", "hint", "advice", "short_help"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in the source whose English is counted: its kind, and what was read there."""

    kind: str
    file: Path
    line: int
    text: str


def findings(file: Path) -> Iterator[Finding]:
    """Yield the findings of a Python file; every public docstring is a finding of its own kind."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for line, name in sorted(_locals(tree)):
        if name in LOCALS:
            yield Finding(LOCALS[name], file, line, name)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            yield from _of_docstring(file, node)
        for line, text in _messages(node):
            if phrase := PHRASES.search(text):
                yield Finding("messages", file, line, _around(text, phrase))


def _locals(tree: ast.Module) -> set[tuple[int, str]]:
    """Return the variables and arguments of functions, each with its line."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    outer = (node for node in ast.walk(tree) if isinstance(node, functions))
    inner = [node for function in outer for node in ast.walk(function)]
    names = {
        (node.lineno, node.id)
        for node in inner
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return names | {(node.lineno, node.arg) for node in inner if isinstance(node, ast.arg)}


def _of_docstring(
    file: Path, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
) -> Iterator[Finding]:
    text = ast.get_docstring(node)
    if text is None:
        return
    line = node.body[0].lineno
    if phrase := PHRASES.search(text):
        yield Finding("docstrings", file, line, _around(text, phrase))
    if isinstance(node, ast.Module) or node.name.startswith("_"):
        return
    first = text.split("\n", 1)[0]
    yield Finding("all docstrings", file, line, first)
    word = re.sub(r"\W", "", first.split(" ", 1)[0]).lower()
    names = isinstance(node, ast.ClassDef) or _is_property(node)
    if word in (_NO_NOUNS if names else _NO_VERBS):
        yield Finding("first words", file, line, first)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read as a value, so that a noun describes it."""
    words = {
        word
        for decorator in node.decorator_list
        for word in re.findall(r"\w+", ast.unparse(decorator))
    }
    return bool(words & _PROPERTIES)


def _messages(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts that users read: those of exceptions, of help, and of output."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from _texts(node.exc)
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if name in _SPEAKING:
            yield from _texts(node)
        for keyword in node.keywords:
            if keyword.arg in _OF_MESSAGES:
                yield from _texts(keyword.value)


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    for child in ast.walk(node):
        if isinstance(child, ast.JoinedStr):
            parts = [part.value for part in child.values if isinstance(part, ast.Constant)]
            yield child.lineno, " ... ".join(map(str, parts))
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.lineno, child.value


def _around(text: str, phrase: re.Match[str]) -> str:
    return " ".join(text[max(0, phrase.start() - 40) : phrase.end() + 40].split())


def sources() -> Iterator[tuple[str, Path]]:
    """Yield each shipped file, with the folder of its distribution."""
    for pattern in ("core", "*/src", "plugins/*/src"):
        for folder in sorted(ROOT.glob(pattern)):
            home = folder if folder.name == "core" else folder.parent
            for file in sorted(folder.rglob("*.py")):
                yield str(home.relative_to(ROOT)), file


def counts() -> dict[str, Counter[str]]:
    """Return the number of findings by distribution and kind, each place counted once."""
    table: dict[str, Counter[str]] = {}
    for home, file in sources():
        unique = {(finding.kind, finding.line): finding for finding in findings(file)}
        table.setdefault(home, Counter()).update(finding.kind for finding in unique.values())
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of counts, or each place."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-v", action="store_true", dest="places", help="print each place")
    parser.add_argument("folders", nargs="*", help="only these distributions, by folder")
    options = parser.parse_args(arguments)
    if options.places:
        for home, file in sources():
            if options.folders and home not in options.folders:
                continue
            for finding in findings(file):
                if finding.kind != "all docstrings":
                    where = f"{finding.file.relative_to(ROOT)}:{finding.line}"
                    print(f"{where}: {finding.kind}: {finding.text}")
        return
    table = counts()
    table["all"] = sum(table.values(), Counter())
    print("\t".join(("distribution", *KINDS)))
    for home, numbers in table.items():
        print("\t".join((home, *(str(numbers[kind]) for kind in KINDS))))


if __name__ == "__main__":
    main()
