"""Write a GGUF file's vocabulary with another pre-tokenizer, and no weights, for make_tokens.py::

python with_pre.py SMOLLM2.gguf llama-bpe A.gguf
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from gguf import GGUFWriter

from core.models.gguf import read_gguf


def main() -> None:
    """Copy all metadata but ``tokenizer.ggml.pre``."""
    source, name, target = sys.argv[1:]
    metadata: dict[str, Any] = dict(read_gguf(source, arrays=True).metadata)
    writer = GGUFWriter(target, metadata.pop("general.architecture"))
    metadata["tokenizer.ggml.pre"] = name
    for key, value in metadata.items():
        adders: dict[type, Any] = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
            list: writer.add_array,
        }
        adders[type(value)](key, value)
    writer.add_tensor("token_embd.weight", np.zeros((1, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
