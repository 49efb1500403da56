"""The tokenizer that a model shows."""

from __future__ import annotations

from core.capability import Capability
from core_conformance import prompts
from core_conformance.answers import is_id, tokenizing
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.subject import Subject


@check(
    "tokenizing.ids",
    "encode MUST return a list of int ids below vocab_size, the same for the same text",
    Capability.TOKENIZING,
)
def ids_are_in_range(subject: Subject) -> None:
    size, encode = subject.model.info.vocab_size, tokenizing(subject).encode
    for text in (*prompts.PLAIN, *prompts.ODD.values()):
        ids = encode(text)
        must(
            _is_list_of_ids(ids, size),
            f"encode({text!r}) is {ids!r:.120}: a list of ints from 0 to {size - 1} was expected",
        )
        must(encode(text) == ids, f"encode({text!r}) gave two different lists")


@check(
    "tokenizing.round-trip",
    "decode(encode(text)) MUST give plain text back, special tokens left out",
    Capability.TOKENIZING,
)
def plain_text_comes_back(subject: Subject) -> None:
    model = tokenizing(subject)
    for text in (*prompts.PLAIN, prompts.LONG):
        back = model.decode(model.encode(text))
        # Some tokenizers put a space in front of every text, and some drop it again.
        must(back.lstrip(" ") == text, f"decode(encode({text!r})) is {back!r}")


@check(
    "tokenizing.stable",
    "What decode gives back MUST itself go through encode and decode unchanged, in any script",
    Capability.TOKENIZING,
)
def decoded_text_is_stable(subject: Subject) -> None:
    model = tokenizing(subject)
    for name, text in prompts.ODD.items():
        once = model.decode(model.encode(text))
        again = model.decode(model.encode(once)) if once else once
        must(bool(once), f"{name}: of {text!r} nothing came back")
        must(again == once, f"{name}: {text!r} came back as {once!r}, and that as {again!r}")
    must(model.decode([]) == "", f"decode([]) is {model.decode([])!r}")


def _is_list_of_ids(found: object, size: int) -> bool:
    return isinstance(found, list) and bool(found) and all(is_id(i, size) for i in found)
