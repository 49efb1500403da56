"""The library's tokenizer, configured to read prompts: literal text to be continued."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers.processors import TemplateProcessing

from core_runtime.tokenizer.text_bound import steps

SPACE = "\u2581"
"""SentencePiece's character for a space."""

_FIRST, _NEVER = b'"prepend_scheme":"first"', b'"prepend_scheme":"never"'


def prompt_reader(library: Library, ends: bool = False) -> Library:
    """Configure a tokenizer to read prompts, and return it.

    Special tokens in a text are literal text, and none is added after it, except with ``ends``, for
    a model that reads whole texts. The publisher's length limits are disabled.
    """
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    if _cuts_nothing(library):
        library.pre_tokenizer = None
    if not ends:
        _append_nothing(library)
    return library


def continuing_reader(reader: Library) -> Library:
    """Return the reader for texts inside a prompt, which follow a special token.

    It is the same reader, unless that one prepends a space only at the start of a prompt.
    """
    part = reader.pre_tokenizer
    state = b"" if part is None else part.__getstate__()
    if _FIRST not in state:
        return reader
    other = copy.deepcopy(reader)
    other.encode_special_tokens = True  # a copy has it disabled
    part = copy.copy(part)
    part.__setstate__(state.replace(_FIRST, _NEVER))
    other.pre_tokenizer = part
    return other


def appended(library: Library) -> list[str]:
    """Return the special tokens that the post-processor appends to a text."""
    return [name for step in steps(library.post_processor, "processors") for name in _ends(step)]


def leading(library: Library) -> list[str]:
    """Return the special tokens that the post-processor prepends to a text."""
    return [lead["id"] for lead in _all_leads(library)]


def prepends(library: Library) -> bool:
    """Return True if a space is prepended to every text, even one that starts with a space."""
    return any(step["type"] == "Prepend" for step in steps(library.normalizer, "normalizers"))


def replaces_spaces(step: Mapping[str, Any]) -> bool:
    """Return True for the normalizer that writes every space as `SPACE`."""
    return step == {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}


def _cuts_nothing(library: Library) -> bool:
    """Return True for Gemma's pre-tokenizer: it splits at spaces, but the normalizer leaves none.

    Looking for them takes as long as a fifth of everything else.
    """
    normalizers = steps(library.normalizer, "normalizers")
    splitters = steps(library.pre_tokenizer, "pretokenizers")
    space = {"type": "Split", "pattern": {"String": " "}, "invert": False}
    cut_spaces = [space.items() <= step.items() for step in splitters]
    return bool(cut_spaces) and all(cut_spaces) and any(map(replaces_spaces, normalizers))


def _append_nothing(library: Library) -> None:
    """Remove the special tokens that the post-processor appends to a text, e.g. an EOS.

    A prompt is to be continued. Prepended tokens are kept.
    """
    if not appended(library):
        return
    leads = _all_leads(library)
    library.post_processor = _leading(leads) if leads else None


def _ends(step: Mapping[str, Any]) -> list[str]:
    """Return the special tokens that a step appends to the text."""
    match step:
        case {"type": "TemplateProcessing", "single": pieces}:
            places = (place for place, piece in enumerate(pieces) if "Sequence" in piece)
            text = max(places, default=-1)
            return [piece["SpecialToken"]["id"] for piece in pieces[text + 1 :]]
        case {"type": "BertProcessing" | "RobertaProcessing", "sep": [token, _]}:
            return [token]
    return []


def _all_leads(library: Library) -> list[Mapping[str, Any]]:
    processors = steps(library.post_processor, "processors")
    return [lead for step in reversed(processors) for lead in _leads(step)]


def _leads(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the special tokens that a step prepends to the text, in template form."""
    match step:
        case {"type": "TemplateProcessing", "single": pieces, "special_tokens": known}:
            for piece in pieces:
                if "Sequence" in piece:
                    return
                yield known[piece["SpecialToken"]["id"]]
        case {"cls": [token, token_id]}:
            yield {"id": token, "ids": [token_id], "tokens": [token]}


def _leading(leads: list[Mapping[str, Any]]) -> TemplateProcessing:
    """Return a post-processor that prepends these special tokens to a text."""
    single = [{"SpecialToken": {"id": lead["id"], "type_id": 0}} for lead in leads]
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    state = {
        "type": "TemplateProcessing",
        "single": [*single, first],
        "pair": [*single, first, second],
        "special_tokens": {lead["id"]: lead for lead in leads},
    }
    processor = TemplateProcessing()
    processor.__setstate__(json.dumps(state).encode())
    return processor
