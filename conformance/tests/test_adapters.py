"""Where the suite's adapters come from: the author, the model's directory, or the suite itself."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from core.models.gguf import read_gguf
from core_conformance.checking.adapters import adapters, write
from core_conformance.checking.check import NotTestable
from core_conformance.checking.scratch import settle
from core_conformance.checking.subject import Subject
from core_conformance.reference import Reference, write_model
from core_conformance.running.settings import nearest_table


def subject(path: Path, given: Path | None = None) -> Subject:
    return Subject(Reference(), str(path), adapters=None if given is None else str(given))


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A model directory whose headers are those of a Llama with packed and plain weights."""
    directory = tmp_path / "llama"
    directory.mkdir()
    config = {"hidden_size": 64, "quantization": {"bits": 4, "group_size": 32}}
    (directory / "config.json").write_text(json.dumps(config))
    header = {
        f"model.layers.{layer}.self_attn.{name}.weight": {"dtype": kind, "shape": shape}
        for layer in range(6)
        for name, kind, shape in (
            ("q_proj", "U32", [48, 8]),
            ("v_proj", "F16", [16, 64]),
            ("o_proj", "F16", [64, 48]),
        )
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    return directory


def test_the_author_s_win(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    own = shutil.copytree(model / "adapters", tmp_path / "own")
    (own / "two").rename(own / "two.gguf")
    with adapters(subject(model, own)) as paths:
        assert (paths.one, paths.two) == (str(own / "one"), str(own / "two.gguf"))
    with adapters(subject(model)) as paths:
        assert paths.wrong == str(model / "adapters" / "wrong")


def test_where_none_are_known_nothing_can_be_told(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    shutil.rmtree(model / "adapters")
    with pytest.raises(NotTestable, match="one, two and wrong"), adapters(subject(model)):
        pass


def test_they_are_made_as_mlx_lm_lays_them_out(llama: Path) -> None:
    with adapters(subject(llama)) as paths:
        places = [Path(path) for path in (paths.one, paths.two, paths.wrong)]
        data = [(place / "adapters.safetensors").read_bytes() for place in places]
        config = json.loads((places[0] / "adapter_config.json").read_text())
    settle()  # as at the end of a check
    assert not places[0].exists()
    assert config["num_layers"] == 4  # of the six, the last
    assert config["lora_parameters"]["keys"] == ["self_attn.q_proj", "self_attn.v_proj"]

    headers = []
    for content in data:
        (size,) = struct.unpack_from("<Q", content)
        headers.append(json.loads(content[8 : 8 + size]))
        ends = [entry["data_offsets"][1] for entry in headers[-1].values()]
        assert max(ends) == len(content) - 8 - size
    one, two, wrong = headers
    assert one == two
    assert data[0] != data[1]
    query = "model.layers.5.self_attn.q_proj"
    assert one[f"{query}.lora_a"]["shape"] == [64, 2]  # packed weights count by the config
    assert one[f"{query}.lora_b"]["shape"] == [2, 48]
    assert wrong[f"{query}.lora_a"]["shape"] == [96, 2]
    assert {int(name.split(".")[2]) for name in one} == {2, 3, 4, 5}


def test_they_are_made_as_llama_cpp_does(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    names = [f"blk.{layer}.attn_{kind}.weight" for layer in range(2) for kind in "qvk"]
    write_gguf(model, dict.fromkeys(names, (64, 32)))
    adapter = write(str(model), tmp_path / "one", 1)
    header = read_gguf(adapter, tensors=True)
    assert header.metadata == {
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.architecture": "llama",
        "adapter.lora.alpha": 2.0,
    }
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    assert len(shapes) == 8
    assert shapes["blk.1.attn_v.weight.lora_a"] == (64, 2)
    assert shapes["blk.1.attn_v.weight.lora_b"] == (2, 32)
    assert header.data_offset % 32 == 0
    last = max(tensor.offset for tensor in header.tensors)
    assert adapter.stat().st_size == header.data_offset + last + 4 * 2 * 32

    # A directory with the file alone is the same model.
    folder = tmp_path / "folder"
    folder.mkdir()
    model.rename(folder / "model.gguf")
    assert write(str(folder), tmp_path / "two", 1).read_bytes() == adapter.read_bytes()


def write_gguf(path: Path, shapes: dict[str, tuple[int, int]]) -> None:
    """A header without data, of the architecture Llama."""

    def text(text: str) -> bytes:
        return struct.pack("<Q", len(text)) + text.encode()

    head = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), 1)
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for number, (name, shape) in enumerate(shapes.items()):
        head += text(name) + struct.pack("<I2QIQ", 2, *shape, 0, number * 4 * shape[0] * shape[1])
    size = len(shapes) * 4 * 64 * 32
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(size))


def test_the_setting_is_relative_to_its_file(tmp_path: Path) -> None:
    table = '[tool.core-conformance]\nbackend = "mine"\nmodel = "m"\nadapters = "some/adapters"\n'
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "m").mkdir()
    settings = nearest_table(tmp_path)
    assert settings.adapters == str(tmp_path / "some" / "adapters")
    assert settings.target().adapters == settings.adapters
