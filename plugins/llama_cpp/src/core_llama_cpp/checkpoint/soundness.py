"""Contradictions in a model's files at which llama.cpp aborts the process, instead of an error.

They are in metadata, in tensors and their offsets in a file, and in the vocabulary; the process
would abort on loading, or at a text that needs a missing token. All are visible in the headers.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path

from core.errors import InvalidModelError, TokenizerError
from core.models.gguf import GgufHeader, GgufTensor, read_gguf
from core_llama_cpp.checkpoint.header import ModelHeader
from core_runtime.gguf_files import ModelFiles

MAPPED_ALIGNMENT = 32
"""ggml's TENSOR_ALIGNMENT: a file with a smaller one is read into memory, not mapped."""
_LEAST_ALIGNMENT = 8  # of the GGUF specification
_FLOAT32 = 0
_NO_WEIGHTS = {
    **{9: "Q8_1", 15: "Q8_K"},  # of activations, while they are multiplied
    **{24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"},
}
_ADDED = (".bias", "_norm.weight")
_TOKENS, _TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_MAP = "tokenizer.ggml.precompiled_charsmap"
_BYTE = 6  # LLAMA_TOKEN_TYPE_BYTE
# Those that UTF-8 has; a space is written as U+2581 before it is looked for.
_BYTES = [byte for byte in range(0xF5) if byte not in (0x20, 0xC0, 0xC1)]
_MOST_LAYERS, _MOST_EXPERTS = 512, 512  # LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS
_SCALINGS = ("none", "linear", "yarn", "longrope")
_SKIPS_ATTENTION = "deci"  # layers without heads
# Where positions turn a head as a whole (``GGML_ASSERT(n_embd_head == n_rot)``).
_WHOLE_HEADS = frozenset(
    {
        *("apertus", "arcee", "arctic", "baichuan", "chameleon", "codeshell", "cogvlm"),
        *("cohere2moe", "dbrx", "deci", "deepseek", "dots1", "ernie4_5", "ernie4_5-moe"),
        *("exaone", "exaone-moe", "exaone4", "falcon", "granite", "graniteswitch", "grok"),
        *("grovemoe", "hunyuan-moe", "hunyuan_vl", "hy_v3", "internlm2", "jais2", "llama"),
        *("llama4", "maincoder", "mellum", "mistral3", "olmo", "olmo2", "olmoe", "orion"),
        *("paddleocr", "pangu-embedded", "plamo", "qwen2", "qwen2moe", "qwen2vl", "qwen3"),
        *("qwen3moe", "qwen3vl", "qwen3vlmoe", "seed_oss", "smallthinker", "smollm3"),
        *("starcoder2", "talkie", "xverse"),
    }
)


def file_reason(path: Path, model: ModelHeader) -> str | None:
    """Return the contradiction in one of a model's files, or None."""
    header = model.file if path == model.path else read_gguf(path, tensors=True)
    alignment = alignment_of(header)
    if alignment < _LEAST_ALIGNMENT or alignment & (alignment - 1):
        return (
            f"its general.alignment is {alignment}, expected a power of two from "
            f"{_LEAST_ALIGNMENT} on"
        )
    reasons = (_tensor_reason(tensor) for tensor in header.tensors)
    return next(filter(None, reasons), None)


def alignment_of(header: GgufHeader) -> int:
    """Return the alignment, in bytes, of every tensor in the file."""
    alignment = header.metadata.get("general.alignment", MAPPED_ALIGNMENT)
    return alignment if isinstance(alignment, int) else 0


def is_mappable(model: ModelHeader, files: tuple[Path, ...]) -> bool:
    """Return True if the tensors are aligned in the files as they have to be in memory."""
    others = (read_gguf(path) for path in files if path != model.path)
    headers = (model.file, *others)
    return all(alignment_of(header) % MAPPED_ALIGNMENT == 0 for header in headers)


def _tensor_reason(tensor: GgufTensor) -> str | None:
    name, kind = tensor.name[:80], tensor.ggml_type
    if kind in _NO_WEIGHTS:
        return f"the tensor {name!r} has the type {_NO_WEIGHTS[kind]}, which is not for weights"
    is_row = all(size == 1 for size in tensor.shape[1:])
    if kind != _FLOAT32 and (is_row or name.endswith(_ADDED)):
        return f"the tensor {name!r} has ggml's type {kind}; norms and biases must be float32"
    return None


def check_vocabulary(header: ModelHeader) -> None:
    """Raise `InvalidModelError` or `TokenizerError` for a vocabulary that aborts the process."""
    metadata = read_gguf(
        header.path, arrays=True, only=(_TOKENS, _TYPES), text_errors="surrogateescape"
    ).metadata
    tokens, types = metadata.get(_TOKENS), metadata.get(_TYPES)
    kind = header.metadata.get("tokenizer.ggml.model")

    # llama.cpp reads them as C strings.
    texts = [text.partition("\0")[0] for text in tokens or () if isinstance(text, str)]  # type: ignore[union-attr]
    twice = len(texts) - len(set(texts))
    if twice:
        raise InvalidModelError(
            f"{header.path} is inconsistent: {twice} of its tokens occur twice. Download or "
            "convert it again."
        )

    # Each kind of tokenizer aborts the process at a text for a different reason.
    if kind == "llama" and (missing := _missing_byte(set(texts))) is not None:
        raise _unusable(header, f"no token for the byte <0x{missing:02X}>")
    if kind == "bert" and isinstance(types, list) and _BYTE in types:
        raise _unusable(header, "tokens of bytes, which WordPiece does not have")
    if kind == "t5" and _MAP in header.metadata:
        raise _unusable(header, f"a table of characters ({_MAP}) that llama.cpp does not check")


def _missing_byte(texts: Collection[str]) -> int | None:
    """Return a byte without a token, which a text may need for a character without one."""

    def is_there(byte: int) -> bool:
        return f"<0x{byte:02X}>" in texts or (byte < 0x80 and chr(byte) in texts)

    return next((byte for byte in _BYTES if not is_there(byte)), None)


def _unusable(header: ModelHeader, what: str) -> TokenizerError:
    return TokenizerError(
        f"The tokenizer in {header.path} has {what}, so llama.cpp would abort the process at a "
        "text that needs it. Convert the model again, or use another build of it."
    )


def check_soundness(files: ModelFiles, header: ModelHeader) -> None:
    """Raise `InvalidModelError`, or `TokenizerError`, for a model that would abort the process.

    Reads the entire vocabulary, and the header of every file.
    """
    for look in (_layers, _experts, _heads, _rope, _epsilons):
        if reason := look(header):
            raise _broken(header, reason)
    for file in files.all:
        if reason := file_reason(file, header):
            raise _broken(header, reason)
    check_vocabulary(header)


def _layers(header: ModelHeader) -> str | None:
    layers, more = header.num_layers, _number(header, "nextn_predict_layers")
    if not 0 < layers <= _MOST_LAYERS:
        return f"it has {layers} layers, expected 1 to {_MOST_LAYERS}"
    return f"{more} of its {layers} layers predict further tokens" if more >= layers else None


def _experts(header: ModelHeader) -> str | None:
    experts, used = _number(header, "expert_count"), _number(header, "expert_used_count")
    if not 0 <= used <= experts <= _MOST_EXPERTS or (experts and not used):
        return f"it uses {used} of {experts} experts"
    groups, chosen = (_number(header, f"expert_group_{key}") for key in ("count", "used_count"))
    if not 0 <= groups < max(1, experts) or (groups > 1 and experts % groups):
        return f"it has {groups} groups of {experts} experts"
    if groups > 1 and not 0 < chosen < groups:
        return f"it uses {chosen} of {groups} groups of experts"
    return None


def _heads(header: ModelHeader) -> str | None:
    heads = _each_layer(header, "attention.head_count", 0)
    keys = _each_layer(header, "attention.head_count_kv", heads)
    for layer, (queries, shared) in enumerate(zip(heads, keys, strict=False)):
        if not shared and header.architecture == _SKIPS_ATTENTION:
            continue
        if queries < 1 or shared < 1 or queries % shared:
            return f"its layer {layer} has {queries} query heads and {shared} key/value heads"
    return None


def _rope(header: ModelHeader) -> str | None:
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type", "linear")
    if isinstance(scaling, str) and scaling not in _SCALINGS:
        return f"its rope.scaling.type is {scaling!r:.40}, expected one of {', '.join(_SCALINGS)}"
    values = _number(header, "attention.value_length", _head_length(header))
    for window in ("", "_swa"):  # layers with a window may have sizes of their own
        length = _number(header, f"attention.key_length{window}", _head_length(header))
        turned = _number(header, f"rope.dimension_count{window}", length)
        whole = header.architecture in _WHOLE_HEADS
        if whole and (turned % 2 or not turned == length == values):
            return f"its heads have {length} and {values} values, of which RoPE rotates {turned}"
        if header.has(f"rope.dimension_count{window}") and (turned % 2 or turned > length):
            return f"RoPE rotates {turned} of the {length} values of its heads"
    return None


def _epsilons(header: ModelHeader) -> str | None:
    for key, value in header.metadata.items():
        if not (key.endswith("epsilon") and isinstance(value, int | float)):
            continue
        if not 0 <= value < math.inf:  # NaN is not, either
            return f"its {key} is {value}"
    return None


def _head_length(header: ModelHeader) -> int:
    first = _each_layer(header, "attention.head_count", 0)[:1]
    default = header.hidden_size // max(1, *first) if first else 0
    return _number(header, "attention.key_length", default)


def _number(header: ModelHeader, key: str, default: int = 0) -> int:
    value = header.metadata.get(f"{header.architecture}.{key}", default)
    return value if isinstance(value, int) else -1


def _each_layer(header: ModelHeader, key: str, default: int | list[int]) -> list[int]:
    """Return the numbers of all layers; `header` has checked that they are numbers."""
    value = header.metadata.get(f"{header.architecture}.{key}", default)
    if isinstance(value, list):
        return [number for number in value if isinstance(number, int)][: header.num_layers]
    return [value] * header.num_layers if isinstance(value, int) else []


def _broken(header: ModelHeader, what: str) -> InvalidModelError:
    return InvalidModelError(
        f"{header.path} is inconsistent: {what}. Download or convert it again."
    )
