"""Tokens that tokenizer.json lacks, or has with other flags than the tokenizer's other files.

They are added as in transformers 5.24, with the ids that the library assigns. There is one
difference: if the normalised form of a special token is another text (``</s>`` after Llama 2's
normalizer is ``▁</s>``), the library does not find it after a letter and decodes it as text; here
it is found and omitted, as in SentencePiece.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from core.errors import InvalidModelError, UnsupportedModelError
from core_runtime.tokenizer.detokenizer import reads_bytes
from core_runtime.tokenizer.named_tokens import OLDER, Entry, NamedTokens, listing


def known_names(library: Library, named: NamedTokens) -> dict[str, Entry]:
    """Return the named tokens, and the tokenizer class's tokens that the vocabulary has.

    transformers does not use Llama's class for a byte-level tokenizer.
    """
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    return {
        name: {"content": text, **flags, "special": True}
        for name, text in named.by_class.items()
        if library.token_to_id(text) is not None
        and not (named.tokenizer_class == "LlamaTokenizer" and reads_bytes(library))
    } | dict(named.named)


def add_named_tokens(
    library: Library, named: NamedTokens, where: str
) -> tuple[Library, tuple[str, ...]]:
    """Add these tokens to a tokenizer; return it, or a copy, and the notes to report.

    ``where`` is the path of the file that lists them. Raises `InvalidModelError` for a new token
    whose id would differ from the file's, `UnsupportedModelError` for a special token with
    ``single_word``.
    """
    ids = {index: library.token_to_id(token["content"]) for index, token in named.listed.items()}
    present = _present(library)
    wanted = _wanted(present, named, known_names(library, named))
    apart = _normalised_otherwise(library, wanted)
    tokens = {**wanted, **{text: {**wanted[text], "normalized": False} for text in apart}}
    _check_words(tokens)

    changed = [token for text, token in tokens.items() if token != present.get(text)]
    library = _added(library, changed)
    notes = (f"normalized=True of {listing(apart)}",) if apart else ()
    return library, notes + _other_ids(library, named, ids, where)


def _present(library: Library) -> dict[str, Entry]:
    return {
        token.content: {
            "content": token.content,
            "lstrip": token.lstrip,
            "rstrip": token.rstrip,
            "single_word": token.single_word,
            "normalized": token.normalized,
            "special": token.special,
        }
        for token in library.get_added_tokens_decoder().values()
    }


def _wanted(
    present: Mapping[str, Entry], named: NamedTokens, names: Mapping[str, Entry]
) -> dict[str, Entry]:
    """Return all added tokens with their final flags, new ones in transformers' order."""
    wanted = dict(present)
    for _, token in sorted(named.listed.items()):
        old = present.get(token["content"], {})
        if not old or named.source != OLDER:
            special = token["special"] or old.get("special", False)
            wanted[token["content"]] = {**token, "special": special}
    for token in names.values():
        wanted[token["content"]] = {**wanted.get(token["content"], token), "special": True}
    for token in named.extra:
        wanted.setdefault(token["content"], token)
    return wanted


def _normalised_otherwise(library: Library, tokens: Mapping[str, Entry]) -> list[str]:
    """Return the special tokens whose normalised form, for the library, is another text."""
    normalizer = library.normalizer
    if normalizer is None:
        return []
    looked_for = {
        text: f" {text} " if token["lstrip"] or token["rstrip"] else text
        for text, token in tokens.items()
        if token["special"] and token["normalized"]
    }
    return [text for text, form in looked_for.items() if normalizer.normalize_str(form) != form]


def _check_words(tokens: Mapping[str, Entry]) -> None:
    words = [text for text, token in tokens.items() if token["special"] and token["single_word"]]
    if words:
        raise UnsupportedModelError(
            f"single_word of the special token {words[0]!r:.60} is not supported, because the "
            "token would be literal text next to a letter. Set it to false in the tokenizer's "
            "files."
        )


def _added(library: Library, tokens: list[Entry]) -> Library:
    library.add_tokens([AddedToken(**token) for token in tokens])
    for token in tokens:  # of a normalised token, the library keeps the other form
        index = library.token_to_id(token["content"])
        if index is not None and library.id_to_token(index) != token["content"]:
            return Library.from_str(library.to_str())
    return library


def _other_ids(
    library: Library, named: NamedTokens, before: Mapping[int, int | None], where: str
) -> tuple[str, ...]:
    """Return a note on tokens whose ids differ between tokenizer.json and the other file."""
    other = []
    for index, token in sorted(named.listed.items()):
        text = token["content"]
        given = library.token_to_id(text)
        if given in (index, None):  # None: the library ignores an empty text
            continue
        if before[index] is None:
            raise InvalidModelError(
                f"{where}: {text!r:.60} has id {index} but is missing from tokenizer.json, whose "
                f"next id is {given}. Download tokenizer.json again, or remove the token here."
            )
        other.append(f"{text}={index}")
    return (f"the ids of {listing(other)}",) if other else ()
