"""One answer in full, from each operation, with more evidence where the backend declares it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from core.capability import Capability
from core.extensions import Scoring, Submitting, Tokenizing
from core.protocols import TokenStream
from core.types import BatchResult, ClassifyResult, Score, Token
from core_conformance.model import must
from core_conformance.speaking import speak, speaks, voice
from core_conformance.subject import Subject


@dataclass(frozen=True, slots=True)
class Answer:
    """One generation, read to its end. ``prompt``: what it continues, where that is known."""

    tokens: tuple[Token, ...]
    finish_reason: str | None
    prompt: str = field(default="", compare=False)

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens' ids."""
        return tuple(token.id for token in self.tokens)

    @property
    def text(self) -> str:
        """The tokens' text, joined."""
        return "".join(token.text for token in self.tokens)


def read(stream: TokenStream, prompt: str = "") -> Answer:
    """Read a stream to its end."""
    tokens = tuple(stream)
    return Answer(tokens, stream.finish_reason, prompt)


def generate(subject: Subject, prompt: str, max_tokens: int = 8, **options: Any) -> Answer:
    """``generate``, greedy unless told otherwise; with logprobs where they are declared.

    Where it is not declared: the first of `SPEAKING` that is.
    """
    speaks(subject, voice(subject))
    asked = evidence(subject) | options
    stream = speak(subject, subject.model, prompt, max_tokens=max_tokens, **asked)
    continues = voice(subject) is not Capability.CHAT  # which answers it instead
    return read(stream, prompt if continues else "")


def batch(
    subject: Subject, prompts: Sequence[str], max_tokens: int = 8, **options: Any
) -> list[BatchResult]:
    """``batch_generate``, one result per prompt made sure of; options as in `generate`."""
    speaks(subject, Capability.BATCH_GENERATE)
    asked = evidence(subject) | options
    results = subject.model.batch_generate(prompts, max_tokens=max_tokens, **asked)
    _one_each("batch_generate()", prompts, results)
    return results


def answer(result: BatchResult, prompt: str = "") -> Answer:
    """A row that must not have failed."""
    must(result.error is None, f"batch_generate() gave a sound prompt the error {result.error!r}")
    return Answer(result.tokens, result.finish_reason, prompt)


def classify(subject: Subject, prompts: Sequence[str], **options: Any) -> list[ClassifyResult]:
    """``classify`` of prompts with which nothing is wrong: one result each, none an error."""
    results = subject.model.classify(prompts, **options)
    _one_each("classify()", prompts, results)
    for prompt, result in zip(prompts, results, strict=True):
        must(result.error is None, f"classify() gave {prompt!r:.60} the error {result.error!r}")
    return results


def token(result: ClassifyResult) -> Token:
    """The token of a result that is no error."""
    must(isinstance(result.token, Token), f"classify() gave {result.token!r} instead of a Token")
    return cast("Token", result.token)


def sampled(result: ClassifyResult, prompt: str = "") -> Answer:
    """The token of a result that is no error, as an answer of one token."""
    return Answer((token(result),), None, prompt)


def logits(subject: Subject, prompts: Sequence[str]) -> list[array[float]]:
    """The logits of each prompt."""
    return [row_logits(result) for result in classify(subject, prompts, return_logits=True)]


def row_logits(result: ClassifyResult) -> array[float]:
    """The logits of a result for which they were asked."""
    must(bool(result.logits), "return_logits=True, and a result has no logits")
    return cast("array[float]", result.logits)


def score(subject: Subject, prompts: Sequence[str], continuations: Sequence[str]) -> list[Score]:
    """``score`` of pairs with which nothing is wrong."""
    scores = scoring(subject).score(prompts, continuations)
    _one_each("score()", prompts, scores)
    for prompt, found in zip(prompts, scores, strict=True):
        must(found.error is None, f"score() gave {prompt!r:.60} the error {found.error!r}")
        must(bool(found.token_logprobs), f"score() gave {prompt!r:.60} no token's logprob")
    return scores


# Draws from a few tokens of about the same probability. With the whole vocabulary, each would have
# so small a share that the least noise in the logits changed the draw.
EVEN = {"temperature": 20.0, "top_k": 8}


def evidence(subject: Subject) -> dict[str, Any]:
    """Options that change no token and tell more about it."""
    return {"return_logprobs": True} if subject.declares(Capability.LOGPROBS) else {}


def seeds(subject: Subject, count: int) -> list[dict[str, int]]:
    """Options for that many independent draws: fixed seeds where there are seeds."""
    if not subject.declares(Capability.SEED):
        return [{} for _ in range(count)]
    # Far apart (splitmix64's odd constant): nothing is promised about seeds next to one another.
    return [{"seed": (i + 1) * 0x9E3779B97F4A7C15 % 2**63} for i in range(count)]


def is_token(value: object, vocab_size: int) -> bool:
    """Whether this is a `core.Token` with an id below ``vocab_size`` and text."""
    return isinstance(value, Token) and is_id(value.id, vocab_size) and _is_a(value.text, str)


def is_id(value: object, vocab_size: int) -> bool:
    """Whether this is a token id; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocab_size


def is_floats(value: object, size: int) -> bool:
    """Whether this is a float32 ``array.array`` of that size."""
    return isinstance(value, array) and value.typecode == "f" and len(value) == size


def tokenizing(subject: Subject) -> Tokenizing:
    """The model, which is declared to show its tokenizer."""
    return cast("Tokenizing", subject.model)


def scoring(subject: Subject) -> Scoring:
    """The model, which is declared to score."""
    return cast("Scoring", subject.model)


def submitting(subject: Subject) -> Submitting:
    """The model, which is declared to take requests at any time."""
    return cast("Submitting", subject.model)


def _one_each(call: str, prompts: Sequence[str], results: Sequence[object]) -> None:
    size = f" of {len(results)}" if isinstance(results, list | tuple) else ""
    must(
        isinstance(results, list) and len(results) == len(prompts),
        f"{call} of {len(prompts)} prompts returned a {type(results).__name__}{size}, not a list "
        "of one result each",
    )


def _is_a(value: object, kind: type) -> bool:
    return isinstance(value, kind)  # whatever the annotations promise
