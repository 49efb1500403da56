"""Checks of operations that read a prompt for more than its next token: to the last position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from core.errors import UnsupportedOptionError
from core.extensions import AttentionInspector
from core.kit.chat import RenderedPrompt
from core.protocols import Capability
from core.types import AttentionSnapshot, HiddenResult, Message
from core_conformance.checking import ask
from core_conformance.checking.applies import has_template
from core_conformance.checking.ask import hidden, logits, tokenizing
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.sizes import room, sized, words
from core_conformance.checking.subject import Subject

_SMALL, _MOST = 64, 300  # positions; tokens of a text
_BEGINNINGS, _SPARE = 24, 6  # words, and tokens that a word may have


@check(
    "inspection.beginning",
    "The last keys of a long prompt MUST depend on its beginning, as its logits do",
    Capability.ATTENTION_INSPECTOR,
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.TOKENIZING,
)
def keys_depend_on_the_beginning(subject: Subject) -> None:
    testable(subject.model.info.num_layers > 1, "the keys of one layer depend on their token alone")
    comparable = False
    for tokens in (room(subject), room(subject) // 2):
        pair = _pair(subject, sized(subject, tokens - _SPARE) or "")
        if not pair:
            continue
        if not _apart(subject, *pair):
            continue
        comparable = True
        left, right = (ask.inspect(subject, prompt) for prompt in pair)
        must(
            _last(left) != _last(right),
            f"prompts of {left.seq_len} tokens that begin with {pair[0][:8]!r} and "
            f"{pair[1][:8]!r} have other logits, and the same keys at their last token",
        )
    testable(comparable, "no two long prompts that begin otherwise have as many tokens")


@check(
    "label_sentences.whole-text",
    "A text MUST be read to its end, however long: its last word counts in its embedding",
    Capability.LABEL_SENTENCES,
    Capability.HIDDEN_STATES,
    Capability.TOKENIZING,
)
def long_texts_are_read_to_their_end(subject: Subject) -> None:
    for tokens in (_MOST, subject.model.info.context_length - _SPARE):
        front = sized(subject, min(tokens, subject.model.info.context_length - _SPARE)) or ""
        texts = [f"{front} {word}" for word in words(2)]
        one, other = hidden(subject, texts)
        must(
            _differ(one, other),
            f"two texts of about {tokens} tokens that end in other words have the same embedding",
        )


@check(
    "hidden.rendered",
    "The special tokens of a rendered chat MUST be read as special in hidden_states and "
    "inspect_attention, too",
    (Capability.HIDDEN_STATES, Capability.ATTENTION_INSPECTOR),
    Capability.CHAT,
    Capability.TOKENIZING,
)
def rendered_prompts_are_read(subject: Subject) -> None:
    testable(has_template(subject), "the model has no chat template")
    rendered = tokenizing(subject).render_chat([Message("user", ask.QUESTION)])
    plain, encode = str(rendered), tokenizing(subject).encode
    testable(
        isinstance(rendered, RenderedPrompt) and encode(plain) != encode(rendered),
        "the chat template writes no special token",
    )
    if subject.declares(Capability.HIDDEN_STATES):
        # Read as plain text, the two prompts would be the same.
        layers = [0] if encode(plain)[-1] != encode(rendered)[-1] else []
        if subject.declares(Capability.CLASSIFY, Capability.LOGITS):
            layers += [-1] if _apart(subject, rendered, plain) else []
        for layer in layers:
            try:
                special, text = hidden(subject, [rendered, plain], [layer])
            except UnsupportedOptionError:
                continue
            must(
                _differ(special, text),
                f"layer {layer} after {plain!r:.100} is the same as a rendered chat and as plain "
                "text",
            )
    if subject.declares(Capability.ATTENTION_INSPECTOR):
        seen = ask.inspect(subject, rendered)
        must(
            seen.seq_len == len(encode(rendered)),
            f"a rendered chat has {len(encode(rendered))} tokens, and seq_len={seen.seq_len}",
        )


def _apart(subject: Subject, left: str, right: str) -> bool:
    """Return whether the logits after two prompts differ."""
    one, other = logits(subject, [left, right])
    return max(map(abs, map(float.__sub__, one, other))) > 2 * subject.tolerance


def _pair(subject: Subject, tail: str) -> list[str]:
    """Return two prompts that begin otherwise, with as many tokens and the same last one."""
    alike: dict[tuple[int, int], list[str]] = {}
    for word in words(_BEGINNINGS):
        prompt = f"{word} {tail}"
        ids = tokenizing(subject).encode(prompt)
        alike.setdefault((len(ids), ids[-1]), []).append(prompt)
    return max(alike.values(), key=len)[:2] if any(len(g) > 1 for g in alike.values()) else []


def _last(seen: AttentionSnapshot) -> list[list[float]]:
    """Return the keys of the last layer at the last position."""
    return [[*head[-seen.head_dim :]] for head in seen.keys[-1]]


def _differ(one: HiddenResult, other: HiddenResult) -> bool:
    return list(one.states or ()) != list(other.states or ())


_APART = 1e-3  # of a key's length: what a rotation by several positions turns it by, at least
_FEW_TOKENS = 2048  # of a context that is soon exceeded
_REPEATS = "no prompt tried repeats a token: use a model whose tokenizer splits words"


@check(
    "inspection.positions",
    "Keys MUST be those after RoPE, in the order of positions: where a token is repeated, its keys "
    "of the first layer differ with the position",
    Capability.ATTENTION_INSPECTOR,
    Capability.TOKENIZING,
)
def positions_turn_keys(subject: Subject) -> None:
    inspector, compared = cast("AttentionInspector", subject.model), 0
    for prompt in ask.REPEATING:
        ids = list(tokenizing(subject).encode(prompt))
        well_formed(bool(ids), f"encode() has no ids for {prompt!r}")
        pairs = [(ids.index(token), place) for place, token in enumerate(ids)]
        repeated = [(first, place) for first, place in pairs if first < place]
        if not repeated:
            continue
        seen = inspector.inspect_attention(prompt)
        for first, place in repeated:
            turned = [
                math.dist(_at(head, first, seen.head_dim), _at(head, place, seen.head_dim))
                > _APART * math.hypot(*_at(head, first, seen.head_dim))
                for head in seen.keys[0]
            ]
            compared += 1
            must(
                any(turned),
                f"the token {ids[place]} stands at {first} and at {place} of {prompt!r}, and its "
                "keys of the first layer are the same there: they are those before RoPE",
            )
    testable(compared > 0, _REPEATS)


def _at(head: Sequence[float], place: int, size: int) -> Sequence[float]:
    return head[place * size : (place + 1) * size]
