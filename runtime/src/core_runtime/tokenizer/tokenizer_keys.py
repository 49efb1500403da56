"""The keys of tokenizer_config.json and tokenizer.json, and the treatment of each.

Read from transformers 5.24 (tokenization_utils_base.py, tokenization_utils_tokenizers.py, and the
tokenizers of the families here) and tokenizers 0.23, and tested with them: ids, decoded text and
chat prompt of two directories that differ in one key (``tests/tokenizer_files``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers.models import BPE

from core_runtime.checkpoint.fields import ConfigFields
from core_runtime.checkpoint.keys import (
    KeyRule,
    check_keys,
    harmless,
    honoured,
    refused,
    reported,
    same,
)
from core_runtime.tokenizer.library import leading, prepends
from core_runtime.tokenizer.named_tokens import NAMES, Entry, names_token
from core_runtime.tokenizer.text_bound import steps
from core_runtime.tokenizer.word_cuts import TEKKEN

_CLEAN = "clean_up_tokenization_spaces"
_CLEAN_BPE = f"{_CLEAN}_for_bpe_even_though_it_will_corrupt_output"
_OTHERWISE = "if it contradicts tokenizer.json, which is used"
_LARGE = 100_000  # tokens: smaller vocabularies need no fix of Mistral's pattern
_FOLLOWS = ("LlamaTokenizer", "Qwen2Tokenizer", "GPT2Tokenizer")

TOKENIZER_KEYS: Mapping[str, KeyRule] = {
    # Read.
    "added_tokens_decoder": honoured(
        "tokens missing from tokenizer.json are added, flags override it; a new token with a "
        "different id is an error, other id conflicts are reported"
    ),
    **same(
        " ".join(NAMES),
        honoured(
            "special tokens, and variables of chat templates; `eos_token` ends a generation, like "
            "the ones in generation_config.json"
        ),
    ),
    **same(
        "image_token boi_token eoi_token audio_token video_token",
        honoured("special tokens, and variables of chat templates; so is any name in `_token`"),
    ),
    **same("extra_special_tokens additional_special_tokens", honoured("special tokens")),
    "model_specific_special_tokens": honoured("special tokens by name"),
    "chat_template": honoured("one text, or texts with names"),
    "tokenizer_class": honoured("defines special tokens without their own key; see below"),
    # These give other ids or texts in transformers.
    "split_special_tokens": refused("special tokens of chat templates would be plain text"),
    "fast_tokenizer_files": refused(
        "transformers would read another file than tokenizer.json", ["tokenizer.json"]
    ),
    "fix_mistral_regex": refused(
        "transformers would split texts by Mistral's pattern, which tokenizer.json lacks; save "
        "the tokenizer with transformers, which writes it"
    ),
    _CLEAN: refused(
        "it removes spaces from decoded texts; harmless for a BPE, where transformers ignores it"
    ),
    _CLEAN_BPE: refused(f"with {_CLEAN}, it removes spaces from decoded texts"),
    "add_prefix_space": KeyRule(
        "refused",
        f"if it contradicts tokenizer.json, for {', '.join(_FOLLOWS)}, which follow this key in "
        "transformers; reported for other classes",
        (None,),
    ),
    # A user may expect these to have an effect.
    "add_bos_token": KeyRule("reported", _OTHERWISE, (None,)),
    "add_eos_token": reported("nothing is appended to a text, because it is to be continued"),
    **same(
        "do_lower_case do_basic_tokenize strip_accents tokenize_chinese_chars keep_accents "
        "remove_space",
        reported("tokenizer.json's normalizer decides"),
    ),
    "chat_control_tokens": reported("special tokens in messages are always plain text"),
    "auto_map": reported("model code is never run"),
    "init_inputs": reported("arguments of a class in model code"),
    # These change no result.
    **same(
        "model_max_length max_len",
        harmless("config.json has the context; transformers only warns of longer texts"),
    ),
    **same(
        "padding_side truncation_side max_length stride truncation_strategy pad_to_multiple_of "
        "pad_token_type_id padding truncation model_input_names",
        harmless("transformers pads and truncates only on request"),
    ),
    **same(
        "legacy sp_model_kwargs from_slow use_fast",
        harmless("how tokenizer.json was converted from a SentencePiece model"),
    ),
    **same(
        "spaces_between_special_tokens errors trim_offsets",
        harmless("for tokenizers written in Python, without effect on tokenizer.json"),
    ),
    "use_default_system_prompt": harmless("transformers 5 does not use it"),
    **same(
        "response_schema response_template tool_parser_type",
        harmless("how a program parses an answer"),
    ),
    **same(
        "processor_class feature_extractor_type image_processor_type",
        harmless("for images and audio, which are not supported"),
    ),
    **same(
        "backend vocab_size is_local local_files_only name_or_path special_tokens_map_file "
        "tokenizer_file vocab_file merges_file device_map verbose transformers_version "
        "_commit_hash unsloth_version",
        harmless("how it was saved or read"),
    ),
}
"""The treatment of each key; one that is not here is reported."""

LIBRARY_KEYS: Mapping[str, KeyRule] = {
    "version": honoured("the library refuses any but 1.0"),
    **same("truncation padding", harmless("set by the publisher: disabled")),
    "added_tokens": honoured("see below"),
    **same("normalizer pre_tokenizer decoder", honoured("as in the library")),
    "post_processor": honoured(
        "prepends tokens to a text; appended tokens are omitted, and reported"
    ),
    "model.type": honoured("BPE, Unigram, WordPiece, WordLevel"),
    "model.dropout": reported("random merges for training: disabled"),
    **same(
        "model.vocab model.merges model.unk_token model.unk_id model.fuse_unk model.byte_fallback "
        "model.ignore_merges model.continuing_subword_prefix model.end_of_word_suffix "
        "model.max_input_chars_per_word",
        honoured("as in the library"),
    ),
    **same("added_tokens.id added_tokens.content", honoured("ids and texts")),
    "added_tokens.special": honoured("plain text cannot contain it, and decoding omits it"),
    **same(
        "added_tokens.lstrip added_tokens.rstrip",
        honoured("removes white space next to the token"),
    ),
    "added_tokens.single_word": honoured("refused for special tokens"),
    "added_tokens.normalized": honoured(
        "ignored and reported for a special token whose normalised form is a different text"
    ),
}
"""The treatment of each key of tokenizer.json; one that the library does not know is reported."""

# BERT's keys, and where the normalizer has the same.
_BERT = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
    "do_basic_tokenize": None,
}
_TOKEN, _IDLE = TOKENIZER_KEYS["image_token"], harmless("tokenizer.json agrees, or it is not used")
_REMEDY = "Remove the key to do without it."


def check_tokenizer_config(
    fields: ConfigFields,
    names: Mapping[str, Entry],
    library: Library,
    config: Mapping[str, Any],
    ends: bool = False,
) -> tuple[str, ...]:
    """Return the keys of tokenizer_config.json to report.

    ``names``: the named tokens; ``config``: config.json's keys; ``ends``: see
    `core_runtime.tokenizer.files.read_tokenizer_files`. Raises `UnsupportedModelError` for
    a key that is refused.
    """
    values = fields.values
    keys = dict(TOKENIZER_KEYS)
    if str(values.get("tokenizer_class")).removesuffix("Fast") not in _FOLLOWS:
        keys["add_prefix_space"] = KeyRule("reported", _OTHERWISE, (None,))
    if any(step.get("lowercase") for step in steps(library.normalizer, "normalizers")):
        keys["do_lower_case"] = KeyRule("reported", "tokenizer.json's normalizer decides", (None,))
    for name, value in values.items():
        if names_token(name, value):
            keys[name] = _TOKEN
    for name in _idle(values, names, library, config):
        keys[name] = _IDLE
    if ends:
        keys |= dict.fromkeys((_CLEAN, _CLEAN_BPE), _IDLE)
    return check_keys(fields, keys, _REMEDY)


def _idle(
    values: Mapping[str, Any],
    names: Mapping[str, Entry],
    library: Library,
    config: Mapping[str, Any],
) -> Iterator[str]:
    """Yield the keys that agree with tokenizer.json, or that transformers ignores with it."""
    bos = names.get("bos_token", {}).get("content", "")
    if values.get("add_bos_token") is (bos in leading(library)):
        yield "add_bos_token"
    if values.get("add_prefix_space") is _puts_space(library):
        yield "add_prefix_space"
    for step in steps(library.normalizer, "normalizers"):
        if step["type"] == "BertNormalizer":
            yield from (
                key
                for key, part in _BERT.items()
                if part is None or values.get(key) == step.get(part)
            )

    bpe = isinstance(library.model, BPE)
    if bpe:
        yield _CLEAN
    if not (bpe and values.get(_CLEAN)):
        yield _CLEAN_BPE

    version = str(config.get("transformers_version") or "")
    older = config.get("model_type") == "mistral" and not re.match(r"[5-9]|\d\d", version)
    large = library.get_vocab_size() > _LARGE
    splits = [step.get("pattern") for step in steps(library.pre_tokenizer, "pretokenizers")]
    if not (older and large) or {"Regex": TEKKEN} in splits:
        yield "fix_mistral_regex"


def _puts_space(library: Library) -> bool:
    """Return True if a space is prepended to a text without a leading one."""
    splitters = steps(library.pre_tokenizer, "pretokenizers")
    return prepends(library) or any(
        step.get("add_prefix_space") or step.get("prepend_scheme", "never") != "never"
        for step in splitters
    )
