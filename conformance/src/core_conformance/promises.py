"""Each sentence of the contract, with its checks: ``python -m core_conformance.promises [NAME]``.

``promises.toml`` maps the sentences of pages and docstrings to the ids of checks, or to a reason in
place of them. A test fails for a sentence without an entry, and for an entry without a sentence.
The pages are those of a checkout.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from core_conformance.checking.check import all_checks

FILE = Path(__file__).with_name("promises.toml")
MODULES = ("core.protocols", "core.extensions", "core.options", "core.types", "core.training")
REASONS = {
    "explains": "a sentence that promises nothing: an introduction, an example, a reason",
    "core": "a promise that core itself keeps: its own tests test it",
}

Entry: TypeAlias = "list[str] | str"
"""Ids of checks, or a reason: a name in `REASONS`, or its words."""

_ROOT = Path(__file__).parents[3]
_BORDER = re.compile(r"(?<=[.!?])([\"')*]*)\s+(?=[A-Z0-9`\"'*(\[])")
_ITEM = re.compile(r"\n(?=- |\d+\. )")


def sentences(text: str) -> list[str]:
    """Split Markdown into sentences; a row of a table is one, and so is a block of code."""
    pieces: list[str] = []
    for number, part in enumerate(re.split(r"^ *```.*\n", text, flags=re.MULTILINE)):
        if number % 2:
            pieces.append(" ".join(part.split()))
        else:
            for paragraph in re.split(r"\n\s*\n", part):
                pieces += _of_a_paragraph(paragraph.strip())
    return pieces


def _of_a_paragraph(paragraph: str) -> Iterator[str]:
    if paragraph.startswith("|"):
        yield from paragraph.splitlines()[2:]  # after the header and the line under it
    elif not paragraph.startswith("#"):
        for item in _ITEM.split(paragraph):
            yield from _BORDER.sub(r"\1\n", " ".join(item.split())).splitlines()


@cache
def entries() -> Mapping[str, Mapping[str, Entry]]:
    """Return the content of ``promises.toml``: an entry by the beginning of its sentence."""
    return tomllib.loads(FILE.read_text("utf-8"))


@cache
def contract() -> Mapping[str, Sequence[str]]:
    """Return the sentences of each page in ``promises.toml``, and of each object of `MODULES`."""
    pages = {name: sentences(_page(name)) for name in entries() if name.startswith("docs/")}
    return pages | {name: text for module in MODULES for name, text in _docstrings(module).items()}


def _page(name: str) -> str:
    """Return the text of a page, or of the section after ``#``, without those within it."""
    page, _, heading = name.partition("#")
    text = (_ROOT / page).read_text("utf-8")
    if not heading:
        return text
    _, after = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)
    return re.split(r"^#+ ", after, flags=re.MULTILINE)[0]


def _docstrings(module: str) -> dict[str, list[str]]:
    """Return the sentences of each class with its methods, and of each constant."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    by_name: dict[str, list[str]] = {}
    body = ast.parse(Path(spec.origin).read_text("utf-8")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            texts = [_docstring(part) for part in (node, *node.body)]
            by_name[f"{module}.{node.name}"] = sentences("\n\n".join(texts))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            text = ast.literal_eval(after.value)
            by_name[f"{module}.{ast.unparse(target)}"] = sentences(str(text))
    return {name: texts for name, texts in by_name.items() if texts}


def _docstring(node: ast.AST) -> str:
    if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    return ast.get_docstring(node) or ""


def entry(name: str, sentence: str) -> Entry | None:
    """Return the entry whose key is the longest beginning of the sentence."""
    keys = [key for key in entries().get(name, {}) if sentence.startswith(key)]
    return entries()[name][max(keys, key=len)] if keys else None


def problems() -> list[str]:
    """Return a line for each sentence without an entry, and for each entry that is wrong.

    A key is the beginning of one sentence; that of a row of a table may be that of several.
    """
    lines = []
    for name, texts in contract().items():
        missing = [text for text in dict.fromkeys(texts) if entry(name, text) is None]
        lines += [f"{name}: no entry for {text!r}" for text in missing]
    for name, keys in entries().items():
        for key, value in keys.items():
            matches = {text for text in contract().get(name, ()) if text.startswith(key)}
            if len(matches) != 1 and not (matches and key.startswith("|")):
                lines.append(f"{name}: {len(matches)} sentences begin with {key!r}")
            unknown = [id for id in value if id not in all_checks()] if _is_tested(value) else []
            lines += [f"{name}: {id!r} is not a check" for id in unknown]
    return lines


def _is_tested(value: Entry | None) -> bool:
    return isinstance(value, list)


def figures() -> Mapping[str, int]:
    """Count the sentences: those with checks, those with each reason, and the promises."""
    values = [entry(name, text) for name, texts in contract().items() for text in texts]
    kinds = Counter("checks" if _is_tested(value) else str(value) for value in values)
    reasons = sum(n for kind, n in kinds.items() if kind not in ("checks", *REASONS))
    return {
        "sentences": len(values),
        "promises of a backend": kinds["checks"] + reasons,
        "with checks": kinds["checks"],
        "with a reason": reasons,
        **{name: kinds[name] for name in REASONS},
    }


def main(arguments: Sequence[str]) -> int:
    """Print the figures, and the sentences of the places named, with their entries."""
    for name in arguments:
        for text in contract().get(name, ()):
            value = entry(name, text)
            shown = " ".join(value) if isinstance(value, list) else f"({value})"
            sys.stdout.write(f"{text}\n    {shown}\n")
    for kind, count in figures().items():
        sys.stdout.write(f"{count:5} {kind}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
