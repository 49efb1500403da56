"""Clauses over the table of ways: odd texts as prompts, messages, continuations and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from core.errors import ChatTemplateError, CoreError
from core.protocols import Capability
from core.types import Message, Score
from core_conformance.checking import ask
from core_conformance.checking.ask import Answer, evidence, tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.calls import ending, promptly
from core_conformance.checking.check import check, must, well_formed
from core_conformance.checking.compare import (
    LONGEST_LABEL,
    label_logprobs,
    logprobs_by_steps,
    near,
    same_rows,
    steps,
)
from core_conformance.checking.subject import OPERATIONS, Subject
from core_conformance.checking.ways.agreeing import agree
from core_conformance.checking.ways.forms import forms
from core_conformance.checking.ways.oddities import BROKEN, TEXTS
from core_conformance.checking.ways.table import every_way

_TOKENS = 3
_PARTS = 4  # of the texts, each of which is a batch
_LONGEST = 12  # tokens of a continuation that is read step by step
_ENDS = (" house", " water")  # what two texts end in that are alike up to there
_ROLES = ("user", "system", "assistant", "continued")


@check(
    "text.odd-prompts",
    "Any prompt with at least one character MUST be read by each operation as by any other, "
    "awaited and as ids too: white space, emoji, any script, controls, special tokens "
    "spelled out",
    OPERATIONS,
    broad=True,
)
def odd_prompts(subject: Subject) -> None:
    texts, callers = [*TEXTS.values()], every_way(subject)
    batches = [texts[start::_PARTS] for start in range(_PARTS)]
    cases = [(batch, way) for batch in batches for way in callers]
    cost = 2.0 * len(batches[0])
    for batch, way in within(subject, cases, lambda _: cost, "odd texts", 0.6):
        agree(subject, way, batch, way.options(subject, _TOKENS), "odd texts")


@check(
    "text.read-whole",
    "What stands after an odd text MUST be read: in hidden states, keys and scores as well",
    (Capability.HIDDEN_STATES, Capability.ATTENTION_INSPECTOR, Capability.SCORING),
    Capability.CLASSIFY,
    Capability.LOGITS,
    broad=True,
)
def read_whole(subject: Subject) -> None:
    model: Any = subject.model
    for name, text in within(subject, TEXTS.items(), lambda _: 10.0, "odd texts", 0.5):
        pair = [text + end for end in _ENDS]
        rows = ask.logits(subject, pair)
        apart = max(abs(a - b) for a, b in zip(*rows, strict=True))
        if apart <= 4 * subject.tolerance:
            continue
        if subject.declares(Capability.HIDDEN_STATES):
            one, other = (row.states for row in ask.hidden(subject, pair))
            must(one != other, f"hidden_states of {pair!r} ({name}) are the same")
        if subject.declares(Capability.ATTENTION_INSPECTOR, Capability.TOKENIZING):
            size, counted = model.inspect_attention(pair[0]).seq_len, len(model.encode(pair[0]))
            must(
                size == counted,
                f"inspect_attention of {pair[0]!r} ({name}) has {size} positions, and encode() "
                f"makes {counted} tokens",
            )


# --------------------------------------------------------------------------- messages


@check(
    "chat.odd-messages",
    "A message of any role and any text MUST be in the prompt as it is, with a system message and "
    "without; chat MUST be generate(render_chat(messages)) there, awaited too",
    Capability.CHAT,
    Capability.GENERATE,
    Capability.TOKENIZING,
    broad=True,
)
def odd_messages(subject: Subject) -> None:
    cases = [(role, text) for text in (*TEXTS.values(), "", BROKEN) for role in _ROLES]
    for role, text in within(subject, cases, lambda _: 8.0, "messages", 1.0):
        options: dict[str, Any] = {}
        if role == "continued":
            if not subject.declares(Capability.CHAT_TEMPLATE) or not text.strip():
                continue
            options = {"continue_final_message": True}
        messages = _conversation(role, text)
        try:
            rendered = tokenizing(subject).render_chat(messages, **options)
        except ChatTemplateError:  # a template may have no place for it
            continue
        except (CoreError, UnicodeError):
            must(text == BROKEN, f"render_chat({messages!r}) was refused")
            _refuse(subject, messages, options)
            continue
        must(
            text.strip() in str(rendered),
            f"render_chat({messages!r}) gave {str(rendered)!r:.300}, without {text!r}",
        )
        request = evidence(subject) | {"max_tokens": _TOKENS}
        own = ending(lambda: subject.model.generate(rendered, **request))  # noqa: B023
        for form, model in forms(subject, subject.model):
            end = promptly(
                subject,
                lambda: ending(lambda: model.chat(messages, **request, **options)),  # noqa: B023
                f"{form}chat",
            )
            what = f"{form}chat of {messages!r}, and generate of what render_chat gives"
            must(type(end.error) is type(own.error), f"{what}: {end.error!r}, not {own.error!r}")
            pair = Answer(own.tokens, own.reason, rendered), Answer(end.tokens, end.reason)
            same_rows(subject, [pair], what)


def _refuse(subject: Subject, messages: list[Message], options: dict[str, Any]) -> None:
    for form, model in forms(subject, subject.model):
        call = partial(model.chat, messages, max_tokens=1, **options)
        error = promptly(subject, partial(ending, call), f"{form}chat").error
        must(
            error is None or isinstance(error, CoreError),
            f"{form}chat of {messages!r} ended with {error!r}: expected a CoreError",
        )


def _conversation(role: str, text: str) -> list[Message]:
    first, last = Message("user", ask.QUESTION), Message("user", "And then?")
    if role == "system":
        return [Message("system", text), first]
    if role == "user":
        return [first, Message("assistant", "Good."), Message("user", text)]
    return [first, Message("assistant", text), *([last] if role == "assistant" else [])]


# --------------------------------------------------------------------------- continuations


@check(
    "scoring.odd-texts",
    "A continuation or a label of any text MUST have the same logprob by score, score_tokens, "
    "classify and classify_iter, awaited too: that of its tokens, step by step",
    (Capability.SCORING, Capability.LABELS),
    (Capability.SCORING, Capability.CLASSIFY),
    broad=True,
)
def odd_continuations(subject: Subject) -> None:
    pairs = [(ask.QUESTION, text) for text in TEXTS.values()]
    pairs += [(text, " and") for text in TEXTS.values()]
    for prompt, text in within(subject, pairs, lambda _: 14.0, "continuations", 1.0):
        by_way = dict(_logprobs(subject, prompt, text))
        if not by_way:
            continue
        (first, one), *others = by_way.items()
        for name, other in others:
            must(
                near(subject, one, other, LONGEST_LABEL),
                f"{text!r} after {prompt!r} has the logprob {one:.5f} by {first}, and {other:.5f} "
                f"by {name}",
            )


def _logprobs(subject: Subject, prompt: str, text: str) -> Iterator[tuple[str, float]]:
    """Yield the logprob of a continuation by each way that gives one."""
    steps_of = None
    if subject.declares(Capability.TOKENIZING):
        encode = tokenizing(subject).encode
        head, whole = encode(prompt), encode(prompt + text)
        well_formed(bool(whole), f"encode() has no ids for {prompt + text!r:.80}")
        if whole[: len(head)] != head or len(whole) == len(head):
            return  # a token lies across the border: each way may cut it in its own way
        steps_of = steps(subject, prompt, text)
        ids = [head], [whole[len(head) :]]
    known = subject.declares(Capability.CLASSIFY, Capability.LOGITS)
    if known and steps_of and len(steps_of) <= _LONGEST:
        yield "classify, step by step", sum(logprobs_by_steps(subject, steps_of))

    for form, model in forms(subject, subject.model):
        if subject.declares(Capability.SCORING):
            yield f"{form}score", _logprob(subject, lambda: model.score([prompt], [text]))  # noqa: B023
        if subject.declares(Capability.TOKEN_PROMPTS, Capability.TOKENIZING):
            yield (
                f"{form}score_tokens",
                _logprob(subject, lambda: model.score_tokens(*ids)),  # noqa: B023
            )
        for name, need in _LABELLED.items():
            if subject.declares(need, Capability.LABELS) and not text.isspace():
                call = partial(getattr(model, name), [prompt] * 2, labels=(text,), label_prefix="")
                results = promptly(subject, lambda: [*call()], f"{form}{name}")  # noqa: B023
                for row, result in enumerate(results):
                    must(result.error is None, f"{form}{name} of {prompt!r}: {result.error!r}")
                    yield f"{form}{name}, row {row}", label_logprobs(result)[text]


_LABELLED = {
    "classify": Capability.CLASSIFY,
    "classify_iter": Capability.CLASSIFY_STREAMING,
}


def _logprob(subject: Subject, call: Callable[[], Sequence[Score]]) -> float:
    [result] = promptly(subject, call, "a score")
    must(result.error is None, f"a score has the error {result.error!r}")
    return result.logprob
