"""The tokenizer files of a model directory, from the vocabulary in GGUF metadata.

The `tokenizers.Tokenizer` gives llama.cpp's token ids: SentencePiece vocabularies become BPE with
every split of a token into two others as a merge, best score first; byte-level ones keep their
merges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from core.errors import CoreError
from core_runtime.gguf.metadata import Metadata

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

# ggml's token types
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
_DEFAULTS = {"unknown": 0, "bos": 1, "eos": 2}
_MAX_TOKEN_LENGTH = 1024  # a token is split at every position, which takes quadratic time

# llama.cpp's names for it, and the pattern of its tokenizer.json
_LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3")
_PRE_TOKENIZERS = ("smollm", "gpt-2", *_LLAMA3_NAMES)
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def build_tokenizer(meta: Metadata) -> Tokenizer:
    """Build the tokenizer with its added tokens and BOS rule; raises as `check_vocabulary`."""
    check_vocabulary(meta)
    try:
        return _build(meta, meta.texts("tokenizer.ggml.tokens"))
    except CoreError:
        raise
    except Exception as error:  # the library has no narrower type for most of its errors
        raise meta.error(f"the tokenizer is inconsistent: {error}") from error


def check_vocabulary(meta: Metadata) -> None:
    """Raise `Metadata.error` for an unsupported kind of vocabulary or pre-tokenizer.

    It reads the keys that `build_tokenizer` reads, without building anything.
    """
    tokens = meta.texts("tokenizer.ggml.tokens")
    if len(set(tokens)) != len(tokens):
        raise meta.error("the vocabulary contains a token twice")
    if max(map(len, tokens), default=0) > _MAX_TOKEN_LENGTH:
        raise meta.error(
            f"the vocabulary contains a token of more than {_MAX_TOKEN_LENGTH} characters"
        )
    kind = meta.text("tokenizer.ggml.model")
    if kind == "gpt2":
        meta.texts("tokenizer.ggml.merges")
        if (name := meta.text("tokenizer.ggml.pre", "default")) not in _PRE_TOKENIZERS:
            known = ", ".join(_PRE_TOKENIZERS)
            raise meta.error(f"pre-tokenizer {name!r} is not supported (supported: {known})")
    elif kind == "llama":
        meta.numbers("tokenizer.ggml.scores", len(tokens))
        if meta.flag("tokenizer.ggml.add_space_prefix", True):
            raise meta.error(
                "a tokenizer that prepends a space (add_space_prefix) is not supported"
            )
    else:
        raise meta.error(f"tokenizer model {kind!r} is not supported (supported: gpt2, llama)")
    meta.integers("tokenizer.ggml.token_type", len(tokens))
    if adds_bos(meta) and token_id(meta, "bos", tokens) is None:
        raise meta.error(
            "prompts begin with a BOS token (add_bos_token), but the file does not name one"
        )


def token_id(meta: Metadata, key: str, tokens: Sequence[str]) -> int | None:
    """Return the id under ``tokenizer.ggml.KEY_token_id``, checked; None without one.

    For SentencePiece, a missing key has llama.cpp's default.
    """
    index = meta.integer(f"tokenizer.ggml.{key}_token_id", -1)
    if index >= len(tokens):
        raise meta.error(f"{key} token {index} is not in the vocabulary")
    if index < 0 and meta.text("tokenizer.ggml.model") == "llama":
        index = _DEFAULTS.get(key, -1)
    return index if 0 <= index < len(tokens) else None


def special_ids(meta: Metadata) -> dict[str, int]:
    """Return the ids of bos, eos, unk and pad (transformers' names) that the file has."""
    tokens = meta.texts("tokenizer.ggml.tokens")
    names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    ids = {hf: token_id(meta, gguf, tokens) for gguf, hf in names.items()}
    return {name: index for name, index in ids.items() if index is not None}


def adds_bos(meta: Metadata) -> bool:
    """Return True if a plain prompt starts with BOS, by default as in llama.cpp."""
    sentence_piece = meta.text("tokenizer.ggml.model") == "llama"
    default = sentence_piece or meta.text("tokenizer.ggml.pre", "") in _LLAMA3_NAMES
    return meta.flag("tokenizer.ggml.add_bos_token", default)


def _build(meta: Metadata, tokens: Sequence[str]) -> Tokenizer:
    builders = {"gpt2": _byte_level, "llama": _sentence_piece}
    tokenizer = builders[meta.text("tokenizer.ggml.model")](meta, tokens)
    tokenizer.add_tokens(list(_added_tokens(meta, tokens)))
    _add_bos(tokenizer, meta, tokens)
    return tokenizer


def _byte_level(meta: Metadata, tokens: Sequence[str]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models

    name = meta.text("tokenizer.ggml.pre", "default")
    merges = [_pair(meta, merge) for merge in meta.texts("tokenizer.ggml.merges")]
    model = models.BPE(
        {token: index for index, token in enumerate(tokens)},
        merges,
        ignore_merges=name in _LLAMA3_NAMES,
    )

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _pre_tokenizer(name)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer(name: str) -> PreTokenizer:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Split
    from tokenizers.pre_tokenizers import Sequence as Steps

    if name == "smollm":
        return Steps([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    if name in _LLAMA3_NAMES:
        split = Split(Regex(_LLAMA3_PATTERN), "isolated")
        return Steps([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    return ByteLevel(add_prefix_space=False)


def _sentence_piece(meta: Metadata, tokens: Sequence[str]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    # SentencePiece's scores give the order of merges.
    unknown = token_id(meta, "unknown", tokens) or 0
    vocabulary = {token: index for index, token in enumerate(tokens)}
    model = models.BPE(
        vocabulary,
        list(_merges_by_score(meta, tokens, vocabulary)),
        unk_token=tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )

    # Spaces are written as U+2581, and bytes without a token as <0x..>.
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _merges_by_score(
    meta: Metadata, tokens: Sequence[str], vocabulary: dict[str, int]
) -> Iterator[tuple[str, str]]:
    scores = meta.numbers("tokenizer.ggml.scores", len(tokens))
    kinds = meta.integers("tokenizer.ggml.token_type", len(tokens))
    ranked = [
        (-scores[index], index, token[:cut], token[cut:])
        for index, token in enumerate(tokens)
        if kinds[index] == NORMAL
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    return ((left, right) for _, _, left, right in sorted(ranked))


def _pair(meta: Metadata, merge: str) -> tuple[str, str]:
    left, separator, right = merge.partition(" ")
    if not separator:
        raise meta.error(f"merge {merge!r:.60} has no space between two tokens")
    return left, right


def _added_tokens(meta: Metadata, tokens: Sequence[str]) -> Iterator[AddedToken]:
    from tokenizers import AddedToken

    kinds = meta.integers("tokenizer.ggml.token_type", len(tokens))
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            yield AddedToken(token, special=kind == CONTROL, normalized=False)


def _add_bos(tokenizer: Tokenizer, meta: Metadata, tokens: Sequence[str]) -> None:
    from tokenizers.processors import TemplateProcessing

    if adds_bos(meta):
        index = token_id(meta, "bos", tokens) or 0  # `check_vocabulary` has seen that it exists
        bos = tokens[index]
        tokenizer.post_processor = TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", bos, "$B"], special_tokens=[(bos, index)]
        )


def tokenizer_config(meta: Metadata) -> dict[str, Any]:
    """Return the content of tokenizer_config.json."""
    # The class that uses tokenizer.json unchanged; others rebuild parts of it in code.
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": adds_bos(meta),
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta.integer(".context_length"),
        **named_tokens(meta),
    }


def named_tokens(meta: Metadata) -> dict[str, str]:
    """Return the texts of `special_ids`, under transformers' keys: ``bos_token``, for example."""
    tokens = meta.texts("tokenizer.ggml.tokens")
    return {f"{name}_token": tokens[index] for name, index in special_ids(meta).items()}
