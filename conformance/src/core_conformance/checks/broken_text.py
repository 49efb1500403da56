"""Text that is not valid Unicode, and control characters, wherever a text can be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from core.errors import CoreError, InvalidOptionError, OptionError
from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.types import Message
from core_conformance.checking import ask
from core_conformance.checking.applies import has_template
from core_conformance.checking.ask import SPEAKING, generate
from core_conformance.checking.calls import READING, ROW_OPERATIONS, ending, must_raise, raised
from core_conformance.checking.check import check, count_compared, must
from core_conformance.checking.compare import same_answers
from core_conformance.checking.subject import Subject

RowCall = Callable[[list[str]], Sequence[Any]]

_BROKEN = {
    "a high surrogate at the end": "half a character: \ud83d",
    "a low surrogate in front": "\ude00 is half a character",
    "a pair of surrogates": "two halves \ud83d\ude00 of one",  # as UTF-16 read unit by unit gives
    "surrogates in the wrong order": "two halves \ude00\ud83d of one",
}
_GOOD = ask.PLAIN[:2]
_CONTROLS = (
    *map(chr, (0x00, 0x01, 0x07, 0x08, 0x0B, 0x1A, 0x1B, 0x1F, 0x7F, 0x85, 0x9B)),
    *"\u200b\u200f\u2028\u202e\ufeff\ufffd\ufffe\uffff\ue000\U0010ffff",
)
_READERS = {
    Capability.CLASSIFY: "classify",
    Capability.LABEL_SENTENCES: "classify",
    Capability.CLASSIFY_STREAMING: "classify_iter",
}
_BEHIND = " nobody knew, but the harbour was quiet and"


@check(
    "errors.surrogates",
    "A text that is not valid Unicode MUST fail alone with a CoreError, or be read: as a prompt, a "
    "message or a continuation, in every operation",
    broad=True,
)
def surrogates_fail_alone(subject: Subject) -> None:
    for name, text, error in _errors(subject, tuple(_BROKEN.values())):
        # A tokenizer asked by itself may say what Python says.
        typed = CoreError if name != Capability.TOKENIZING else (CoreError, UnicodeError)
        must(
            error is None or isinstance(error, typed),
            f"{text!r} in {name} ended with {error!r}: expected a core.RequestError of this text",
        )


@check(
    "errors.surrogate-options",
    "A label, label_prefix or label_sentence that is not valid Unicode MUST raise "
    "InvalidOptionError at the call",
    (*_READERS,),
    Capability.LABELS,
)
def surrogates_in_options_raise_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    for name in filter(subject.declares, _READERS):
        for text in _BROKEN.values():
            for options in (
                {"labels": ("good", text)},
                {"labels": ("a", "b"), "label_prefix": text},
                {"labels": ("a", "b"), "label_sentence": f"{text} {{label}}"},
            ):
                call = partial(getattr(model, _READERS[name]), list(_GOOD), **options)
                must_raise(InvalidOptionError, call, f"{_READERS[name]} with {options!r}")


@check(
    "stop.surrogates",
    "A stop string that is not valid Unicode MUST raise OptionError at the call, or change nothing",
    SPEAKING,
    broad=True,
)
def surrogates_stop_nothing(subject: Subject) -> None:
    free = generate(subject, _GOOD[0], 6)
    letter = next(filter(str.isalnum, free.text), "e")
    for stop in ("\ud83d", f"{letter}\ud83d", f"\ude00{letter}"):
        try:
            ended = generate(subject, _GOOD[0], 6, stop=stop)
        except OptionError:
            count_compared()
            continue
        same_answers(subject, [(free, ended)], f"without, and with stop={stop!r}", stops=(stop,))


@check(
    "text.control-characters",
    "A prompt MUST be read whatever characters it holds: NUL, other control characters, marks of "
    "direction, those that stand for no character",
    READING,
)
def control_characters_are_read(subject: Subject) -> None:
    texts = [f"one{character}two" for character in _CONTROLS]
    for name, text, wrong in _asked(subject, texts):
        must(not wrong, f"{name} of {text!r} gave {wrong}")


@check(
    "text.nul",
    "A NUL MUST NOT end a text: what stands after it is read, in every operation",
    (*ROW_OPERATIONS, *SPEAKING),
)
def nul_ends_no_text(subject: Subject) -> None:
    for name, count in _counts(subject):
        cut, whole = count(_GOOD[0]), count(f"{_GOOD[0]}\0{_BEHIND}")
        must(
            whole > cut + 1,
            f"{name} of {_GOOD[0]!r} read {cut} tokens, and with a NUL and {_BEHIND!r} after it "
            f"{whole}",
        )


def _errors(subject: Subject, texts: Sequence[str]) -> Iterator[tuple[str, str, Exception | None]]:
    """Yield the error of each text in each operation.

    Among good rows, which have to finish, or alone.
    """
    for name, call in _row_calls(subject).items():
        for text, row in _among_good(name, call, texts):
            must(row.error is not None or _is_answer(row), f"{name} of {text!r} gave {row!r:.200}")
            yield name, text, row.error
    for name, ask_alone in _single_calls(subject.model).items():
        if subject.declares(name):
            yield from ((str(name), text, ask_alone(text)) for text in texts)


def _among_good(name: str, call: RowCall, texts: Sequence[str]) -> list[tuple[str, Any]]:
    given = [_GOOD[0], *texts, _GOOD[1]]
    try:
        rows = call(given)
    except Exception as error:  # noqa: BLE001 - no error of one text may come out here
        must(False, f"{name} of {given!r} raised {error!r}: expected the rows' own error")
        return []
    must(len(rows) == len(given), f"{name} of {len(given)} texts gave {len(rows)} rows")
    for row in (rows[0], rows[-1]):
        must(_is_answer(row), f"{name} of {given!r} gave a good row as {row!r:.200}")
    return list(zip(texts, rows[1:-1], strict=True))


def _row_calls(subject: Subject) -> dict[str, RowCall]:
    """Return the operations that take several texts, as what gives a row for each of them."""
    model: Any = subject.model
    calls: dict[Capability, dict[str, RowCall]] = {
        Capability.CLASSIFY: {"classify": model.classify},
        Capability.LABEL_SENTENCES: {"classify": model.classify},
        Capability.BATCH_GENERATE: {"batch_generate": partial(model.batch_generate, max_tokens=1)},
        Capability.CLASSIFY_STREAMING: {
            "classify_iter": lambda texts: list(model.classify_iter(iter(texts)))
        },
        Capability.SCORING: {
            "score": lambda texts: model.score(texts, ["a"] * len(texts)),
            "score (continuations)": lambda texts: model.score([_GOOD[0]] * len(texts), texts),
        },
        Capability.HIDDEN_STATES: {"hidden_states": lambda texts: model.hidden_states(texts)},
    }
    return {
        name: call for need in calls if subject.declares(need) for name, call in calls[need].items()
    }


def _single_calls(model: Any) -> dict[Capability, Callable[[str], Exception | None]]:
    """Return the operations that take one text, as what gives its error."""
    return {
        Capability.GENERATE: lambda text: ending(lambda: model.generate(text, max_tokens=1)).error,
        Capability.CHAT: lambda text: (
            ending(lambda: model.chat([Message("user", text)], max_tokens=1)).error
        ),
        Capability.SUBMITTING: lambda text: (
            ending(lambda: model.submit(text, GenerateConfig(max_tokens=1))).error
        ),
        Capability.BATCH_STREAMING: lambda text: raised(
            lambda: list(model.batch_stream([text], max_tokens=1))
        ),
        Capability.ATTENTION_INSPECTOR: lambda text: raised(lambda: model.inspect_attention(text)),
        Capability.TOKENIZING: lambda text: raised(lambda: model.encode(text)),
    }


def _is_answer(row: Any) -> bool:
    """Return whether a row has the requested fields.

    One of a batch may be empty, for models may end.
    """
    return row.error is None and ask.answered(row)


def _asked(subject: Subject, texts: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the operation, the text and its error for each text; "" means success.

    Operations on rows get all texts in one call, streams some of them.
    """
    for name, call in _row_calls(subject).items():
        for text, row in zip(texts, call(list(texts)), strict=True):
            yield name, text, "" if _is_answer(row) else f"{row!r:.200}"
    if subject.declares(Capability.GENERATE):
        for text in texts[::5]:
            end = ending(partial(subject.model.generate, text, max_tokens=1))
            yield "generate", text, "" if end.error is None else repr(end.error)


def _counts(subject: Subject) -> Iterator[tuple[str, Callable[[str], int]]]:
    """Yield the operations, as what gives the number of tokens that one reads of a text."""
    model: Any = subject.model

    def of_stream(stream: TokenStream) -> int:
        list(stream)
        return stream.metrics.prompt_tokens

    def of_rows(_: Sequence[object]) -> int:
        read: int = model.metrics.prompt_tokens
        return read

    one: dict[Capability, Callable[[str], int]] = {
        Capability.GENERATE: lambda text: of_stream(model.generate(text, max_tokens=1)),
        Capability.SUBMITTING: lambda text: of_stream(
            model.submit(text, GenerateConfig(max_tokens=1))
        ),
        Capability.CLASSIFY: lambda text: of_rows(model.classify([text])),
        Capability.LABEL_SENTENCES: lambda text: of_rows(model.classify([text])),
        Capability.BATCH_GENERATE: lambda text: of_rows(model.batch_generate([text], max_tokens=1)),
        Capability.TOKENIZING: lambda text: len(model.encode(text)),
        Capability.SCORING: lambda text: len(model.score(["A"], [text])[0].token_logprobs),
    }
    if subject.declares(Capability.CHAT) and has_template(subject):
        one[Capability.CHAT] = lambda text: of_stream(
            model.chat([Message("user", text)], max_tokens=1)
        )
    yield from ((str(name), one[name]) for name in one if subject.declares(name))
