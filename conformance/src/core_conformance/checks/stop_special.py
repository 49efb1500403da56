"""Checks of stop strings, labels and continuations that spell a special token.

A special token has no text of its own.

A tiny penalty on what stands in the prompt makes a special token there the likeliest one, if its
logit is positive: so that it is generated, whatever the model would say otherwise. Of a small
vocabulary, hot draws also bring some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from core.errors import ChatTemplateError, UnsupportedOptionError
from core.kit.chat import RenderedPrompt
from core.kit.labels import label_lead
from core.protocols import Capability
from core.types import Message
from core_conformance.checking import ask
from core_conformance.checking.ask import Answer, evidence, logits, read, tokenizing
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.compare import label_logprobs, near
from core_conformance.checking.stopping import wavers
from core_conformance.checking.subject import Subject

_SPELLED = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")
_PENALTY, _LENGTH, _MOST = 1e-4, 2, 6  # tokens, and special tokens that are tried
_FEW_TOKENS, _SEEDS, _LONG = 1000, 12, 48  # of a vocabulary; of an answer


@check(
    "stop.special",
    "A stop string that is the text of a special token, or holds it, MUST end an answer at that "
    "token, which is neither given nor counted; one that is a part of that text MUST NOT",
    Capability.GENERATE,
    Capability.CHAT,
    Capability.TOKENIZING,
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def special_tokens_stop(subject: Subject) -> None:
    special = _special(subject)
    forced = (_forced(subject, text, token) for text, token in special.items())
    case = next(filter(None, forced), None) or _hot(subject, special)
    if case is None:
        leave_out("special tokens that the model generates: none can be made the likeliest one")
    else:
        _stops_at(subject, case)

    # Where a special token does not come, its text stops nothing.
    prompt = ask.PLAIN[1]
    free = ask.generate(subject, prompt, _LENGTH)
    answer = ask.generate(subject, prompt, _LENGTH, stop=("<|core-special|>", "[CORE]"))
    if not wavers(subject, prompt, free, answer, _LENGTH):
        must(
            (answer.ids, answer.finish_reason) == (free.ids, free.finish_reason),
            f"stop strings that never come changed {free.text!r} to {answer.text!r}",
        )


@check(
    "chat.special-continued",
    "A label and a continuation that spell a special token MUST be read as plain text, after a "
    "plain prompt and after what render_chat gives",
    Capability.CHAT,
    Capability.TOKENIZING,
    Capability.SCORING,
)
def special_tokens_in_continuations(subject: Subject) -> None:
    special = list(_special(subject))[:2] or ["<|core|>"]  # which is none
    for prompt in (ask.QUESTION, tokenizing(subject).render_chat([Message("user", "Hello")])):
        for text in special:
            (scored,) = ask.score(subject, [prompt], [f" {text}"])
            count = len(scored.token_logprobs)
            must(
                count > 1,
                f"the continuation {text!r} after {prompt!r:.60} was read as {count} token",
            )
            if subject.declares(Capability.CLASSIFY, Capability.LABELS):
                result = ask.classify(subject, [prompt], labels=(text,))[0]
                wanted = ask.score(subject, [prompt], [label_lead(prompt, " ") + text])[0].logprob
                logprob = label_logprobs(result)[text]
                must(
                    near(subject, logprob, wanted, count + 1),
                    f"the label {text!r} after {prompt!r:.60} has the logprob {logprob:.5f}, and "
                    f"as a continuation {wanted:.5f}",
                )


@dataclass(frozen=True, slots=True)
class Case:
    """An answer in which a special token comes at a ``place``, and what it was asked with."""

    prompt: str
    options: dict[str, Any]
    free: Answer
    place: int
    special: str


def _stops_at(subject: Subject, case: Case) -> None:
    text, place, free = case.special, case.place, case.free
    call = f"generate({case.prompt!r}) with {case.options} generates the special token {text!r}"
    after = free.tokens[place + 1 : place + 2]
    again = after and after[0].id == free.ids[place]
    longer = text + (text if again else "".join(token.text for token in after))
    for stop in dict.fromkeys((text, longer)):
        stream = subject.model.generate(case.prompt, stop=(stop,), **case.options)
        answer, counted = read(stream), stream.metrics.generated_tokens
        must(
            answer.ids == free.ids[:place] and answer.finish_reason == "stop",
            f"{call}, and with stop={stop!r} it gave {list(answer.ids)} of {list(free.ids)} and "
            f"ended with {answer.finish_reason!r}",
        )
        must(counted == place, f"{call}; with stop={stop!r} it counted {counted}, not {place}")

    inner = text[1:-1]
    part = read(subject.model.generate(case.prompt, stop=(inner,), **case.options))
    must(
        inner in free.text or part.ids == free.ids,
        f"{call}, and stop={inner!r}, which is only a part of that text, left {list(part.ids)}",
    )


def _special(subject: Subject) -> dict[str, int]:
    """Return special tokens that the chat template writes, by their texts."""
    encode = tokenizing(subject).encode
    try:
        rendered = tokenizing(subject).render_chat([Message("user", "Hello")])
    except ChatTemplateError:
        return {}
    special: dict[str, int] = {}
    for text in dict.fromkeys(_SPELLED.findall(str.__str__(rendered))):
        ids = [id for id in encode(RenderedPrompt(text)) if id not in encode("Hello")]
        if len(ids) == 1 and ids[0] not in encode(text):
            special[text] = ids[0]
    return dict(list(special.items())[:_MOST])


def _forced(subject: Subject, text: str, token: int) -> Case | None:
    """Return an answer that begins with the special token, if a penalty leads to one."""
    options = {"repeat_penalty": _PENALTY, "max_tokens": _LENGTH, **evidence(subject)}
    for prompt in _prompts(text):
        seen = set(tokenizing(subject).encode(prompt))
        (row,) = logits(subject, [prompt])
        others = max((row[id] for id in seen if id != token), default=0.0)
        if row[token] <= max(others, 0.0) + 2 * subject.tolerance + 1e-3:
            continue
        try:
            answer = read(subject.model.generate(prompt, **options))
        except UnsupportedOptionError:
            return None
        if answer.ids[:1] == (token,):
            return Case(prompt, options, answer, 0, text)
    return None


def _hot(subject: Subject, special: dict[str, int]) -> Case | None:
    """Return an answer drawn from even chances in which a special token comes."""
    if subject.model.info.vocab_size > _FEW_TOKENS or not subject.declares(Capability.SEED):
        return None
    texts = {token: text for text, token in special.items()}
    for seed in range(_SEEDS):
        options: dict[str, Any] = {"temperature": 1e4, "seed": seed, "max_tokens": _LONG}
        answer = ask.generate(subject, ask.PLAIN[0], **options)
        if answer.ids != ask.generate(subject, ask.PLAIN[0], **options).ids:
            return None  # what is drawn from close chances differs from call to call
        for place, token in enumerate(answer.ids):
            if token in texts:
                return Case(ask.PLAIN[0], options, answer, place, texts[token])
    return None


def _prompts(text: str) -> Iterator[RenderedPrompt]:
    yield from (RenderedPrompt(text * count) for count in (1, 2, 3))
    yield from (RenderedPrompt(text).extended(words, ()) for words in ask.PLAIN)
