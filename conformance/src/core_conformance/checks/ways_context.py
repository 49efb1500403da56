"""Clauses over the table of ways: the context's end, and what is asked on its far side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from core.errors import PromptTooLongError, RequestError
from core.protocols import Capability, TextModel
from core.types import Message, Score
from core_conformance.checking import ask
from core_conformance.checking.ask import EVEN, tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.calls import promptly
from core_conformance.checking.check import check, leave_out, must, testable, well_formed
from core_conformance.checking.draws.judging import stopped
from core_conformance.checking.sizes import NO_SIZES, sized, small
from core_conformance.checking.subject import OPERATIONS, Subject
from core_conformance.checking.ways.agreeing import Options, agree, alike, draws_tell, gives, wanted
from core_conformance.checking.ways.forms import forms
from core_conformance.checking.ways.oddities import BROKEN, MIXED
from core_conformance.checking.ways.table import BY_NAME, Row, Way, every_way

_CONTEXT, _MOST, _FEW_TOKENS = 64, 1024, 4096  # positions
_TOKENS, _BEYOND = 3, 8
_TURNS = 16  # prompts whose answers may be of plain letters
_A_TOKEN = 1 / 20  # passes


@check(
    "context.ways",
    "A prompt that fills the context MUST be read by each operation as by any other, and one token "
    "more be a PromptTooLongError, of its row alone",
    OPERATIONS,
    Capability.TOKENIZING,
    broad=True,
)
def the_contexts_end(subject: Subject) -> None:
    with small(subject, _CONTEXT) as model:
        limit, tried = model.info.context_length, False
        sizes = [(way, limit + more) for more in (0, 1, 2) for way in every_way(subject)]

        def cost(case: tuple[Way, int]) -> float:
            return 2 + 2 * case[1] * _A_TOKEN

        for way, size in within(subject, sizes, cost, f"prompts around {limit} tokens", 0.6):
            prompt = _sized(subject, way, size)
            if prompt is None:
                continue
            tried = True
            own = {"return_logprobs": True} if subject.declares(Capability.LOGPROBS) else {}
            options = way.options(subject, _TOKENS) | ({} if way.bare else own)
            what = f"a prompt of {size} tokens in a context of {limit}"
            expected = agree(subject, way, [prompt, ask.SHORT], options, what, model)
            if way.fixed or Capability.SCORING in (way.name, way.base):
                continue  # a label or a continuation takes room as well
            read = size <= limit
            must(
                (expected[0].error is None) == read and expected[1].error is None,
                f"{what}, and one of a letter: {way.name} has {[row.error for row in expected]}",
            )
    testable(tried, NO_SIZES)


def _sized(subject: Subject, way: Way, size: int) -> str | None:
    """Return a prompt of so many tokens; one of which chat makes so many."""
    if Capability.CHAT not in (way.name, way.base):
        return sized(subject, size, turn=31)
    model = tokenizing(subject)
    around = len(model.encode(model.render_chat([Message("user", ask.SHORT)])))
    for less in range(around - 3, around + 3):
        text = sized(subject, max(1, size - less), turn=31)
        if text and len(model.encode(model.render_chat([Message("user", text)]))) == size:
            return text
    return None


@check(
    "scoring.full-context",
    "A pair of which all but the last token fill the context MUST be scored, and one token more be "
    "its row's PromptTooLongError, as texts and as ids; an empty continuation MUST be its row's "
    "RequestError",
    (Capability.SCORING, Capability.TOKEN_PROMPTS),
    Capability.TOKENIZING,
    broad=True,
)
def scores_of_a_full_context(subject: Subject) -> None:
    encode = tokenizing(subject).encode
    well_formed(bool(encode(ask.PLAIN[0])), f"encode() has no ids for {ask.PLAIN[0]!r}")
    with small(subject, _CONTEXT) as model:
        limit = model.info.context_length
        testable(limit <= _FEW_TOKENS, "the context is too long to fill: use a smaller context_len")
        pairs = [(size <= limit + 1, _pair(subject, size)) for size in (limit + 1, limit + 2)]
        known = [(fits, *pair) for fits, pair in pairs if pair]
        testable(bool(known), "no text was found that fills the context to the token")
        for form, caller in forms(subject, model):
            if subject.declares(Capability.SCORING):
                texts = [*known, (False, ask.QUESTION, ""), (None, ask.QUESTION, BROKEN)]
                given = [prompt for _, prompt, _ in texts], [text for _, _, text in texts]
                _fit(subject, f"{form}score", texts, partial(caller.score, *given))
            if subject.declares(Capability.TOKEN_PROMPTS):
                heads = [encode(prompt) for _, prompt, _ in known]
                tails = [
                    encode(prompt + text)[len(head) :]
                    for head, (_, prompt, text) in zip(heads, known, strict=True)
                ]
                call = partial(caller.score_tokens, [*heads, heads[0]], [*tails, []])
                _fit(subject, f"{form}score_tokens", [*known, (False, "", "")], call)


def _fit(
    subject: Subject,
    what: str,
    pairs: Sequence[tuple[bool | None, str, str]],
    call: Callable[[], Sequence[Score]],
) -> None:
    """Check that the pairs which fit have a score, and the others an error of their own."""
    for (fits, prompt, text), scored in zip(pairs, promptly(subject, call, what), strict=True):
        wrong = PromptTooLongError if text else RequestError
        must(
            fits is None or (scored.error is None if fits else isinstance(scored.error, wrong)),
            f"{what} of {text!r:.80} after {len(prompt)} characters has {scored!r:.200}",
        )


def _pair(subject: Subject, size: int) -> tuple[str, str] | None:
    """Return a prompt and a continuation of this many tokens together, if there are any."""
    encode = tokenizing(subject).encode
    for word in dict.fromkeys(" ".join(ask.PLAIN).split()):
        step = len(encode(f"{word} {word} {word}")) - len(encode(f"{word} {word}"))
        words = (size - len(encode(word))) // max(1, step) + 1
        whole, prompt = " ".join([word] * words), " ".join([word] * (words // 2))
        ids, head = encode(whole), encode(prompt)
        if prompt and len(ids) == size and ids[: len(head)] == head:
            return prompt, whole.removeprefix(prompt)
    return None


# --------------------------------------------------------------------------- rotation


@check(
    "context.rotated-ways",
    'With context_overflow="rotate" every option MUST count beyond the context as within, in each '
    "operation as in any other: seeds, filters, penalties, stops, logprobs, and the metrics",
    Capability.GENERATE,
    Capability.ROTATE,
    Capability.TOKENIZING,
    broad=True,
)
def beyond_the_context(subject: Subject) -> None:
    with small(subject, _CONTEXT, context_overflow="rotate") as model:
        limit = model.info.context_length
        testable(limit <= _MOST, "the context is too long to be filled: use one that is shorter")
        callers = [way for way in every_way(subject) if way.generates]
        given = {way: _filling(subject, way, limit) for way in callers}
        testable(any(given.values()), NO_SIZES)
        cases = [(own, way) for own in _options(subject) for way in callers if given[way]]
        cost = 4 * (2 + limit * _A_TOKEN)
        for own, way in within(subject, cases, lambda _: cost, "beyond the context", 0.5):
            request = way.options(subject, _BEYOND) | own
            what = f"beyond the context with {request}"
            agree(subject, way, given[way], request, what, model)
        _stops(subject, model, [way for way in callers if given[way]])


def _filling(subject: Subject, way: Way, limit: int) -> list[str]:
    """Return a prompt that leaves room for a few tokens, if there is one."""
    prompt = _sized(subject, way, limit - 3)
    return [] if prompt is None else [prompt]


def _options(subject: Subject) -> Iterator[Options]:
    yield {}
    if draws_tell(subject):
        yield EVEN | {"seed": 12}
        yield {**MIXED}
    yield {"repeat_penalty": 1.5}


def _stops(subject: Subject, model: TextModel, callers: list[Way]) -> None:
    """Stop an answer at what it says beyond the context: one of plain letters, which none cuts."""
    limit = model.info.context_length
    for turn in range(_TURNS):
        prompt = sized(subject, limit - 4, turn=50 + turn) or ""
        request = callers[0].options(subject, _BEYOND)
        answer = wanted(subject, BY_NAME["generate"], [prompt], request, model)[0].answer
        if len(answer.ids) == _BEYOND and answer.text.isascii():
            break
    else:
        leave_out("stops beyond the context: no answer is of plain letters alone")
        return

    for way in callers:
        if Capability.CHAT in (way.name, way.base):
            continue  # its answer is another one
        for own in ({"stop": (answer.text[-2:],)}, {"stop_tokens": (answer.ids[-2],)}):
            rows = gives(subject, way, model, [prompt], request | own)
            cut = [Row(stopped(answer, request | own))]
            alike(subject, way, cut, rows, f"{way.name}, stopped beyond the context")
