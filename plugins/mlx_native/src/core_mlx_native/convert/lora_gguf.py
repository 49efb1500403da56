"""An adapter as a GGUF file for llama.cpp, as its ``convert_lora_to_gguf.py`` writes one.

``general.type`` is "adapter", ``adapter.type`` "lora", ``adapter.lora.alpha`` PEFT's alpha, and
each weight has a pair of tensors, A [rank, in] and B [out, rank], whose names are the weight's with
``.lora_a`` and ``.lora_b`` behind it. llama.cpp adds ``alpha / rank * B A``. Where its conversion
of a model reorders a weight's rows, Llama's queries and keys, it reorders those of B alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import validate
from core.errors import ConversionError, ModelError, OutputError
from core.system import outputs
from core_mlx_native.checkpoint.config import ModelConfig, load_config
from core_mlx_native.convert.names import CONVENTIONS, permuted
from core_mlx_native.cpu.blas import ensure_blas

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from core_mlx_native.adapters.files import StoredAdapter
    from core_mlx_native.adapters.layers import LowRank

_KEY = "core.adapter"
_FILE = outputs.Kind(
    "an adapter in GGUF", re.compile(rb"GGUF.*?" + re.escape(_KEY.encode()), re.DOTALL)
)
DTYPES = ("float32", "float16")
_ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
}


def export_gguf(
    model: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    out_file: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Path:
    """Write an adapter for llama.cpp, and return the file's absolute path.

    ``model`` is the directory that it belongs to; of its files only the headers are read.
    ``dtype``: float32 or float16. Raises `ConversionError` (DoRA, which llama.cpp has not; the file
    is there, or cannot be written), `InvalidOptionError`, and `ModelError`.
    """
    validate.one_of("dtype", dtype, DTYPES)
    ensure_blas()  # for a model loaded later: mlx, imported below, would come too early for it
    from core_mlx_native.adapters.files import read_adapter

    target = Path(out_file).expanduser()
    try:
        outputs.check_file(target)
        if target.parent.is_dir():
            outputs.check(target, _FILE, overwrite=overwrite)
    except OutputError as error:
        raise ConversionError(str(error)) from None
    config = load_config(Path(model).expanduser())
    stored = read_adapter(adapter, config)
    if any(layer.magnitude is not None for layer in stored.layers.values()):
        raise ConversionError(
            f"{stored.directory} is DoRA, which llama.cpp has no code for. Merge it into its model "
            "(infer-cli lora merge)."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with outputs.draft(target, _FILE, overwrite=overwrite) as partial:
            _write(partial, config, stored, dtype)
    except ModelError:
        raise
    except OutputError as error:
        raise ConversionError(str(error)) from None
    except OSError as error:
        raise ConversionError(f"{target} could not be written: {error}.") from error
    return Path(os.path.realpath(target))


def _write(file: Path, config: ModelConfig, stored: StoredAdapter, dtype: str) -> None:
    from gguf import GGUFType, GGUFWriter, Keys, LlamaFileType

    architecture = _ARCHITECTURES[config.model_type]
    writer = GGUFWriter(file, architecture)
    writer.add_type(GGUFType.ADAPTER)
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_string(_KEY, "lora")
    wide = dtype == "float32"
    writer.add_file_type(LlamaFileType.ALL_F32 if wide else LlamaFileType.MOSTLY_F16)

    # One alpha holds for all: what differs goes into B.
    first = next(iter(stored.layers.values()))
    alpha = first.scale * first.a.shape[1]
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)

    for name, pair in _pairs(config, architecture, stored.layers, alpha).items():
        for part, array in zip(("lora_a", "lora_b"), pair, strict=True):
            writer.add_tensor(f"{name}.weight.{part}", array.astype(dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _pairs(
    config: ModelConfig, architecture: str, layers: Mapping[str, LowRank], alpha: float
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """A [rank, in] and B [out, rank] of each weight, by its name in GGUF."""
    import gguf
    import numpy as np

    known: dict[str, Any] = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known[architecture], config.num_layers)
    reorders = architecture in CONVENTIONS and CONVENTIONS[architecture].permuted
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}

    found = {}
    for name, layer in layers.items():
        rank = layer.a.shape[1]
        a, b = np.array(layer.a).T, np.array(layer.b).T * np.float32(layer.scale * rank / alpha)
        module = name.rpartition(".")[2]
        if reorders and module in heads:
            b = permuted(b, heads[module])
        found[str(names.get_name(name))] = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return found
