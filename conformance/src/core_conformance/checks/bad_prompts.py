"""Bad prompts: an error ends its own prompt alone, and the others and the model continue."""

from __future__ import annotations

from typing import Any

from core.errors import (
    CoreError,
    EmptyPromptError,
)
from core.protocols import Capability, TextModel
from core_conformance.checking.ask import answered
from core_conformance.checking.calls import (
    PROMPTS,
    READING,
    ROW_OPERATIONS,
    Ending,
    declared,
    encoded_length,
    ending,
    greedy,
    greedy_options,
    same,
    texts,
)
from core_conformance.checking.check import check, must
from core_conformance.checking.sizes import must_be_too_long, overlong, short_context
from core_conformance.checking.subject import Subject

_SURROGATE = "half a character: \ud83d"


@check(
    "errors.too-long",
    "A prompt longer than the context MUST raise PromptTooLongError; the next call works.",
    Capability.GENERATE,
)
def too_long(subject: Subject) -> None:
    with short_context(subject) as model:
        before = greedy(subject, model, PROMPTS[0], 3)
        prompt = overlong(model)
        end = ending(lambda: model.generate(prompt, max_tokens=1))
        must_be_too_long(model, end.error, encoded_length(subject, prompt))
        after = ending(lambda: model.generate(PROMPTS[0], **greedy_options(subject, 3)))
        _must_work_as_before(subject, before, after)


@check(
    "errors.too-long-rows",
    "A prompt longer than the context MUST be its row's error; the other rows finish.",
    ROW_OPERATIONS,
)
def too_long_rows(subject: Subject) -> None:
    with short_context(subject) as model:
        for name in declared(subject, *ROW_OPERATIONS):
            prompt = overlong(model)
            errors = _rows_around(model, name, prompt)
            must_be_too_long(model, errors, encoded_length(subject, prompt))


@check(
    "errors.empty-prompt",
    "An empty prompt MUST be an EmptyPromptError: of the stream, or of its row alone.",
    READING,
)
def empty_prompt(subject: Subject) -> None:
    errors = _errors_of(subject, "")
    for name, error in errors.items():
        must(
            isinstance(error, EmptyPromptError),
            f"an empty prompt in {name}() ended with {error!r}: expected EmptyPromptError",
        )


@check(
    "errors.lone-surrogate",
    "A prompt that is not valid Unicode MUST fail alone with a CoreError, or be read.",
    READING,
)
def lone_surrogate(subject: Subject) -> None:
    for name, error in _errors_of(subject, _SURROGATE).items():
        must(
            error is None or isinstance(error, CoreError),
            f"a lone surrogate in {name}() ended with {error!r}: expected a core.RequestError "
            "of this prompt",
        )


def _must_work_as_before(subject: Subject, before: list[Any], after: Ending) -> None:
    must(
        after.error is None and same(subject, before, after.tokens, PROMPTS[0]),
        f"after the error, a good prompt gave {after.error or texts(after.tokens)!r}, not "
        f"{texts(before)}",
    )


def _errors_of(subject: Subject, prompt: str) -> dict[Capability, Exception | None]:
    """Return the error that a prompt ends with, by operation.

    Good rows around it have to finish.
    """
    errors: dict[Capability, Exception | None] = {
        name: _rows_around(subject.model, name, prompt)
        for name in declared(subject, *ROW_OPERATIONS)
    }
    if subject.declares(Capability.GENERATE):
        error = ending(lambda: subject.model.generate(prompt, max_tokens=1)).error
        errors[Capability.GENERATE] = error
    return errors


def _rows_around(model: TextModel, name: Capability, prompt: str) -> Exception | None:
    """Ask a prompt between two good ones, and return the error of its row."""
    options = {"max_tokens": 1} if name is Capability.BATCH_GENERATE else {}
    try:
        rows = getattr(model, name.value)([PROMPTS[0], prompt, PROMPTS[1]], **options)
    except Exception as error:  # noqa: BLE001 - no error of one prompt may come out here
        must(False, f"{name}() raised {error!r} for one prompt: expected that row's error")
        return None
    must(len(rows) == 3, f"{name}() of three prompts gave {len(rows)} rows")
    for row in (rows[0], rows[2]):
        _must_be_good(row, "a good row next to a bad one")
    bad: Exception | None = rows[1].error
    if bad is None:
        _must_be_good(rows[1], f"the row of {prompt[:40]!r}")
    return bad


def _must_be_good(row: Any, what: str) -> None:
    must(row.error is None, f"{what} ended with {row.error!r}")
    # A row of batch_generate may be empty: its model may end at once.
    must(answered(row), f"{what} has neither a token, nor a label, nor an error")
