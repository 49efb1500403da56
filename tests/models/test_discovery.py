"""Finding models below a directory."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelAccessError, ModelNotFoundError
from core.models.described import TENSOR_TYPES, of_gguf
from core.models.discovery import discover
from core.types import DiscoveredModel

NO_TENSORS = (2).to_bytes(8, "little") + b"{}"  # of a safetensors file, all that there has to be
AsNobody = Callable[[Callable[[], object]], str]


def model(directory: Path, config: Any = None, shards: int = 1) -> Path:
    """A model directory; each of its weight files has 10 bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config or {"model_type": "llama"})
    (directory / "config.json").write_text(text)
    for shard in range(shards):
        (directory / f"model-{shard + 1:05}-of-{shards:05}.safetensors").write_bytes(NO_TENSORS)
    return directory


def gguf(
    path: Path,
    file_type: int | None = 15,
    architecture: str = "llama",
    kind: str = "",
    infos: Sequence[tuple[str, int, int]] = (),
) -> Path:
    """A GGUF file with a header and nothing else; of tensors the name, the size and the type."""
    pairs = [_pair("general.architecture", architecture)]
    if kind:
        pairs.append(_pair("general.type", kind))
    if file_type is not None:
        pairs.append(_string("general.file_type") + struct.pack("<II", 4, file_type))
    path.parent.mkdir(parents=True, exist_ok=True)
    offset = 0
    tensors = b""
    for name, size, number in infos:
        tensors += _string(name) + struct.pack("<IQIQ", 1, size, number, offset)
        offset += -(-size * 4 // 32) * 32
    header = struct.pack("<IQQ", 3, len(infos), len(pairs))
    path.write_bytes(b"GGUF" + header + b"".join(pairs) + tensors)
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
    os.utime(file, (1000, 1000))
    for number, shard in enumerate(big.glob("*.safetensors")):
        os.utime(shard, (2000 + number, 2000 + number))
    size, where = file.stat().st_size, "directory"
    assert discover(tmp_path) == [
        DiscoveredModel(
            str(big), "gemma3", 4, 64, 3, "safetensors", 30, where, (), "4-bit", 2002.0, ""
        ),
        DiscoveredModel(
            str(file), "llama", 4, 256, 1, "gguf", size, where, (), "Q4_K_M", 1000.0, ""
        ),
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


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, ""),
        ({"torch_dtype": "bfloat16"}, "BF16"),
        ({"dtype": "torch.float16"}, "F16"),
        ({"text_config": {"torch_dtype": "float32"}}, "F32"),
        ({"quantization": {"bits": 4, "group_size": 64}}, "4-bit"),
        ({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}, "MXFP4"),
        ({"quantization": {"bits": 4, "group_size": 64, "mode": "affine"}}, "4-bit"),
        ({"quantization_config": {"quant_method": "fp8"}, "torch_dtype": "bfloat16"}, "FP8"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "MXFP4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "GPTQ 4-bit"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "AWQ 4-bit"),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}},
            "NF4",
        ),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
            "INT8",
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
                }
            },
            "FP8",
        ),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "COMPRESSED"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "NVFP4"),
        ({"quantization": {"mode": 5, "bits": []}, "quantization_config": [], "dtype": 3}, ""),
    ],
)
def test_the_name_of_a_quantisation(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    assert discover(model(tmp_path, {"model_type": "t", **config}))[0].quantisation == name


def test_without_a_word_of_it_most_weights_tell(tmp_path: Path) -> None:
    directory = model(tmp_path / "m", {"model_type": "t", "torch_dtype": "float32"}, shards=0)
    tensors(directory / "model.safetensors", {"a": ("BF16", 8), "b": ("F32", 4)})
    assert discover(directory)[0].quantisation == "BF16"
    tensors(directory / "model.safetensors", {"a": ("F8_E4M3", 8), "b": ("F32", 4)})
    assert discover(directory)[0].quantisation == "FP8"
    file = gguf(tmp_path / "m.gguf", None, infos=[("a", 256, 12), ("b", 4, 0)])
    file.write_bytes(file.read_bytes() + bytes(500))
    assert discover(file)[0].quantisation == "Q4_K"


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "F32"), (32, "BF16"), (2, "Q4_0"), (15, "Q4_K_M"), (1024 + 15, "Q4_K_M"), (38, "MXFP4")],
)
def test_the_name_of_a_gguf_file_type(tmp_path: Path, number: int, name: str) -> None:
    assert discover(gguf(tmp_path / "m.gguf", number))[0].quantisation == name


def test_the_tables_are_those_of_the_gguf_package() -> None:
    gguf_package = pytest.importorskip("gguf")
    sizes = gguf_package.GGML_QUANT_SIZES.items()
    assert {int(kind): (kind.name, *size) for kind, size in sizes} == TENSOR_TYPES
    names = {kind: of_gguf({"general.file_type": int(kind)}).name for kind in file_types()}
    for kind, name in names.items():
        said = kind.name.removeprefix("MOSTLY_").removeprefix("ALL_").removesuffix("_MOE")
        assert name == said


def file_types() -> list[Any]:
    from gguf import LlamaFileType

    return [kind for kind in LlamaFileType if kind.name != "GUESSED"]


# --------------------------------------------------------------------------- what is broken


def tensors(path: Path, stored: dict[str, tuple[str, int]], cut: int = 0) -> Path:
    """A safetensors file: of each tensor its type and bytes; the last ``cut`` bytes are missing."""
    end, header = 0, {}
    for name, (dtype, size) in stored.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(end)
    path.write_bytes(data[: len(data) - cut])
    return path


HTML = b"<!DOCTYPE html><html>You are not logged in.</html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "an empty file"),
        (HTML, "an HTML page"),
        (b"\n  <html>", "an HTML page"),
        (b"<?xml version='1.0'?><Error>AccessDenied</Error>", "an XML page"),
        (b'{"error": "Repository not found"}', "JSON text"),
        (POINTER, "a Git LFS pointer"),
    ],
)
def test_what_lies_in_the_place_of_weights(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    directory = model(tmp_path / "m", shards=0)
    (directory / "model.safetensors").write_bytes(content)
    assert [m.problem for m in discover(tmp_path)] == [problem, problem]


@pytest.mark.parametrize("length", [0x7B, 0x3C, 0x20])  # as {, < and a space would be read
def test_the_length_of_a_header_is_not_taken_for_text(tmp_path: Path, length: int) -> None:
    directory = model(tmp_path, shards=0)
    (directory / "model.safetensors").write_bytes(
        length.to_bytes(8, "little") + b"{}".ljust(length)
    )
    assert discover(directory)[0].problem == ""


def test_files_that_were_cut_off(tmp_path: Path) -> None:
    directory = model(tmp_path / "m", shards=0)
    whole = tensors(directory / "model.safetensors", {"a": ("F32", 1_200_000)}).stat().st_size
    assert discover(directory)[0].problem == ""
    os.truncate(directory / "model.safetensors", 300_000)
    assert whole > 1_200_000
    assert discover(directory)[0].problem == "truncated (0.3 of 1.2 MB)"
    (directory / "model.safetensors").write_bytes(bytes([200, 0, 0, 0, 0, 0, 0, 0]) + b"{")
    assert discover(directory)[0].problem == "truncated (9 of 208 B)"

    file = gguf(tmp_path / "m.gguf", infos=[("a", 1000, 0), ("b", 1000, 0)])
    start = -(-file.stat().st_size // 32) * 32
    with file.open("r+b") as opened:
        opened.truncate(start + 2000)
    assert (
        discover(file)[0].problem
        == f"truncated ({(start + 2000) / 1000:.1f} of {(start + 8000) / 1000:.1f} kB)"
    )
    with file.open("r+b") as opened:
        opened.truncate(start + 8000)
    assert discover(file)[0].problem == ""


@pytest.mark.parametrize(
    "header",
    [
        *("[]", "5", "{", '{"a": 5}', '{"a": {}}', '{"a": {"data_offsets": [1]}}', "[" * 50_000),
        '{"a": {"dtype": "F32", "data_offsets": [0, 1e999]}}',
        '{"a": {"dtype": "F32", "data_offsets": [0, 1' + "0" * 400 + "]}}",
        '{"a": {"dtype": "F32", "data_offsets": ["", ""]}}',
        '{"a": {"dtype": "F32", "data_offsets": [0, 1' + "0" * 9000 + "]}}",
        "\udcff",
    ],
)
def test_headers_that_are_none(tmp_path: Path, header: str) -> None:
    directory = model(tmp_path, shards=0)
    data = header.encode(errors="surrogateescape")
    (directory / "model.safetensors").write_bytes(len(data).to_bytes(8, "little") + data)
    assert discover(directory)[0].problem == "broken header"


def test_a_header_of_impossible_length_is_not_read(tmp_path: Path) -> None:
    directory = model(tmp_path, shards=0)
    (directory / "model.safetensors").write_bytes((2**63).to_bytes(8, "little") + b"{}")
    assert discover(directory)[0].problem == "broken header"


def test_a_gguf_header_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes([255]) * 100)
    (tmp_path / "b.gguf").write_bytes(b"GGML" + bytes(100))
    found = [m.problem for m in discover(tmp_path)]
    assert found == ["broken header", "not a GGUF file"]


def test_shards_that_are_missing(tmp_path: Path) -> None:
    numbered = model(tmp_path / "a", shards=3)
    (numbered / "model-00002-of-00003.safetensors").unlink()
    indexed = model(tmp_path / "b", shards=0)
    (indexed / "one.safetensors").write_bytes(NO_TENSORS)
    weights = {"x": "one.safetensors", "y": "two.safetensors"}
    (indexed / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    broken = model(tmp_path / "c")
    (broken / "model.safetensors.index.json").write_text('{"weight_map": [1]}')
    assert [m.problem for m in discover(tmp_path)] == [
        "1 of 3 shards missing",
        "1 of 2 shards missing",
        "broken model.safetensors.index.json",
    ]


def test_files_that_the_index_does_not_name_do_not_count(tmp_path: Path) -> None:
    directory = model(tmp_path, shards=0)
    (directory / "one.safetensors").write_bytes(NO_TENSORS)
    (directory / "consolidated.safetensors").write_bytes(POINTER)
    index = {"weight_map": {"x": "one.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert discover(directory)[0].problem == ""


@pytest.mark.parametrize("text", ["{ not json", "[]", ""])
def test_a_broken_config(tmp_path: Path, text: str) -> None:
    directory = model(tmp_path)
    (directory / "config.json").write_text(text)
    assert discover(directory)[0].problem == "broken config.json"


@pytest.mark.parametrize(
    "ending", [".part", ".partial", ".crdownload", ".incomplete", ".downloadInProgress"]
)
def test_downloads_that_are_not_complete(tmp_path: Path, ending: str) -> None:
    gguf(tmp_path / "m.gguf").rename(tmp_path / f"m.gguf{ending}")
    directory = model(tmp_path / "m")
    (directory / "model-00001-of-00001.safetensors").rename(
        directory / f"model-00001-of-00001.safetensors{ending}"
    )
    assert [(m.path, m.problem) for m in discover(tmp_path)] == [
        (str(directory), "incomplete download"),
        (str(tmp_path / f"m.gguf{ending}"), "incomplete download"),
    ]
    assert discover(tmp_path / f"m.gguf{ending}")[0].problem == "incomplete download"


def test_a_file_that_aria2_is_not_done_with(tmp_path: Path) -> None:
    file = gguf(tmp_path / "m.gguf")
    (tmp_path / "m.gguf.aria2").write_bytes(b"")
    found = discover(tmp_path)
    assert [(m.path, m.problem) for m in found] == [(str(file), "incomplete download")]


def test_names_alone_need_no_look_into_files(tmp_path: Path) -> None:
    directory = model(tmp_path / "m")
    (directory / "model-00001-of-00001.safetensors").write_bytes(POINTER)
    found = discover(tmp_path, examine=False)
    assert [(m.path, m.problem) for m in found] == [(str(directory), "")]


def test_what_is_no_language_model(tmp_path: Path) -> None:
    gguf(tmp_path / "mmproj-f16.gguf")
    gguf(tmp_path / "vision.gguf", architecture="clip")
    gguf(tmp_path / "lora.gguf", kind="adapter")
    gguf(tmp_path / "._model.gguf")
    model(tmp_path / ".unfinished")
    assert discover(tmp_path) == []


def test_a_broken_gguf_is_listed_without_its_type(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"version https://git-lfs")
    assert [(m.model_type, m.size_bytes, m.problem) for m in discover(tmp_path)] == [
        ("", 23, "a Git LFS pointer")
    ]


def test_a_split_gguf_is_one_model(tmp_path: Path) -> None:
    shards = [gguf(tmp_path / f"m-{i:05}-of-00003.gguf") for i in (2, 1, 3)]
    gguf(tmp_path / "half-00001-of-00002.gguf")
    half, found = discover(tmp_path)
    assert (found.path, found.problem) == (str(shards[1]), "")
    assert found.num_files == 3
    assert found.size_bytes == sum(shard.stat().st_size for shard in shards)
    assert (half.num_files, half.problem) == (1, "1 of 2 shards missing")


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


# ------------------------------------------------------------------- what is beside the weights

BESIDE = (
    *("adapters.safetensors", "0000100_adapters.safetensors", "adapter_model.safetensors"),
    *("optimizer.safetensors", "checkpoint-0000100.safetensors", "consolidated.safetensors"),
    *("consolidated-00001-of-00002.safetensors", "model.fp16.safetensors", "strange.safetensors"),
    "vision_tower.safetensors",
)


@pytest.mark.parametrize("shards", [0, 1, 3])
@pytest.mark.parametrize("indexed", [False, True])
def test_what_lies_beside_the_weights_is_not_counted(
    tmp_path: Path, shards: int, indexed: bool
) -> None:
    directory = model(tmp_path, shards=shards)
    if not shards:
        (directory / "model.safetensors").write_bytes(NO_TENSORS)
    own = sorted(directory.glob("*.safetensors"))
    if indexed:
        index = {"weight_map": {file.name: file.name for file in own}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in BESIDE:
        (directory / name).write_bytes(POINTER)
    (directory / "optimizer.safetensors.part").write_bytes(b"")
    for examine in (True, False):
        (found,) = discover(directory, examine=examine)
        assert (found.num_files, found.size_bytes) == (len(own), 10 * len(own))
        assert found.problem == ""


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (
            ["consolidated.safetensors"],
            "no weights of a model, only consolidated.safetensors (Mistral's own format",
        ),
        (
            ["adapter_model.safetensors"],
            "no weights of a model, only adapter_model.safetensors (an adapter in PEFT's",
        ),
        (["mine.safetensors"], "no weights of a model, only mine.safetensors (neither in"),
        (
            ["model-00001-of-00001.safetensors", "model-00001-of-00002.safetensors"],
            "two sets of weights, of 1 and 2 shards",
        ),
        (["model.fp16.safetensors"], ""),  # alone, as mlx-lm reads it
        (["weights.00.safetensors", "weights.01.safetensors"], ""),
        (["model-00001-of-00001.safetensors", "model.fp16-00001-of-00002.safetensors"], ""),
    ],
)
def test_directories_without_one_set_of_weights(
    tmp_path: Path, names: list[str], problem: str
) -> None:
    directory = model(tmp_path, shards=0)
    for name in names:
        (directory / name).write_bytes(NO_TENSORS)
    (found,) = discover(directory)
    assert found.problem.startswith(problem)
    assert bool(found.problem) == bool(problem)


def test_an_index_and_another_whole_model_are_two(tmp_path: Path) -> None:
    directory = model(tmp_path, shards=2)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert discover(directory)[0].num_files == 1
    (directory / "model.safetensors").write_bytes(NO_TENSORS)
    problem = "two sets of weights, model.safetensors and the files of model.safetensors.index.json"
    assert discover(directory)[0].problem == problem
