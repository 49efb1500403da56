"""Checks of a stream as a whole: its text, and what came of it for JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from core.protocols import Capability, TokenStream
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on, has_template
from core_conformance.checking.ask import SPEAKING, speaks, voice
from core_conformance.checking.calls import already_set, ending, raised
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.subject import Subject

_KEYS = {"text", "finish_reason", "metrics", "error"}
_LENGTH = 8


@check(
    "streaming.text",
    "text() MUST be the text of all tokens of the stream, those that were read before among them, "
    "and the same at a second call",
    SPEAKING,
)
def text_is_all_of_it(subject: Subject) -> None:
    speaks(subject, voice(subject))
    texts = []
    for name in _streams(subject):
        for prompt in ask.PLAIN[:2]:
            texts.append(_read_before(subject, name, prompt))
            _read_in_part(subject, name, prompt)
    goes_on(subject, texts)


def _read_before(subject: Subject, name: Capability, prompt: str) -> str:
    stream = _begin(subject, name, prompt)
    whole = "".join(token.text for token in stream)
    for _ in range(2):
        text = stream.text()
        must(text == whole, f"{name} was read to its end and gave {whole!r}: text() is {text!r}")
    return whole


def _read_in_part(subject: Subject, name: Capability, prompt: str) -> None:
    stream = _begin(subject, name, prompt)
    head = "".join(token.text for _, token in zip(range(2), stream, strict=False))
    text = stream.text()
    must(text.startswith(head), f"{name} gave {head!r} first, and text() is {text!r}")

    reason, again = stream.finish_reason, stream.text()
    must(
        reason in ("stop", "length"), f"text() of {name} has returned: finish_reason is {reason!r}"
    )
    must(next(stream, None) is None, f"text() of {name} has returned, and next() gave a token")
    must(again == text, f"text() of {name} is {text!r}, and at a second call {again!r}")


@check(
    "streaming.text-fails",
    "text() MUST raise what the iterator of the stream raises, at a second call too",
    SPEAKING,
)
def text_raises(subject: Subject) -> None:
    speaks(subject, voice(subject))
    failed = 0
    for name in _streams(subject):
        options: dict[str, Any] = {"cancel": already_set()}
        iterated = _begin(subject, name, ask.PLAIN[0], **options)
        error = raised(lambda iterated=iterated: list(iterated))  # type: ignore[misc]
        if error is None:
            continue  # whether it should is for other checks to say
        failed += 1

        unread = _begin(subject, name, ask.PLAIN[0], **options)
        for stream, what in ((unread, "text()"), (unread, "a second text()"), (iterated, "text()")):
            seen = raised(stream.text)
            must(
                type(seen) is type(error),
                f"the iterator of {name} raised {error!r}, and {what} raised {seen!r}",
            )
    testable(failed > 0, "a cancel that was set from the beginning stopped no stream")


@check(
    "streaming.to-dict",
    "to_dict() MUST tell, in what JSON can hold, the text that was read, finish_reason, metrics "
    "and the error",
    SPEAKING,
)
def what_came_of_it(subject: Subject) -> None:
    speaks(subject, voice(subject))
    for name in _streams(subject):
        stream = _begin(subject, name, ask.PLAIN[0])
        before = _told(stream, name)
        must(
            before["text"] == "" and before["finish_reason"] is None and before["error"] is None,
            f"nothing of {name} was read, and to_dict() is {before!r}",
        )
        _agrees(stream, name, stream.text())

        failing = _begin(subject, name, ask.PLAIN[0], cancel=already_set())
        read = ending(lambda failing=failing: failing)  # type: ignore[misc]
        _agrees(failing, name, "".join(token.text for token in read.tokens), read.error)


def _agrees(
    stream: TokenStream, name: Capability, text: str, error: Exception | None = None
) -> None:
    """Check that ``to_dict()`` agrees with the stream's attributes."""
    record = _told(stream, name)
    wanted: dict[str, object] = {
        "text": text,
        "finish_reason": stream.finish_reason,
        "metrics": json.loads(json.dumps(stream.metrics.to_dict())),
        "error": error and {"type": type(error).__name__, "message": str(error)},
    }
    for key, value in wanted.items():
        must(record[key] == value, f"to_dict() of {name} has {key}={record[key]!r}, not {value!r}")


def _told(stream: TokenStream, name: Capability) -> dict[str, Any]:
    record = stream.to_dict()
    try:
        parsed: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    except (TypeError, ValueError) as error:
        must(False, f"to_dict() of {name} is nothing that JSON can hold ({error}): {record!r}")
        raise
    must(set(parsed) >= _KEYS, f"to_dict() of {name} has the keys {sorted(parsed)}")
    return parsed


def _streams(subject: Subject) -> Iterator[Capability]:
    """Yield the declared ones of `SPEAKING` that work with this model."""
    for name in SPEAKING:
        if subject.declares(name) and (name is not Capability.CHAT or has_template(subject)):
            yield name


def _begin(subject: Subject, name: Capability, prompt: str, **options: Any) -> TokenStream:
    return ask.begin(name, subject.model, prompt, {"max_tokens": _LENGTH, **options})
