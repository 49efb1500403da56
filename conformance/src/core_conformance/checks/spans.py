"""Checks of stop strings over one to eight tokens, from the very first character of an answer on.

A stop string may begin before any text was given out, and take the whole answer with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, Answer, generate
from core_conformance.checking.budget import within
from core_conformance.checking.check import check, testable
from core_conformance.checking.stopping import must_stop
from core_conformance.checking.subject import Subject

_LENGTH = 14  # tokens
_STARTS = (0, 1, 3, 5)  # tokens
_WIDEST = 8  # tokens
_SOME = 0.5  # of the passes for one check
_MANY = 40  # stop strings that never come
_NO_TEXT = (
    "after none of the prompts tried does the model produce two tokens of complete characters: "
    "use another model"
)


@check(
    "stop.spans",
    "A stop string over any number of tokens MUST be found wherever it begins, and none of it "
    "emitted: at the answer's first character nothing is left",
    SPEAKING,
    broad=True,
)
def spans_of_all_sizes(subject: Subject) -> None:
    prompt, free = _wordy(subject)
    spans = list(_spans(free))
    testable(bool(spans), _NO_TEXT)

    def cost(span: tuple[int, int]) -> float:
        return sum(span) + 2

    for start, width in within(subject, spans, cost, "first token and width", _SOME):
        stop = _text(free, start, width)
        must_stop(subject, prompt, free, (stop,), _LENGTH)

    # All of an answer, a character of the last token less; and one after many others.
    if len(free.text) > 1 and "\ufffd" not in free.text:
        must_stop(subject, prompt, free, (free.text[:-1],), _LENGTH)
    never = [f"\u2603 {number}" for number in range(_MANY)]
    must_stop(subject, prompt, free, (*never, _text(free, *spans[-1])), _LENGTH)


def _wordy(subject: Subject) -> tuple[str, Answer]:
    """Return the prompt whose greedy answer has most tokens of whole characters."""
    best, prompts = ("", Answer((), None)), (*ask.PLAIN, ask.LONG)
    for prompt in prompts:
        best = max(best, (prompt, generate(subject, prompt, _LENGTH)), key=_whole)
        if _whole(best) == _LENGTH:
            break
    goes_on(subject, [best[1].tokens])
    return best


def _whole(case: tuple[str, Answer]) -> int:
    """Return the number of an answer's tokens before its first broken character."""
    texts = [token.text for token in case[1].tokens]
    return next((place for place, text in enumerate(texts) if "\ufffd" in text), len(texts))


def _spans(free: Answer) -> Iterator[tuple[int, int]]:
    """Yield the first token and width of each span with a different text, by its start.

    Its text begins with a token and ends with the first character of another, or of the same.
    """
    last = _whole(("", free))
    for start in _STARTS:
        seen = {""}
        for width in range(1, min(_WIDEST, last - start) + 1):
            text = _text(free, start, width)
            if text not in seen and free.tokens[start].text:
                yield start, width
            seen.add(text)


def _text(free: Answer, start: int, width: int) -> str:
    texts = [token.text for token in free.tokens[start : start + width]]
    return "".join(texts[:-1]) + texts[-1][:1]
