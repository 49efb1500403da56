"""The tokens of a GGUF file that end a generation, as in llama.cpp (``llama-vocab.cpp``).

One difference: a token counts by its text only if the file marks it as a control token. llama.cpp
accepts any, so Gemma 3 could not write ``</s>``, which is HTML for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from core_runtime.gguf.metadata import Metadata
from core_runtime.gguf.vocabulary import CONTROL, special_ids, token_id

_ENDS = frozenset(
    {
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>"),
        *("<|calls|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>"),
        *("[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>"),
        *("<|tool_response>", "[e~["),
        "<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek spells it with these characters
    }
)
# Fill-in-the-middle marks: by key, else by one of these texts.
_FILLING: Mapping[str, tuple[str, ...]] = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
# If all of these end a generation, <|end|> ends only one message of an answer.
_CHANNELS = [
    {call, end} for call in ("<|call|>", "<|calls|>") for end in ("<|return|>", "<|flush|>")
]
_PLAIN_S = {"<|tool_response>", "<|plamo:eos|>"}  # with one of these, </s> is a normal token


def end_ids(meta: Metadata) -> list[int]:
    """Return the ids that end a generation, the EOS first."""
    tokens = meta.texts("tokenizer.ggml.tokens")
    kinds = meta.integers("tokenizer.ggml.token_type", len(tokens))
    control = {token: i for i, token in enumerate(tokens) if kinds[i] == CONTROL}

    named = [special_ids(meta).get("eos"), *(token_id(meta, key, tokens) for key in ("eot", "eom"))]
    ids = [index for index in named if index is not None] + _listed(meta, len(tokens))
    ids += sorted(control[text] for text in control.keys() & _ENDS)
    for key, texts in _FILLING.items():
        index = token_id(meta, key, tokens)
        by_text = [control[text] for text in texts if text in control]
        ids += by_text if index is None else [index]

    exceptions = _exceptions({tokens[index] for index in ids})
    return list(dict.fromkeys(index for index in ids if tokens[index] not in exceptions))


def _listed(meta: Metadata, size: int) -> list[int]:
    """Return the ids in ``tokenizer.ggml.eos_token_ids``, which Ollama's converter writes."""
    if meta.get("tokenizer.ggml.eos_token_ids") is None:
        return []
    ids = meta.integers("tokenizer.ggml.eos_token_ids")
    if any(not 0 <= index < size for index in ids):
        raise meta.error("some of tokenizer.ggml.eos_token_ids are not in the vocabulary")
    return list(ids)


def _exceptions(texts: set[str]) -> set[str]:
    in_channels = any(marks <= texts for marks in _CHANNELS)
    exceptions = {"<|end|>"} if in_channels else set()
    return exceptions | {"</s>"} if texts & _PLAIN_S else exceptions
