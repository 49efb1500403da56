"""A LoRA adapter in GGUF: found and checked against its model before anything is loaded.

This module refuses contradictions in the file that make llama.cpp abort the process.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from core.errors import InvalidModelError, UnsupportedModelError
from core.models.files import resolve_path, typed_errors
from core.models.gguf import GgufHeader, GgufTensor, read_gguf
from core_llama_cpp.checkpoint.header import ModelHeader
from core_runtime.gguf_files import find_files

_ALPHA, _FLOAT32 = "adapter.lora.alpha", 6
_KEYS = ("adapter.type", _ALPHA, "adapter.lora.task_name", "adapter.lora.prompt_prefix")
_REASONS = {
    "adapter.alora.invocation_tokens": "it is an activated LoRA (aLoRA), which applies only after "
    "these tokens of a prompt. llama-server --lora runs it"
}
# The types that llama.cpp's convert_lora_to_gguf.py writes; integers cannot be multiplied.
_TYPES = {0: "F32", 1: "F16", 8: "Q8_0", 30: "BF16"}
_EMBEDDING, _EXPERTS = "token_embd.weight", "_exps."

Pair = tuple[str, GgufTensor, GgufTensor]


def check_adapter(path: Path, model: ModelHeader) -> None:
    """Check the shapes and types of all of an adapter's pairs; no data are read.

    Raises `InvalidModelError`, and `UnsupportedModelError` for tensors that llama.cpp ignores, and
    for an embedding that is also the output.
    """
    header = read_gguf(path, tensors=True)
    pairs = list(_pairs(header))
    reason = _alpha_reason(path, header) or (None if pairs else "it has no pairs of tensors")

    _refuse_passed_over(path, header)
    experts = model.metadata.get(f"{model.architecture}.expert_count", 1)
    for pair in pairs:
        reason = reason or _pair_reason(pair, experts if _EXPERTS in pair[0] else 1)
    if reason:
        raise InvalidModelError(f"The adapter {path} is broken: {reason}. Convert it again.")

    if any(weight.endswith(_EMBEDDING) for weight, _, _ in pairs) and _is_tied(model):
        raise UnsupportedModelError(
            f"llama.cpp cannot run {model.path} with the adapter {path}: the adapter changes the "
            "token embedding, which is also this model's output. Merge it into the model's weights."
        )


def _refuse_passed_over(path: Path, header: GgufHeader) -> None:
    """Refuse the tensors that llama.cpp silently ignores."""
    for tensor in header.tensors:
        if tensor.name.endswith("_norm.weight"):
            raise UnsupportedModelError(
                f"llama.cpp ignores {tensor.name} of the adapter {path}, which replaces a norm. "
                "Merge the adapter into its model before converting it to GGUF."
            )


def _pairs(header: GgufHeader) -> Iterator[Pair]:
    """Yield each weight's name with its A and B; llama.cpp reports an A without a B."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    for name, first in tensors.items():
        weight = name.removesuffix(".lora_a")
        second = tensors.get(f"{weight}.lora_b")
        if weight != name and second is not None:
            yield weight, first, second


def _pair_reason(pair: Pair, experts: object) -> str | None:
    weight, *tensors = pair
    for tensor in tensors:
        if tensor.ggml_type not in _TYPES:
            known = ", ".join(_TYPES.values())
            return f"{tensor.name} has ggml's type {tensor.ggml_type}, expected {known}"
    first, second = (_dimensions(tensor) for tensor in tensors)
    # In the file's order A is [in, rank] and B [rank, out]; an embedding's A is [rank, tokens].
    rank = first[0] if weight.endswith(_EMBEDDING) else first[1]
    if rank < 1 or rank != second[0] or first[2:] != [experts, 1] or second[2:] != [experts, 1]:
        return f"the shapes {tensors[0].shape} and {tensors[1].shape} of {weight} do not match"
    return None


def _dimensions(tensor: GgufTensor) -> list[int]:
    return [*tensor.shape, 1, 1, 1, 1][:4]


def _alpha_reason(path: Path, header: GgufHeader) -> str | None:
    alpha = header.metadata.get(_ALPHA)
    if alpha is None:  # no scaling
        return None
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        return f"{_ALPHA} is {alpha!r:.40}, expected a finite float32"
    with path.open("rb") as file:  # the metadata do not distinguish a double from a float
        data = file.read(header.data_offset)
    key = struct.pack("<Q", len(_ALPHA)) + _ALPHA.encode()
    kind = struct.unpack_from("<I", data, data.index(key) + len(key))[0]
    return None if kind == _FLOAT32 else f"{_ALPHA} has GGUF's type {kind}, expected float32"


def _is_tied(model: ModelHeader) -> bool:
    shards = (read_gguf(shard, tensors=True) for shard in find_files(model.path).all)
    return not any(tensor.name == "output.weight" for shard in shards for tensor in shard.tensors)


def find_adapter(path: str | os.PathLike[str] | None, header: ModelHeader) -> Path | None:
    """Return the adapter's file: ``path`` itself, or the only ``*.gguf`` in that directory.

    Raises `ModelNotFoundError`, `ModelAccessError`, and `InvalidModelError` for a file that is not
    a LoRA adapter in GGUF, or one for another architecture, `UnsupportedModelError` for keys that
    this plugin does not support; and the errors of `check_adapter`.
    """
    if path is None:
        return None
    location = Path(resolve_path(path))
    with typed_errors(str(location)):
        file = _only_file(location) if location.is_dir() else location
        metadata = read_gguf(file).metadata

    if metadata.get("general.type") != "adapter" or metadata.get("adapter.type") != "lora":
        raise InvalidModelError(
            f"{file} is not a LoRA adapter in GGUF (general.type 'adapter', adapter.type 'lora'). "
            "Make one with llama.cpp's convert_lora_to_gguf.py."
        )

    if unknown := sorted(
        key for key in metadata if key.startswith("adapter.") and key not in _KEYS
    ):
        raise UnsupportedModelError(
            f"The adapter {file} has the key {unknown[0]}, which this plugin does not support: "
            f"{_REASONS.get(unknown[0], 'its meaning is unknown')}."
        )
    made_for = metadata.get("general.architecture")
    if made_for != header.architecture:
        raise InvalidModelError(
            f"The adapter {file} was made for the architecture {made_for!r:.80}, but "
            f"{header.path} is {header.architecture!r}. Use an adapter for this model."
        )
    with typed_errors(str(location)):
        check_adapter(file, header)
    return file


def _only_file(directory: Path) -> Path:
    files = sorted(path for path in directory.iterdir() if path.suffix.lower() == ".gguf")
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        if not files and (directory / "adapter_config.json").exists():
            raise InvalidModelError(
                f"{directory} is a safetensors adapter; llama.cpp only reads GGUF. Convert it: "
                "infer-cli lora export --gguf -m MODEL ADAPTER OUT, with MODEL in safetensors."
            )
        raise InvalidModelError(
            f"Expected one *.gguf adapter in {directory}, found: {names}. Pass the file itself."
        )
    return files[0]
