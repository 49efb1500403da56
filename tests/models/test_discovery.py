"""Finding models below a directory."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelAccessError, ModelNotFoundError
from core.models.discovery import discover
from core.types import DiscoveredModel

AsNobody = Callable[[Callable[[], object]], str]


def model(directory: Path, config: Any = None, shards: int = 1) -> Path:
    """A model directory; each of its weight files has 10 bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config or {"model_type": "llama"})
    (directory / "config.json").write_text(text)
    for shard in range(shards):
        (directory / f"model-{shard + 1:05}-of-{shards:05}.safetensors").write_bytes(b"0" * 10)
    return directory


def gguf(
    path: Path, file_type: int | None = 15, architecture: str = "llama", kind: str = ""
) -> Path:
    """A GGUF file with a header and nothing else."""
    pairs = [_pair("general.architecture", architecture)]
    if kind:
        pairs.append(_pair("general.type", kind))
    if file_type is not None:
        pairs.append(_string("general.file_type") + struct.pack("<II", 4, file_type))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs))
    return path


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _pair(key: str, text: str) -> bytes:
    return _string(key) + struct.pack("<I", 8) + _string(text)


def paths(found: list[DiscoveredModel]) -> list[str]:
    return [model.path for model in found]


def test_a_directory_of_models(tmp_path: Path) -> None:
    big = model(
        tmp_path / "big", {"model_type": "gemma3", "quantization": {"bits": 4, "group_size": 64}}, 3
    )
    file = gguf(tmp_path / "small.gguf")
    (tmp_path / "no weights").mkdir()
    (tmp_path / "no weights" / "config.json").write_text("{}")
    (tmp_path / "no config").mkdir()
    (tmp_path / "no config" / "model.safetensors").write_bytes(b"")
    assert discover(tmp_path) == [
        DiscoveredModel(str(big), "gemma3", 4, 64, 3, "safetensors", 30, "directory"),
        DiscoveredModel(str(file), "llama", 4, 256, 1, "gguf", file.stat().st_size, "directory"),
    ]


def test_a_base_that_is_itself_a_model_comes_first(tmp_path: Path) -> None:
    base = model(tmp_path / "m")
    model(base / "a checkpoint")
    gguf(base / "A.gguf")
    assert paths(discover(base)) == [str(base), str(base / "A.gguf"), str(base / "a checkpoint")]


def test_a_base_that_is_a_file(tmp_path: Path) -> None:
    file = gguf(tmp_path / "a.gguf")
    gguf(tmp_path / "b.gguf")
    (tmp_path / "notes.txt").write_text("")
    assert paths(discover(file)) == [str(file)]
    assert discover(tmp_path / "notes.txt") == []


def test_depth_counts_levels_below_the_base(tmp_path: Path) -> None:
    one = model(tmp_path / "one")
    two = model(tmp_path / "x" / "two")
    assert paths(discover(tmp_path)) == [str(one)]
    assert paths(discover(tmp_path, 0)) == []
    assert paths(discover(tmp_path, 2)) == [str(one), str(two)]


def test_relative_bases_give_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    assert paths(discover(".")) == [str(tmp_path / "m")]


def test_the_order_is_by_path(tmp_path: Path) -> None:
    for name in ("b", "a", "c", "B"):
        model(tmp_path / name)
    found = paths(discover(tmp_path))
    assert found == sorted(found)
    assert len(found) == 4


@pytest.mark.parametrize(
    ("config", "model_type", "bits", "group"),
    [
        ("{ not json", "", 0, 0),
        ("[]", "", 0, 0),
        ({"model_type": 5}, "", 0, 0),
        ({"text_config": {"model_type": "gemma3_text"}}, "gemma3_text", 0, 0),
        ({"model_type": "g", "text_config": {"model_type": "t"}}, "g", 0, 0),
        ({"model_type": "q", "quantization_config": {"bits": 8, "group_size": 32}}, "q", 8, 32),
        ({"model_type": "q", "quantization": {"bits": "4"}}, "q", 0, 0),
        ({"model_type": "q", "quantization": {"bits": True, "group_size": -1}}, "q", 0, 0),
        ({"model_type": "q", "quantization": [4]}, "q", 0, 0),
        ({"model_type": "q", "quantization_config": {"quant_method": "fp8"}}, "q", 0, 0),
    ],
)
def test_what_config_json_says(
    tmp_path: Path, config: Any, model_type: str, bits: int, group: int
) -> None:
    found = discover(model(tmp_path, config))[0]
    assert (found.model_type, found.quant_bits, found.quant_group) == (model_type, bits, group)


@pytest.mark.parametrize(
    ("file_type", "bits", "group"),
    [
        (0, 0, 0),
        (1, 0, 0),
        (32, 0, 0),
        (2, 4, 32),
        (3, 4, 32),
        (7, 8, 32),
        (8, 5, 32),
        (9, 5, 32),
        (10, 2, 256),
        (12, 3, 256),
        (15, 4, 256),
        (17, 5, 256),
        (18, 6, 256),
        (15 + 1024, 4, 256),  # guessed
        (999, 0, 0),
        (None, 0, 0),
    ],
)
def test_what_a_gguf_file_type_means(
    tmp_path: Path, file_type: int | None, bits: int, group: int
) -> None:
    found = discover(gguf(tmp_path / "m.gguf", file_type))[0]
    assert (found.quant_bits, found.quant_group) == (bits, group)


def test_what_is_no_language_model(tmp_path: Path) -> None:
    gguf(tmp_path / "mmproj-f16.gguf")
    gguf(tmp_path / "vision.gguf", architecture="clip")
    gguf(tmp_path / "lora.gguf", kind="adapter")
    gguf(tmp_path / "._model.gguf")
    model(tmp_path / ".unfinished")
    assert discover(tmp_path) == []


def test_a_broken_gguf_is_listed_without_its_type(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"version https://git-lfs")
    assert [(m.model_type, m.size_bytes) for m in discover(tmp_path)] == [("", 23)]


def test_a_split_gguf_is_one_model(tmp_path: Path) -> None:
    shards = [gguf(tmp_path / f"m-{i:05}-of-00003.gguf") for i in (2, 1, 3)]
    gguf(tmp_path / "half-00001-of-00002.gguf")
    found = discover(tmp_path)
    assert paths(found) == [str(shards[1])]
    assert found[0].num_files == 3
    assert found[0].size_bytes == sum(shard.stat().st_size for shard in shards)


def test_links_are_followed_once_and_never_in_a_circle(tmp_path: Path) -> None:
    real = model(tmp_path / "real")
    (tmp_path / "alias").symlink_to(real)
    (real / "circle").symlink_to(tmp_path)
    outside = model(tmp_path.parent / f"{tmp_path.name} outside")
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "link too").symlink_to(outside)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    expected = [str(tmp_path / "link"), str(real)]
    assert paths(discover(tmp_path)) == expected
    assert paths(discover(tmp_path, 50)) == expected


def test_a_link_never_hides_what_is_below_its_target(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "z" / "inner")
    model(tmp_path / "z" / "inner" / "m")
    assert len(discover(tmp_path, 3)) == 1


def test_dangling_weights_are_no_weights(tmp_path: Path) -> None:
    (model(tmp_path / "m", shards=0) / "model.safetensors").symlink_to(tmp_path / "nowhere")
    assert discover(tmp_path) == []


def test_a_pipe_does_not_hold_it_up(tmp_path: Path) -> None:
    directory = model(tmp_path / "m")
    (directory / "config.json").unlink()
    os.mkfifo(directory / "config.json")
    os.mkfifo(directory / "m.gguf")
    assert discover(tmp_path) == []


def test_a_missing_base(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        discover(tmp_path / "nowhere")


def test_what_may_not_be_read(public_dir: Path, as_nobody: AsNobody) -> None:
    seen = model(public_dir / "seen")
    hidden = model(public_dir / "hidden")
    model(public_dir / "secret").chmod(0)
    (hidden / "config.json").chmod(0)

    def find() -> list[tuple[str, str]]:
        return [(m.path, m.model_type) for m in discover(public_dir)]

    assert as_nobody(find) == repr([(str(hidden), ""), (str(seen), "llama")])
    public_dir.chmod(0o311)
    assert as_nobody(find).startswith(ModelAccessError.__name__)
    public_dir.chmod(0o755)
    (public_dir / "secret").chmod(0o755)


def test_an_enormous_depth_ends_with_the_tree(tmp_path: Path) -> None:
    assert discover(tmp_path, 10**30) == []
