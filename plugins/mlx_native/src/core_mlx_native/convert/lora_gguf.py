"""Export of an adapter to GGUF for llama.cpp, like its ``convert_lora_to_gguf.py``.

``general.type`` is "adapter", ``adapter.type`` "lora", ``adapter.lora.alpha`` PEFT's alpha, and
each weight has a pair of tensors, A [rank, in] and B [out, rank], whose names are the weight's
followed by ``.lora_a`` and ``.lora_b``. llama.cpp adds ``alpha / rank * B A``. If its model
conversion reorders a weight's rows (Llama's queries and keys), it reorders B's rows the same way.
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
from core_mlx_native.cpu.blas import ensure_blas
from core_runtime.checkpoint.config import ModelConfig, load_config
from core_runtime.gguf.names import CONVENTIONS, permuted

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

    ``model`` is the directory of its model, of which only headers are read. ``dtype``: float32 or
    float16. Raises `ConversionError` (DoRA, which llama.cpp lacks; the file exists, or cannot be
    written), `InvalidOptionError`, and `ModelError`.
    """
    validate.one_of("dtype", dtype, DTYPES)
    ensure_blas()  # for a model loaded later: it must precede the import of mlx below
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
            f"{stored.directory} is a DoRA adapter, which llama.cpp does not support. Merge it "
            "into its model (infer-cli lora merge)."
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
        raise ConversionError(f"Cannot write {target}: {error}.") from error
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

    # One alpha applies to all: differences are folded into B.
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
    """Return each weight's A [rank, in] and B [out, rank], by GGUF name."""
    import gguf
    import numpy as np

    known: dict[str, Any] = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known[architecture], config.num_layers)
    reorders = architecture in CONVENTIONS and CONVENTIONS[architecture].permuted
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}

    pairs = {}
    for name, layer in layers.items():
        rank = layer.a.shape[1]
        a, b = np.array(layer.a).T, np.array(layer.b).T * np.float32(layer.scale * rank / alpha)
        module = name.rpartition(".")[2]
        if reorders and module in heads:
            b = permuted(b, heads[module])
        pairs[str(names.get_name(name))] = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return pairs
