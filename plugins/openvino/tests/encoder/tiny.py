"""Tiny encoders with stored reference numbers, as directories and as sessions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from core_openvino.encoder.config import load_encoder_config
from core_openvino.encoder.graph import encoder
from core_openvino.encoder.pipeline import Pipeline
from core_openvino.encoder.session import EncoderSession, encoder_properties
from core_openvino.encoder.tensors import EncoderTensors, EncoderWeights
from core_openvino.encoder.tokenizer import Encoded
from core_openvino.library import core
from plugins.openvino.tests.encoder.oracle.weights import drawn
from plugins.openvino.tests.passes import skip_without_instructions

DATA = Path(__file__).parent / "oracle" / "data"
CASES = sorted(path.stem for path in DATA.glob("*.json"))
Floats = npt.NDArray[np.float32]


@cache
def record(case: str) -> dict[str, Any]:
    """Return a case: its config, the names and shapes of its tensors, and the outputs."""
    found: dict[str, Any] = json.loads((DATA / f"{case}.json").read_text())
    return found


def write_encoder(directory: Path, case: str, **changes: Any) -> Path:
    """Write the case's config and weights; ``changes`` of the config, None removes a key."""
    directory.mkdir(exist_ok=True)
    config = {**record(case)["config"], **changes}
    config = {name: value for name, value in config.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))
    save_file(drawn(case, record(case)["tensors"]), directory / "model.safetensors")
    return directory


def session_of(
    directory: Path, dtype: str = "float32", pooling: Sequence[str] = ("mean",)
) -> EncoderSession:
    """Compile a directory's encoder, on one thread."""
    skip_without_instructions(dtype)
    config = load_encoder_config(directory)
    if config.head is not None:
        pooling = ("mean" if config.head.mean else "cls",)
    pipeline = Pipeline(pooling=tuple(pooling))
    tensors = EncoderTensors(directory, config)
    model = encoder(config, EncoderWeights(tensors.take, dtype), pipeline)
    compiled = partial(core().compile_model, model, "CPU", encoder_properties(dtype, 1))
    return EncoderSession(config, pipeline, compiled)


def rows_of(rows: Sequence[Sequence[int]]) -> list[Encoded]:
    """Return rows of single texts."""
    return [Encoded(ids) for ids in rows]


def pairs_of(pairs: Sequence[tuple[list[int], list[int]]], segments: int) -> list[Encoded]:
    """Return rows of pairs; in a model with ``segments`` the second text is the second one."""
    second = int(segments > 1)
    return [Encoded([*a, *b], [0] * len(a) + [second] * len(b)) for a, b in pairs]


MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = [*MARKS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".,!?'-:;"]


def write_tokenizer(directory: Path, **changes: Any) -> None:
    """Write a WordPiece of letters, with BERT's tokens around texts; it cuts and pads, as MiniLM's.

    ``changes`` of tokenizer_config.json.
    """
    tokenizer = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(MARKS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, **changes}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def write_modules(directory: Path, *kinds: str, **pooling: Any) -> None:
    """Write modules.json, and the configs of its modules; ``pooling`` is that of Pooling."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    ]
    for place, kind in enumerate(kinds, 1):
        path = f"{place}_{kind}"
        (directory / path).mkdir(exist_ok=True)
        modules.append(
            {
                "idx": place,
                "name": str(place),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
        )
        if kind == "Pooling":
            config = {
                "word_embedding_dimension": 32,
                **(pooling or {"pooling_mode_mean_tokens": True}),
            }
            (directory / path / "config.json").write_text(json.dumps(config))
    (directory / "modules.json").write_text(json.dumps(modules))


def write_model(directory: Path, case: str = "bert", **changes: Any) -> Path:
    """Write a whole directory: mean pooling and a norm, or a cross-encoder."""
    write_encoder(directory, case, **changes)
    write_tokenizer(directory)
    if "means" in record(case):
        write_modules(directory, "Pooling", "Normalize")
    return directory
