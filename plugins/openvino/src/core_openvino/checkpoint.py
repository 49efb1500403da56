"""A model's files, a safetensors directory or a GGUF file, as one description."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.models.described import of_gguf
from core.models.files import resolve_path
from core.types import Choice
from core_openvino.probe import gguf_file
from core_runtime.checkpoint.arrays import SafetensorArrays, TensorArrays
from core_runtime.checkpoint.config import ModelConfig, load_config, parse_config
from core_runtime.checkpoint.fields import JsonFiles
from core_runtime.checkpoint.generation_keys import check_generation
from core_runtime.checkpoint.keys import report
from core_runtime.checkpoint.own_files import report_unread
from core_runtime.gguf.arrays import GgufArrays
from core_runtime.gguf.config import hf_config
from core_runtime.gguf.ends import end_ids
from core_runtime.gguf.keys import check_keys
from core_runtime.gguf.metadata import LOAD
from core_runtime.gguf.source import GgufSource
from core_runtime.gguf.templates import chat_templates
from core_runtime.gguf.tensors import check_architecture
from core_runtime.gguf.vocabulary import build_tokenizer, named_tokens
from core_runtime.tokenizer.files import TokenizerFiles, stop_tokens
from core_runtime.tokenizer.model_tokenizer import Tokenizer

Times = Sequence[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's files. ``quantisation``: bits and group of its matrices, zeros without one.

    ``times``: see `times_of`, from before they were read.
    """

    path: Path
    config: ModelConfig
    tokenizer: Tokenizer
    stop_ids: frozenset[int]
    tensors: TensorArrays
    quantisation: tuple[int, int]
    unread: Sequence[Choice] = ()
    times: Times = ()


def read_checkpoint(path: str | os.PathLike[str], template: str | None) -> Checkpoint:
    """Read everything but the tensors' data; ``template`` names the chat template to use.

    Raises `core.ModelError` for bad files, `core.InvalidOptionError` for an unknown template.
    """
    file = gguf_file(path)
    # All files are of one directory, also where the path is a link that changes meanwhile.
    return (
        _gguf(file, template) if file else _directory(Path(resolve_path(path)).resolve(), template)
    )


def times_of(path: Path) -> Times:
    """Return when the files of a model's tensors were changed, twice each.

    A program may set the first time back, as `cp -p` does, but not the second.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    try:
        facts = [(str(file), file.stat()) for file in files]
    except OSError:
        return ()
    return [(name, status.st_mtime_ns, status.st_ctime_ns) for name, status in facts]


def _directory(directory: Path, template: str | None) -> Checkpoint:
    times = times_of(directory)
    files = JsonFiles(directory)
    config = load_config(directory, files=files)
    check_generation(files)
    report(config.notes, str(directory / "config.json"))
    unread = report_unread(directory, with_adapter=False)

    tokenizer = Tokenizer.from_directory(directory, files, template)
    tokenizer.check_rows(config.vocab_size, directory)
    stop_ids = stop_tokens(directory, tokenizer.library, config.vocab_size, files)
    packed = config.quantization.default if config.quantization else None
    return Checkpoint(
        directory,
        config,
        tokenizer,
        stop_ids,
        SafetensorArrays(directory, config),
        (packed.bits, packed.group_size) if packed else (0, 0),
        unread,
        times,
    )


def _gguf(path: Path, template: str | None) -> Checkpoint:
    times, source = times_of(path), GgufSource(path, LOAD)
    check_architecture(source)
    meta = source.metadata
    raw = hf_config(source, "float32")
    config = parse_config(raw, str(path))

    default, named = chat_templates(meta)
    files = TokenizerFiles(
        library=build_tokenizer(meta),
        model_type=config.model_type,
        templates={**({"default": default} if default else {}), **named},
        special_texts=named_tokens(meta),
    )
    tokenizer, stop_ids = Tokenizer(files, template), frozenset(end_ids(meta))
    tensors = GgufArrays(source, raw, config)
    check_keys(meta)  # after all reads of metadata
    stored = of_gguf(meta.values)
    return Checkpoint(
        path, config, tokenizer, stop_ids, tensors, (stored.bits, stored.group), times=times
    )
