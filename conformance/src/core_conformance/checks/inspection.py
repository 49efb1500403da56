"""The attention keys that a model shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from core.capability import Capability
from core.extensions import AttentionInspector
from core.types import AttentionSnapshot
from core_conformance import prompts
from core_conformance.answers import is_floats, tokenizing
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.subject import Subject

_NEAR = 0.02  # of the largest key: two runs may differ in rounding only


@check(
    "inspection.sizes",
    "A snapshot MUST hold seq_len * head_dim float32 numbers per layer and head, as many as it "
    "says",
    Capability.ATTENTION_INSPECTOR,
)
def sizes_agree(subject: Subject) -> None:
    seen = _inspect(subject, prompts.PLAIN[0])
    must(
        len(seen.keys) == seen.num_layers and all(len(k) == seen.num_heads for k in seen.keys),
        f"{seen!r} holds {len(seen.keys)} layers with {[len(k) for k in seen.keys]} heads",
    )
    size = seen.seq_len * seen.head_dim
    for values in (values for layer in seen.keys for values in layer):
        must(
            is_floats(values, size),
            f"a head's keys are a {type(values).__name__} of {len(values)}, not an array('f') of "
            f"{seen.seq_len} * {seen.head_dim}",
        )
    info = subject.model.info
    must(
        (seen.num_layers, seen.architecture) == (info.num_layers, info.architecture),
        f"the snapshot {seen!r} is of another model than {info!r}",
    )
    if subject.declares(Capability.TOKENIZING):
        length = len(tokenizing(subject).encode(prompts.PLAIN[0]))
        must(seen.seq_len == length, f"the prompt has {length} tokens, and seq_len={seen.seq_len}")


@check(
    "inspection.prefix",
    "Keys MUST depend on what stands before them alone: a longer prompt has the shorter one's",
    Capability.ATTENTION_INSPECTOR,
    Capability.TOKENIZING,
)
def longer_prompts_begin_alike(subject: Subject) -> None:
    prompt = prompts.PLAIN[0]
    longer, other = f"{prompt} a city of light", prompts.PLAIN[3]
    short, long = _inspect(subject, prompt), _inspect(subject, longer)
    shared = _common(subject, prompt, longer)
    must(
        _apart(short, long, shared) <= _NEAR,
        f"the first {shared} tokens of {prompt!r} and {longer!r} are the same, and their keys "
        "are not",
    )
    must(
        _apart(short, _inspect(subject, other), min(2, len(other))) > 0
        or _common(subject, prompt, other) >= 2,
        f"{prompt!r} and {other!r} have the same keys: they tell nothing of the prompt",
    )


def _inspect(subject: Subject, prompt: str) -> AttentionSnapshot:
    return cast("AttentionInspector", subject.model).inspect_attention(prompt)


def _common(subject: Subject, left: str, right: str) -> int:
    encode = tokenizing(subject).encode
    pairs = list(zip(encode(left), encode(right), strict=False))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))


def _apart(left: AttentionSnapshot, right: AttentionSnapshot, positions: int) -> float:
    """The largest difference over the first positions, as a part of the largest key."""
    size = positions * left.head_dim
    ends = [
        (ours[:size], theirs[:size])
        for one, other in zip(left.keys, right.keys, strict=True)
        for ours, theirs in zip(one, other, strict=True)
    ]
    largest = max((_largest(ours) for ours, _ in ends), default=0.0)
    apart = max((abs(a - b) for pair in ends for a, b in zip(*pair, strict=False)), default=0.0)
    return apart / largest if largest else apart


def _largest(values: Sequence[float]) -> float:
    return max(map(abs, values), default=0.0)
