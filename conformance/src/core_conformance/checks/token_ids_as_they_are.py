"""Checks of ids that no text has, which are read unchanged, and of samples without a seed."""

from __future__ import annotations

from typing import Any, cast

from core.extensions import TokenPrompts
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import EVEN, tokenizing
from core_conformance.checking.check import check, must, well_formed
from core_conformance.checking.compare import near
from core_conformance.checking.subject import Subject

_SAMPLES, _STEPS = 6, 6


@check(
    "tokens.repeated-first",
    "Ids MUST be read unchanged, also where a text's first one, such as BOS, comes twice, or "
    "later: parts score what the whole does, and all are counted",
    Capability.TOKEN_PROMPTS,
    Capability.TOKENIZING,
    broad=True,
)
def ids_are_read_unchanged(subject: Subject) -> None:
    model, first, *rest = _model(subject), *tokenizing(subject).encode(ask.PLAIN[0])
    for ids in ([first, first, *rest], [first, *rest, first, first, *rest[:2]]):
        [whole] = model.score_tokens([ids[:1]], [ids[1:]])
        ends = range(2, len(ids))
        parts = model.score_tokens([ids[:end] for end in ends], [ids[end:] for end in ends])
        for end, part in zip(ends, parts, strict=True):
            wanted = whole.token_logprobs[end - 1 :]
            must(
                len(part.token_logprobs) == len(wanted)
                and all(map(lambda a, b: near(subject, a, b), wanted, part.token_logprobs)),
                f"the ids {ids[end:]} after {ids[:end]} score {part.token_logprobs!r:.200}, and "
                f"{wanted!r:.200} where more of them are scored",
            )
        stream = model.stream_tokens(ids, max_tokens=1)
        stream.text()
        count = stream.metrics.prompt_tokens
        must(count == len(ids), f"stream_tokens of {len(ids)} ids counts {count} prompt_tokens")


@check(
    "tokens.free-samples",
    "Samples without a seed MUST be drawn independently, of one prompt and of equal prompts",
    Capability.TOKEN_PROMPTS,
    Capability.TOKENIZING,
)
def samples_without_a_seed_differ(subject: Subject) -> None:
    ids = tokenizing(subject).encode(ask.PLAIN[1])
    drawn: dict[str, Any] = {"max_tokens": _STEPS, **EVEN}
    for what, rows, samples in (
        ("samples of one prompt", [ids], _SAMPLES),
        ("equal prompts", [ids] * _SAMPLES, 1),
    ):
        sequences = _model(subject).generate_tokens(rows, num_samples=samples, **drawn)
        well_formed(
            all(sequence.error is None for sequence in sequences), f"{what} gave {sequences!r:.200}"
        )
        outputs = {sequence.ids for sequence in sequences}
        must(
            len(outputs) > 1,
            f"{len(sequences)} {what}, drawn without a seed at a high temperature, are all the "
            "same",
        )


def _model(subject: Subject) -> TokenPrompts:
    return cast("TokenPrompts", subject.model)
