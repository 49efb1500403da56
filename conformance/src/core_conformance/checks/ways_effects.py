"""Clauses over the table of ways: adapters, effects of failed calls, and metrics."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from core.errors import CoreError
from core.extensions import Adapting
from core.protocols import Capability, TextModel
from core.types import GenerateMetrics
from core_conformance.checking import ask
from core_conformance.checking.adapters import adapters
from core_conformance.checking.ask import tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.calls import already_set, elsewhere, promptly
from core_conformance.checking.check import Violation, check, must, well_formed
from core_conformance.checking.said import must_be, must_differ, says
from core_conformance.checking.subject import OPERATIONS, Subject
from core_conformance.checking.ways.agreeing import agree, alike, gives, wanted
from core_conformance.checking.ways.table import Way, every_way

_TOKENS = 3
_PROMPTS = ask.PLAIN[:2]
_AT_ONCE = 1e-9  # seconds
_LOAD = 20.0  # passes


# --------------------------------------------------------------------------- adapters


@check(
    "adapters.operations",
    "Every operation MUST say what the adapter makes of the model, whether it was loaded with it "
    "or given it: one does as another, awaited too",
    Capability.ADAPTERS,
    broad=True,
)
def every_operation_has_the_adapter(subject: Subject) -> None:
    if any(map(subject.declares, ask.SPEAKING)):
        ask.speaks(subject, ask.voice(subject))
    callers = every_way(subject)
    try:
        for way in callers:
            agree(subject, way, _PROMPTS, way.options(subject, _TOKENS), "without an adapter")
    except Violation:  # what they do not agree about without an adapter is for other checks
        return
    with adapters(subject) as paths, subject.loaded(adapter_path=paths.one) as loaded:
        models = [("loaded with", loaded)]
        if subject.declares(Capability.ADAPTING):
            handle = cast("Adapting", subject.model).with_adapter(paths.one)
            models.append(("given", handle))
        try:
            for what, model in models:
                for way in within(subject, callers, lambda _: 8.0, f"operations {what}", 0.5):
                    request = way.options(subject, _TOKENS)
                    expected = wanted(subject, way, _PROMPTS, request, loaded)
                    rows = gives(subject, way, model, _PROMPTS, request)
                    here = f"a model {what} an adapter, {way.name}"
                    alike(subject, way, expected, rows, here)
        finally:
            for _, model in models[1:]:
                model.close()


@check(
    "adapting.upon",
    "with_adapter() of a model that has an adapter MUST replace it, and with_adapter(None) take it "
    "away; an adapter that was written anew MUST be read anew, and change no model that has it",
    Capability.ADAPTING,
    Capability.ADAPTERS,
    broad=True,
)
def adapters_upon_adapters(subject: Subject) -> None:
    plain = says(subject, subject.model)
    with adapters(subject) as paths, tempfile.TemporaryDirectory(prefix="core-upon-") as folder:
        with _with(subject.model, paths.one) as handle:
            one = says(subject, handle)
            with _with(handle, paths.two) as upon, _with(subject.model, paths.two) as two:
                outputs = says(subject, two)
                must_be(subject, outputs, lambda: says(subject, upon), "an adapter upon another")
                with _with(upon, paths.one) as third:
                    must_be(subject, one, lambda: says(subject, third), "a third upon the second")
            with _with(handle, None) as none:
                must_be(subject, plain, lambda: says(subject, none), "None upon an adapter")
        must_differ(subject, one, outputs, "two adapters say the same")

        place = Path(folder, Path(paths.one).name)
        _put(paths.one, place)
        with _with(subject.model, str(place)) as before:
            must_be(subject, one, lambda: says(subject, before), "an adapter at another path")
            _put(paths.two, place)
            with _with(subject.model, str(place)) as after:
                what = "with_adapter() of a path that was written anew"
                must_be(subject, outputs, lambda: says(subject, after), what)
            with subject.loaded(adapter_path=str(place)) as again:
                what = "a load with a path that was written anew"
                must_be(subject, outputs, lambda: says(subject, again), what)
            what = "a model whose adapter's path was written anew since"
            must_be(subject, one, lambda: says(subject, before), what)


def _with(model: TextModel, path: str | None) -> TextModel:
    return cast("Adapting", model).with_adapter(path)


def _put(source: str, place: Path) -> None:
    """Copy an adapter to a place, as new files in place of those that are there."""
    fresh = place.with_name(f"new-{place.name}")
    copy: Callable[..., object] = shutil.copytree if os.path.isdir(source) else shutil.copyfile
    copy(source, fresh)
    if place.exists():
        place.rename(place.with_name(f"old-{place.name}"))
    fresh.rename(place)


# --------------------------------------------------------------------------- earlier calls


@check(
    "history.failures",
    "A request that was cancelled, timed out, refused or failed, in whatever operation and thread, "
    "MUST change nothing for the next one of any operation",
    OPERATIONS,
    broad=True,
)
def failures_leave_no_trace(subject: Subject) -> None:
    callers, model = every_way(subject), subject.model
    for way in callers:  # so that nothing is computed for the first time
        wanted(subject, way, _PROMPTS, way.options(subject, _TOKENS))
    for way in within(subject, callers, lambda _: 12.0, "operations that fail", 0.6):
        for run in (elsewhere, _here):
            for own in ({"cancel": already_set()}, {"timeout": _AT_ONCE}, {"no_such_option": 1}):
                request = way.options(subject, _TOKENS) | own
                with suppress(CoreError, TypeError):
                    run(lambda: way.ask(model, _PROMPTS, request))  # noqa: B023
            with suppress(CoreError, TypeError):
                run(lambda: way.ask(model, ["", *_PROMPTS], way.options(subject, 1)))  # noqa: B023
        request = way.options(subject, _TOKENS)
        expected = wanted(subject, way, _PROMPTS, request)
        alike(
            subject,
            way,
            expected,
            gives(subject, way, model, _PROMPTS, request),
            f"{way.name}, before and after requests of it that failed",
        )
    for way in callers[:4]:
        agree(subject, way, _PROMPTS, way.options(subject, _TOKENS), "after requests that failed")


def _here(run: Callable[[], object]) -> object:
    return run()


# --------------------------------------------------------------------------- metrics


@check(
    "metrics.ways",
    "In every operation the metrics MUST count the tokens of all its prompts, and the tokens that "
    "it gave, whatever ended them: max_tokens, a stop string or a row's error",
    OPERATIONS,
    Capability.TOKENIZING,
    broad=True,
)
def every_operation_counts(subject: Subject) -> None:
    encode = tokenizing(subject).encode
    callers = [way for way in every_way(subject) if _is_counted(way)]
    for way in within(subject, callers, lambda _: 12.0, "operations", 0.5):
        prompts = [*_PROMPTS][: 1 if way.single else None]
        for own in _ends(subject, way):
            request = way.options(subject, 6) | own
            rows, metrics = _counted(subject, way, prompts, request)
            expected = sum(len(encode(prompt)) for prompt in prompts)
            well_formed(expected > 0, f"encode() has no ids for {prompts!r:.80}")
            what = f"{way.name} of {len(prompts)} prompts with {request}"
            if not way.fixed:
                must(
                    metrics.prompt_tokens == expected,
                    f"{what} counts {metrics.prompt_tokens} prompt_tokens, of {expected}",
                )
            given = sum(len(row.answer.ids) for row in rows)
            # The token that ended a row may count, and those that a stop string swallowed.
            spare = len(rows) * (1 + sum(map(len, own.get("stop", ()))))
            must(
                not way.generates or given <= metrics.generated_tokens <= given + spare,
                f"{what} gave {given} tokens, and counts {metrics.generated_tokens}",
            )
            must(
                0 <= metrics.cached_prompt_tokens <= metrics.prompt_tokens,
                f"{what} counts {metrics.cached_prompt_tokens} tokens as cached, of "
                f"{metrics.prompt_tokens}",
            )


def _is_counted(way: Way) -> bool:
    awaited = way.name.startswith("awaited")  # its metrics come with its result
    chats = way.name == Capability.CHAT  # its prompt is the template's
    return not (awaited or way.bare or chats)


def _ends(subject: Subject, way: Way) -> list[dict[str, Any]]:
    if not way.generates:
        return [{}]
    free = wanted(subject, way, _PROMPTS[:1], way.options(subject, 6))[0].answer
    stop = free.text.partition("\ufffd")[0][1:3]
    return [{}, {"max_tokens": 1}, *([{"stop": (stop,)}] if stop else [])]


def _counted(
    subject: Subject, way: Way, prompts: list[str], request: dict[str, Any]
) -> tuple[list[Any], GenerateMetrics]:
    def run() -> tuple[list[Any], GenerateMetrics]:
        rows = way.ask(subject.model, prompts, request)
        return rows, subject.model.metrics

    return promptly(subject, run, way.name)
