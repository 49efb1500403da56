"""Directories that differ in one key or file of the tokenizer, and what becomes of each.

`CASES` by name. Where nothing else is said, ids, decoded texts and prompts have to be those that
transformers makes of the directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.tests.tokenizer_files.shapes import (
    Json,
    around,
    flags,
    of_bytes,
    of_pieces,
    of_unigrams,
    of_word_pieces,
    of_words,
    with_flags,
)

HERE = Path(__file__).parent
TEXTS = (
    *("", "a b", " the b", "the news , a b .", "don't is", "AbB", "é 2 b"),
    *("<s>", "a <s> b", "<s> the </s>\n b", " <s><s>the", "b</s> a</s>"),
    *("a <tool> b", "a<tool>b", "<inv> the<inv>", "<new> a", "a <new>", "<more>b <mask> the"),
    *("x <s> \t the", "the</s>the", "a\u2003<s>\u2003b"),
)
NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask", "image")
TEMPLATE = "|".join(f"{{{{ {name}_token }}}}" for name in NAMED) + "{{ messages[0].content }}"
NEW = {"<new>": 264}  # the next id of a tokenizer of bytes


@dataclass(frozen=True)
class Case:
    """One directory.

    ``own``: keys of tokenizer_config.json, beside a class and a template; ``files``: others by
    name. ``refused``: a part of the error. ``notes``: parts of the warnings. ``like``: the case
    whose record holds here too; ``unlike``: transformers makes something else of this one.
    ``by_class``: transformers makes the tokenizer from its class, so that only prompts are
    compared.
    """

    made: Json = field(default_factory=of_bytes)
    own: Json = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    notes: tuple[str, ...] = ()
    like: str = ""
    unlike: bool = False
    by_class: bool = False


def write(case: Case, directory: Path) -> Path:
    """Write a case's files."""
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, **case.own}
    files = {
        "config.json": {"model_type": "llama"},
        "tokenizer.json": case.made,
        "tokenizer_config.json": own,
        **case.files,
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content), encoding="utf-8")
    return directory


def _decoder(**tokens: Json) -> Json:
    """Return an ``added_tokens_decoder``; keys are ids, with an underscore before."""
    return {"added_tokens_decoder": {id.strip("_"): token for id, token in tokens.items()}}


_S, _END, _TOOL = 261, 262, 263  # their ids in a tokenizer of bytes
_NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
_BYTES = of_bytes()
_LLAMA = of_pieces("llama")
_LARGE = of_bytes()
_LARGE["model"]["merges"] += [["b", "B"]]  # which Mistral's pattern keeps apart
_LARGE["model"]["vocab"] |= {
    "bB": 299,
    **{f"{place} words": 300 + place for place in range(100_001)},
}
_HARMLESS: Json = {
    **{"model_max_length": 2, "padding_side": "left", "truncation_side": "left", "max_length": 2},
    **{"stride": 1, "truncation_strategy": "only_first", "pad_to_multiple_of": 8},
    **{"clean_up_tokenization_spaces": True, "spaces_between_special_tokens": True},
    **{"legacy": True, "sp_model_kwargs": {"enable_sampling": True}, "errors": "ignore"},
    **{"use_default_system_prompt": True, "processor_class": "Gemma3Processor", "is_local": True},
    **{"backend": "tokenizers", "local_files_only": True, "response_schema": {"type": "object"}},
    **{"model_input_names": ["input_ids"], "fast_tokenizer_files": ["tokenizer.json"]},
    **{"add_bos_token": False, "add_prefix_space": False, "split_special_tokens": False},
    **{"fix_mistral_regex": True},  # in a small vocabulary
}

CASES: dict[str, Case] = {
    "bytes": Case(own=_NAMES),
    "harmless keys": Case(own={**_NAMES, **_HARMLESS}, like="bytes"),
    "null names": Case(own={"bos_token": None, "eos_token": None, "added_tokens_decoder": {}}),
    # added_tokens_decoder
    "a new token": Case(own=_decoder(_264=flags("<new>"))),
    "new plain tokens": Case(
        own=_decoder(_264=flags("<new>", special=False), _265=flags("<more>", normalized=True))
    ),
    "a token of the vocabulary": Case(own=_decoder(_260=flags("<inv>"))),
    "a plain token of the vocabulary": Case(own=_decoder(_260=flags("<inv>", special=False))),
    "a token that takes spaces": Case(own=_decoder(_261=flags("<s>", lstrip=True, rstrip=True))),
    "a token that takes spaces before it": Case(own=_decoder(_261=flags("<s>", lstrip=True))),
    "a token that takes spaces after it": Case(own=_decoder(_261=flags("<s>", rstrip=True))),
    "a plain token that takes spaces": Case(
        own=_decoder(_263=flags("<tool>", special=False, lstrip=True, rstrip=True))
    ),
    "a plain single word": Case(
        own=_decoder(_263=flags("<tool>", special=False, single_word=True))
    ),
    "a plain token made special": Case(own=_decoder(_263=flags("<tool>"))),
    "another id": Case(
        own={**_NAMES, **_decoder(_3=flags("<s>"))}, notes=("the ids of '<s>=3'",), like="bytes"
    ),
    "a new token with another id": Case(
        own=_decoder(_300=flags("<new>")), refused="'<new>' has id 300.*whose next id is 264"
    ),
    "a special single word": Case(
        own=_decoder(_261=flags("<s>", single_word=True)), refused="single_word of .* '<s>'"
    ),
    # names
    "a name of the vocabulary": Case(own={"eos_token": "<inv>"}),
    "a new name": Case(own={"bos_token": "<new>", "pad_token": "<more>"}),
    "names in another order": Case(own={"pad_token": "<more>", "bos_token": "<new>"}),
    "a plain token with a name": Case(own={"eos_token": "<tool>"}),
    "a name with flags": Case(
        own={"bos_token": {"__type": "AddedToken", "content": "<new>", "lstrip": True}}
    ),
    "all names": Case(own={f"{name}_token": f"<{name}>" for name in NAMED}),
    "a list": Case(own={"extra_special_tokens": ["<inv>", "<new>"]}),
    "an older list": Case(own={"additional_special_tokens": ["<new>", "</s>"]}),
    "a list with flags": Case(
        own={
            "extra_special_tokens": [
                {"__type": "AddedToken", "content": "<new>", "rstrip": True, "special": True}
            ]
        }
    ),
    "names in an object": Case(own={"extra_special_tokens": {"image_token": "<new>"}}),
    "names of a model": Case(own={"model_specific_special_tokens": {"image_token": "<new>"}}),
    # special_tokens_map.json and added_tokens.json
    "an older map": Case(own=_NAMES, files={"special_tokens_map.json": {"pad_token": "<new>"}}),
    "an older map that says otherwise": Case(
        own=_NAMES, files={"special_tokens_map.json": {"bos_token": "</s>", "eos_token": "<inv>"}}
    ),
    "an older map with flags": Case(
        files={"special_tokens_map.json": {"eos_token": {"content": "<new>", "lstrip": True}}}
    ),
    "an older map with a list": Case(
        files={"special_tokens_map.json": {"additional_special_tokens": ["<inv>", "<new>"]}}
    ),
    "a map that counts no more": Case(
        own={**_NAMES, **_decoder(_261=flags("<s>"))},
        files={
            "special_tokens_map.json": {
                **_NAMES,
                "eos_token": {"content": "<inv>"},
                "additional_special_tokens": ["<s>", "<new>"],
            }
        },
        notes=("special_tokens_map.json: keys without effect here: eos_token='<inv>', '<new>'",),
        like="bytes",
    ),
    "older tokens": Case(own=_NAMES, files={"added_tokens.json": {"<more>": 265, **NEW}}),
    "an older special token": Case(own={"pad_token": "<new>"}, files={"added_tokens.json": NEW}),
    "older tokens that are there": Case(
        own=_NAMES, files={"added_tokens.json": {"<s>": _S, "</s>": _END}}, like="bytes"
    ),
    "an older token with another id": Case(
        files={"added_tokens.json": {"<new>": 300}}, refused="added_tokens.json: '<new>' has"
    ),
    "older tokens that count no more": Case(
        own={**_NAMES, **_decoder(_261=flags("<s>"))},
        files={"added_tokens.json": {"<s>": _S, **NEW}},
        notes=("added_tokens.json: keys without effect here: '<new>=264'",),
        like="bytes",
    ),
    # Other keys.
    "a BOS that is wanted": Case(
        own={**_NAMES, "add_bos_token": True}, notes=("add_bos_token=True",), like="bytes"
    ),
    "a BOS that is not wanted": Case(
        made=around(_BYTES, ["<s>"], []),
        own={**_NAMES, "add_bos_token": False},
        notes=("add_bos_token=False",),
    ),
    "a BOS that is there": Case(
        made=around(_BYTES, ["<s>"], []), own={**_NAMES, "add_bos_token": True}
    ),
    "an EOS that is wanted": Case(
        own={**_NAMES, "add_eos_token": True}, notes=("add_eos_token=True",), like="bytes"
    ),
    "a space that is wanted": Case(
        own={**_NAMES, "add_prefix_space": True}, notes=("add_prefix_space=True",), like="bytes"
    ),
    "a space that is not wanted": Case(
        made=of_pieces("mistral"),
        own={"add_prefix_space": False},
        notes=("add_prefix_space=False",),
    ),
    "a space that GPT-2's class adds": Case(
        own={**_NAMES, "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True},
        refused="add_prefix_space=True",
    ),
    "a space that Llama's class leaves out": Case(
        made=_LLAMA,
        own={"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False},
        refused="add_prefix_space=False",
    ),
    "special tokens in pieces": Case(
        own={**_NAMES, "split_special_tokens": True}, refused="split_special_tokens=True"
    ),
    "settings of slow tokenizers": Case(
        own={**_NAMES, "do_lower_case": True, "keep_accents": True, "remove_space": True},
        notes=("do_lower_case=True, keep_accents=True, remove_space=True",),
        like="bytes",
    ),
    "reported keys": Case(
        own={**_NAMES, "chat_control_tokens": ["<tool>"], "unheard_of": 7, "auto_map": {}},
        notes=("chat_control_tokens=['<tool>'], unheard_of=7",),
        like="bytes",
    ),
    "another tokenizer.json": Case(
        own={**_NAMES, "fast_tokenizer_files": ["tokenizer.json", "tokenizer.4.0.json"]},
        files={"tokenizer.4.0.json": with_flags(_BYTES, "<tool>", special=True)},
        refused="fast_tokenizer_files=",
    ),
    "spaces taken out of a BPE": Case(
        own={
            "clean_up_tokenization_spaces": True,
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True,
        },
        refused="even_though_it_will_corrupt_output=True",
    ),
    "spaces taken out of words": Case(
        made=of_word_pieces(),
        own={"clean_up_tokenization_spaces": True},
        refused="clean_up_tokenization_spaces=True",
    ),
    "Mistral's pattern": Case(
        made=_LARGE,
        own={"fix_mistral_regex": True},
        files={"config.json": {"model_type": "mistral", "transformers_version": "4.57.0"}},
        refused="fix_mistral_regex=True",
    ),
    "Mistral's pattern, saved by transformers 5": Case(
        made=_LARGE,
        own={"fix_mistral_regex": True},
        files={"config.json": {"model_type": "mistral", "transformers_version": "5.2.0"}},
    ),
    "Mistral's pattern in another family": Case(
        made=_LARGE,
        own={"fix_mistral_regex": True},
        files={"config.json": {"model_type": "llama", "transformers_version": "4.57.0"}},
    ),
    # The texts that a class has for names without a key.
    "names of Llama's class": Case(
        made=_LLAMA, own={"tokenizer_class": "LlamaTokenizerFast"}, by_class=True
    ),
    "names of Llama's class, of bytes": Case(own={"tokenizer_class": "LlamaTokenizer"}),
    "names of Llama's class, one null": Case(
        made=_LLAMA, own={"tokenizer_class": "LlamaTokenizer", "eos_token": None}, by_class=True
    ),
    "names of Mistral": Case(
        made=_LLAMA,
        own={"tokenizer_class": "LlamaTokenizer"},
        files={"config.json": {"model_type": "mistral"}},
    ),
    # tokenizer.json
    "lengths": Case(
        made={
            **_BYTES,
            "truncation": {
                **{"direction": "Right", "max_length": 2, "strategy": "LongestFirst"},
                "stride": 0,
            },
            "padding": {
                **{"strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": None},
                **{"pad_id": 0, "pad_type_id": 0, "pad_token": "!"},
            },
        },
        own={**_NAMES, "pad_token": None},
        like="bytes",
    ),
    "dropout": Case(
        made=of_bytes(dropout=0.5), own=_NAMES, notes=("dropout=0.5",), like="bytes", unlike=True
    ),
    "an EOS after the text": Case(
        made=around(_BYTES, [], ["</s>"]),
        own=_NAMES,
        notes=("post_processor adds '</s>' after a text",),
        like="bytes",
        unlike=True,
    ),
    "unknown keys": Case(
        made={
            **_BYTES,
            "decoder": {**_BYTES["decoder"], "twist": 3},
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{**_BYTES["pre_tokenizer"], "turn": "x", "idle": None}],
            },
            "model": {**_BYTES["model"], "new_rule": True, "off": False},
            "added_tokens": [{**token, "loud": True} for token in _BYTES["added_tokens"]],
        },
        own=_NAMES,
        notes=(
            "pre_tokenizer.pretokenizers[0].turn='x', decoder.twist=3, model.new_rule=True, "
            "added_tokens.loud=True",
        ),
        like="bytes",
    ),
    "model flags": Case(made=of_bytes(ignore_merges=True)),
    "unknown letters": Case(
        made=of_pieces("gemma", byte_fallback=False, fuse_unk=False), own={"unk_token": "<unk>"}
    ),
    "fused unknown letters": Case(made=of_pieces("gemma", byte_fallback=False)),
    "an affix": Case(
        made={
            **of_words(),
            "model": {
                **of_bytes(end_of_word_suffix="</w>", unk_token="<unk>")["model"],
                "vocab": {"<unk>": 0, "t": 1, "h": 2, "e": 3, "e</w>": 4, "th": 5, "b</w>": 6},
                "merges": [["t", "h"]],
            },
            "added_tokens": [],
        },
    ),
    "llama": Case(made=_LLAMA, own={**_NAMES, "unk_token": "<unk>"}),
    "gemma": Case(made=of_pieces("gemma"), own=_NAMES),
    "mistral": Case(made=of_pieces("mistral"), own=_NAMES),
    "unigrams": Case(made=of_unigrams(), own=_NAMES),
    "word pieces": Case(made=of_word_pieces(), own=_NAMES),
    "words": Case(made=of_words(), own=_NAMES),
    "llama, tokens that take spaces": Case(
        made=with_flags(_LLAMA, "<s>", lstrip=True, rstrip=True), own=_NAMES
    ),
    "mistral, tokens that take spaces": Case(
        made=with_flags(of_pieces("mistral"), "</s>", rstrip=True), own=_NAMES
    ),
    "llama, normalised tokens": Case(
        made=with_flags(with_flags(_LLAMA, "<s>", normalized=True), "</s>", normalized=True),
        own={**_NAMES, "unk_token": "<unk>"},
        notes=("normalized=True of '<s>', '</s>'",),
        like="llama",
        unlike=True,
    ),
    "llama, tokens that another file has not normalised": Case(
        made=with_flags(_LLAMA, "<s>", normalized=True),
        own={**_NAMES, "unk_token": "<unk>", **_decoder(_357=flags("<s>"))},
        like="llama",
        unlike=True,  # in decoded texts alone
    ),
    "gemma, tokens that take spaces": Case(
        made=with_flags(of_pieces("gemma"), "<s>", lstrip=True, rstrip=True), own=_NAMES
    ),
    "gemma, normalised tokens that take spaces": Case(
        made=with_flags(of_pieces("gemma"), "<s>", lstrip=True, rstrip=True, normalized=True),
        own=_NAMES,
        notes=("normalized=True of '<s>'",),
        like="gemma, tokens that take spaces",
        unlike=True,
    ),
    "bytes, normalised tokens": Case(
        made=with_flags(_BYTES, "<s>", normalized=True), own=_NAMES, like="bytes"
    ),
}
