"""The table of ways and oddities, with the checks that reach each cell.

``python -m core_conformance.coverage`` runs the checks on the reference, watches its calls, and
prints how many checks reach each cell; ``--checks`` names them. The exit status is 1 if a cell is
empty without a reason.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from typing import Any

from core.errors import CoreError
from core.options import GenerateConfig
from core.protocols import Backend, Capability
from core_conformance.checking.check import Check, all_checks
from core_conformance.checking.script import record
from core_conformance.checking.subject import Effort, Subject
from core_conformance.checking.ways import oddities
from core_conformance.checking.ways.oddities import Met, Seen
from core_conformance.checking.ways.table import EVERY, Way
from core_conformance.reference import Reference, Sentences, write_model
from core_conformance.reference.vocabulary import decode, encode
from core_conformance.running.result import Status
from core_conformance.running.runner import run_check
from core_conformance.running.target import know_reference

Cell = tuple[str, str]
"""A way in, and an oddity."""

METHODS: Mapping[str, str] = {
    Capability.SUBMITTING: "submit",
    Capability.BATCH_STREAMING: "batch_stream",
    Capability.CLASSIFY_STREAMING: "classify_iter",
    Capability.SCORING: "score",
    Capability.ATTENTION_INSPECTOR: "inspect_attention",
}
_STRIPPED = "a chat template may strip it, and then there is nothing to continue"
_BLANK = "a label of white space is refused, or is one with its prefix"
REASONS: Mapping[Cell, str] = {
    ("encode", "empty"): "a tokenizer may make a BOS of no text, or nothing",
    ("*chat: continued", "white space"): _STRIPPED,
    ("*chat: continued", "empty"): _STRIPPED,
    ("*classify: labels", "white space"): _BLANK,
    ("*classify_iter: labels", "white space"): _BLANK,
    ("*sentences: labels", "white space"): _BLANK,
}
"""Why cells are empty, by patterns of a way and an oddity."""

OVER_THE_TABLE = (
    *("ways_context", "ways_effects", "ways_labels", "ways_options", "ways_rows", "ways_texts"),
    *("operations", "broken_text"),
)
"""Modules whose clauses go through all ways."""

_OF_IDS = ("generate_tokens", "stream_tokens", "score_tokens")
_SINGLE = ("generate", "submit", "stream_tokens", "inspect_attention")
_EFFORT = Effort(seconds=120.0)  # a busy machine shall not decide what is reached
_DEFAULTS = GenerateConfig()


# --------------------------------------------------------------------------- the table


def cells() -> dict[str, dict[str, Met]]:
    """Return the oddities that each way in can meet, by its name."""
    table = {_entry(way): _of_way(way) for way in EVERY}
    for awaited in ("", "awaited "):
        for role in ("system", "user", "assistant", "continued"):
            table[f"{awaited}chat: {role}"] = oddities.OF_TEXTS | _sizes("empty")
        for name in ("score", "score_tokens"):
            sizes = _without(oddities.OF_SIZES, "a block")
            table[f"{awaited}{name}: continuations"] = _of_texts(name) | sizes
        for name in ("classify", "classify_iter"):
            table[f"{awaited}{name}: labels"] = (
                oddities.OF_TEXTS | oddities.OF_LABELS | _sizes("full context", "one too long")
            )
    for way in EVERY:
        if way.generates:
            table[f"{_entry(way)}: stop"] = oddities.OF_STOPS
    for role in ("system", "user", "assistant", "continued"):
        table[f"render_chat: {role}"] = oddities.OF_TEXTS
    for awaited in ("", "awaited "):
        table[f"{awaited}sentences"] = (
            oddities.OF_TEXTS | oddities.OF_SIZES | oddities.OF_ROWS | _requests("adapter")
        )
        table[f"{awaited}sentences: labels"] = oddities.OF_TEXTS | oddities.OF_LABELS
    return table | {"encode": oddities.OF_TEXTS | _sizes("empty")}


def _of_way(way: Way) -> dict[str, Met]:
    name = _entry(way)
    met = {**_of_texts(name), **oddities.OF_SIZES, **oddities.OF_CALLS}
    met |= {} if way.single else oddities.OF_ROWS
    met |= {} if way.bare else oddities.OF_REQUESTS
    met |= oddities.OF_GENERATION if way.generates else {}
    return met | (oddities.OF_LABELLED if way.fixed else {})


def _of_texts(name: str) -> dict[str, Met]:
    ids = name.removeprefix("awaited ") in _OF_IDS
    return _without(oddities.OF_TEXTS, "not Unicode") if ids else oddities.OF_TEXTS


def _entry(way: Way) -> str:
    awaited, name = (
        way.name[: 8 * way.name.startswith("awaited ")],
        way.name.removeprefix("awaited "),
    )
    return awaited + METHODS.get(name, name)


def _sizes(*names: str) -> dict[str, Met]:
    return {name: oddities.OF_SIZES[name] for name in names}


def _requests(without: str) -> dict[str, Met]:
    return {name: met for name, met in oddities.OF_CALLS.items() if without not in name}


def _without(met: dict[str, Met], *names: str) -> dict[str, Met]:
    return {name: function for name, function in met.items() if name not in names}


# --------------------------------------------------------------------------- what calls enter


def entries(model: Any, operation: str, arguments: Sequence[Any], options: Any) -> Iterator[Seen]:
    """Yield the texts that a call of the reference enters, each with what it is asked with."""
    awaited, name = operation[: 8 * operation.startswith("awaited ")], operation.split()[-1]
    given = _options(arguments, options)
    facts = _facts(model, arguments)
    context = model.engine.language.context_length

    def seen(entry: str, texts: Iterable[str], counts: Iterable[int] = ()) -> Seen:
        return Seen(awaited + entry, [*texts], [*counts], context, given, facts)

    if name in ("chat", "render_chat"):
        yield from _messages(model, awaited + name, arguments[0], seen)
    elif name in _OF_IDS:
        yield from _of_ids(name, arguments, seen)
    elif Capability.LABEL_SENTENCES in model.capabilities and name.startswith("classify"):
        yield seen("sentences", arguments[0], map(_count, arguments[0]))
        yield seen("sentences: labels", given.get("labels", ()))
    elif name in _SINGLE or name == "encode":
        yield seen(name, arguments[:1], map(_count, arguments[:1]))
    else:
        texts = [*arguments[0]]
        labels = given.get("labels", ()) if name.startswith("classify") else ()
        yield seen(f"{name} with labels" if labels else name, texts, map(_count, texts))
        if labels:
            prefix = given.get("label_prefix", " ")
            counts = [_count(text + prefix + label) - 1 for text in texts for label in labels]
            yield seen(f"{name}: labels", labels, counts)
        if name == "score":
            pairs = zip(texts, arguments[1], strict=False)
            counts = [_count(text + more) - 1 for text, more in pairs]
            yield seen("score: continuations", arguments[1], counts)
    if given.get("stop"):
        yield seen(f"{name}: stop", given["stop"])


def _messages(
    model: Any, name: str, messages: Sequence[Any], seen: Callable[..., Seen]
) -> Iterator[Seen]:
    pairs = [
        (m["role"], m["content"]) if isinstance(m, Mapping) else (m.role, m.content)
        for m in messages
    ]
    name = name.removeprefix("awaited ")
    for number, (role, content) in enumerate(pairs):
        entry = seen(f"{name}: {role}", [content])
        last = number == len(pairs) - 1 and "continue_final_message" in entry.options
        yield (replace(entry, entry=entry.entry.replace(role, "continued")) if last else entry)
    counts = []
    with suppress(CoreError):
        counts = [_count(model.do_render_chat(messages, _DEFAULTS))]
    yield seen(name, [pairs[-1][1]], counts)


def _of_ids(name: str, arguments: Sequence[Any], seen: Callable[..., Seen]) -> Iterator[Seen]:
    rows = arguments[0]
    if name == "stream_tokens" or (rows and isinstance(rows[0], int)):
        rows = [rows]
    yield seen(name, map(decode, rows), map(len, rows))
    if name == "score_tokens":
        counts = [len(row) + len(more) - 1 for row, more in zip(rows, arguments[1], strict=False)]
        yield seen("score_tokens: continuations", map(decode, arguments[1]), counts)


def _options(arguments: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call that are not at their default."""
    configs = [argument for argument in arguments if isinstance(argument, GenerateConfig)]
    known = [field.name for field in fields(GenerateConfig)]
    own = {name: getattr(config, name) for config in configs for name in known}
    own |= {name: value for name, value in options.items() if name in known}
    return {name: value for name, value in own.items() if value != getattr(_DEFAULTS, name)}


def _facts(model: Any, arguments: Sequence[Any]) -> frozenset[str]:
    adapted, config = bool(model.engine.language.bias), model.config
    facts = {
        "adapter": adapted and bool(config.adapter_path),
        "handle": adapted and not config.adapter_path,
        "rotates": config.context_overflow == "rotate",
        "config": any(isinstance(argument, GenerateConfig) for argument in arguments),
    }
    return frozenset(name for name, holds in facts.items() if holds)


def _count(text: str) -> int:
    with suppress(UnicodeError):
        return len(encode(text))
    return 0


# --------------------------------------------------------------------------- the run


class Recorder:
    """Notes the cells that the calls of a check reach: ``reached``, the ids of checks by cell."""

    def __init__(self) -> None:
        self.table = cells()
        self.reached: dict[Cell, set[str]] = defaultdict(set)
        self._cells: set[Cell] = set()

    def __call__(
        self, model: object, operation: str, arguments: tuple[Any, ...], options: Any
    ) -> tuple[Any, ...]:
        """Hear of a call; an iterator of prompts is noted prompt by prompt."""
        if threading.current_thread().name == "core-aio":
            return arguments  # how the reference waits in an event loop
        if arguments and isinstance(arguments[0], Iterator):
            self._note(model, operation, ([], *arguments[1:]), options, only=": labels")
            return (self._noted(model, operation, arguments, options), *arguments[1:])
        self._note(model, operation, arguments, options)
        return arguments

    def _noted(
        self, model: object, operation: str, arguments: tuple[Any, ...], options: Any
    ) -> Iterator[Any]:
        prompts = []
        try:
            for prompt in arguments[0]:
                prompts.append(prompt)
                yield prompt
        finally:
            self._note(model, operation, (prompts, *arguments[1:]), options)

    def _note(self, *call: Any, only: str = "") -> None:
        with suppress(Exception):  # arguments of wrong types, which the model refuses
            for seen in entries(*call):
                met = self.table.get(seen.entry, {}) if seen.entry.endswith(only) else {}
                self._cells |= {(seen.entry, name) for name, meets in met.items() if meets(seen)}

    def take(self, check: Check) -> None:
        """Add what was reached since the last call as this check's."""
        for cell in self._cells:
            self.reached[cell].add(check.id)
        self._cells = set()


def reached(checks: Iterable[Check] | None = None) -> dict[Cell, set[str]]:
    """Run checks on the references; return the ids of those that reach a cell.

    By default those over the table, and those that neither sweep nor search: what they reach does
    not depend on the machine.
    """
    know_reference()
    recorder = Recorder()
    chosen = [*(filter(_is_steady, all_checks().values()) if checks is None else checks)]
    with tempfile.TemporaryDirectory(prefix="core-conformance-") as folder:
        path = str(write_model(folder))
        for backend in (Reference(), Sentences()):
            _run(backend, path, chosen, recorder)
    return dict(recorder.reached)


def _is_steady(check: Check) -> bool:
    return not check.broad or check.run.__module__.rpartition(".")[2] in OVER_THE_TABLE


def _run(backend: Backend, path: str, checks: Sequence[Check], recorder: Recorder) -> None:
    with closing(Subject(backend, path, effort=_EFFORT)) as subject, record.listening(recorder):
        for check in checks:
            if check.missing(backend.capabilities) is None:
                result = run_check(check, subject)
                if result.status is not Status.PASSED:
                    raise RuntimeError(f"{check.id} fails {backend.name}: {result.reason}")
                recorder.take(check)


def empty(by_cell: Mapping[Cell, Sequence[str] | set[str]]) -> dict[Cell, str]:
    """Return the cells that no check reaches, with the reason, or ""."""
    return {
        (way, oddity): reason(way, oddity)
        for way, met in cells().items()
        for oddity in met
        if not by_cell.get((way, oddity))
    }


def reason(way: str, oddity: str) -> str:
    """Return why a cell is empty; "" if no reason is known."""
    return next(
        (why for (one, two), why in REASONS.items() if fnmatchcase(way, one) and oddity == two), ""
    )


def text(by_cell: Mapping[Cell, set[str]], names: bool = False) -> str:
    """Return the table as text: a line for each cell, by way, and what is empty."""
    lines, without = [], empty(by_cell)
    for way, met in cells().items():
        lines.append(f"{way}:")
        for oddity in met:
            ids = sorted(by_cell.get((way, oddity), ()))
            shown = f" {', '.join(ids)}" if names else ""
            why = without.get((way, oddity), "") or "EMPTY, without a reason"
            lines.append(f"  {oddity:32}{len(ids):4}{shown}" if ids else f"  {oddity:32}   - {why}")
    total = sum(map(len, cells().values()))
    unexplained = sum(not why for why in without.values())
    lines.append(
        f"{total} cells, {total - len(without)} reached, {len(without) - unexplained} empty with a "
        f"reason, {unexplained} without."
    )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print the table. Returns the exit status."""
    if list(arguments) not in ([], ["--checks"]):
        sys.stderr.write("usage: python -m core_conformance.coverage [--checks]\n")
        return 2
    by_cell = reached()
    sys.stdout.write(text(by_cell, bool(arguments)))
    return int("" in empty(by_cell).values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
