"""``infer-cli backends``, ``discover`` and ``info``."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Path:
    """A GGUF file with metadata and no tensors."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def number(key: str, value: int) -> bytes:
        return text(key) + struct.pack("<II", 4, value)

    tokens = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3)
    pairs = [
        text("general.architecture") + struct.pack("<I", 8) + text("fakearch"),
        number("general.file_type", 2),
        number("fakearch.context_length", 512),
        number("fakearch.block_count", 4),
        number("fakearch.embedding_length", 32),
        tokens + b"".join(map(text, "abc")),
    ]
    file = tmp_path / "tiny-Q4_0.gguf"
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    file.write_bytes(header + b"".join(pairs) + bytes(64))
    return file


def by_name(text: str) -> dict[str, dict[str, Any]]:
    return {status["name"]: status for status in json.loads(text)}


def test_backends_says_what_each_is_and_why_it_is_not_available(infer_cli: InferCli) -> None:
    result = infer_cli("backends", "--json")
    found = by_name(result.stdout)
    assert result.exit_code == 0
    assert found["fake"]["available"] is True
    assert found["fake"]["reason"] is None
    assert found["fake"]["formats"] == ["gguf", "safetensors"]
    assert "labels" in found["fake"]["capabilities"]
    assert found["fake"]["devices"][0]["detail"] == "WoodBLAS"
    assert (found["fake"]["distribution"], found["fake"]["version"]) == ("core-fake", "0.1")
    assert found["fake_off"]["reason"] == "no abacus on this desk. Buy one."
    assert found["fake_broken"]["available"] is False
    assert "No module named 'core_fake_missing'" in found["fake_broken"]["reason"]


def test_backends_as_lines(infer_cli: InferCli) -> None:
    lines = infer_cli("backends").stdout.splitlines()
    rows = {line.split("\t")[0]: line.split("\t") for line in lines}
    assert rows["NAME"] == ["NAME", "AVAILABLE", "DEVICES", "FORMATS", "VERSION", "NOTE"]
    device = "abacus (cpu, 2.0 GB, WoodBLAS)"
    assert rows["fake"] == ["fake", "yes", device, "gguf, safetensors", "core-fake 0.1", ""]
    assert rows["fake_off"][1::4] == ["no", "no abacus on this desk. Buy one."]
    verbose = infer_cli("backends", "-v").stdout
    assert "CAPABILITIES" in verbose
    assert "classify, device_reporting" in verbose
    assert "speed, prefix_cache" in verbose


def test_discover_lists_models(infer_cli: InferCli, fake_model: Path) -> None:
    os.utime(fake_model / "model.safetensors", (86400 * 365, 86400 * 365))
    result = infer_cli("discover", fake_model.parent)
    header, row = (line.split("\t") for line in result.stdout.splitlines())
    assert header == ["NAME", "SOURCE", "TYPE", "QUANT", "SIZE", "MODIFIED", "BACKEND"]
    backends = "fake, fake_plain"
    assert row == ["model", "directory", "fake", "-", "10 B", "1971-01-01", backends]
    assert result.stderr == "1 model found.\n"
    wide = infer_cli("discover", fake_model.parent, "--paths", HOME=str(fake_model.parent))
    assert [line.split("\t")[-1] for line in wide.stdout.splitlines()] == ["PATH", "~/model"]


@pytest.fixture
def broken(fake_model: Path) -> Path:
    """A folder with a model and four that are none any more."""
    folder = fake_model.parent
    (folder / "page.gguf").write_bytes(b"<html>Sign in</html>")
    (folder / "half.gguf.part").write_bytes(b"GGUF")
    (folder / "config").mkdir()
    (folder / "config" / "config.json").write_text("{ not json")
    (folder / "config" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (folder / "pickled").mkdir()
    (folder / "pickled" / "config.json").write_text('{"model_type": "fake"}')
    (folder / "pickled" / "pytorch_model.bin").write_bytes(b"PK")
    return folder


WORDS = {
    "config": "broken config.json",
    "half.gguf.part": "incomplete download",
    "page.gguf": "an HTML page",
    "pickled": "no safetensors, only pytorch_model.bin",
}


def test_discover_and_info_say_why_nobody_loads_a_model(infer_cli: InferCli, broken: Path) -> None:
    result = infer_cli("discover", broken)
    rows = {line.split("\t")[0]: line.split("\t")[-1] for line in result.stdout.splitlines()[1:]}
    assert rows == {
        "model": "fake, fake_plain",
        **{name: f"none: {words}" for name, words in WORDS.items()},
    }
    assert result.stderr.startswith("5 models found, 4 of them cannot be loaded here")

    for record in json.loads(infer_cli("discover", broken, "--json").stdout):
        info = infer_cli("info", record["path"], "--json")
        facts = json.loads(info.stdout)
        assert info.exit_code == (0 if record["backend"] else 4)
        same = ("backend", "backends", "problem", "quantisation", "modified", "size_bytes")
        assert {key: facts[key] for key in same} == {key: record[key] for key in same}
        assert record["problem"] == WORDS.get(record["name"])
        if record["backend"] is None:
            assert facts["reason"] == record["reason"]
            assert record["path"] in record["reason"]


def test_info_shows_a_reason_of_several_lines_as_lines(infer_cli: InferCli, tmp_path: Path) -> None:
    model = tmp_path / "bert"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    bare = type(infer_cli)(infer_cli.path[:1])  # without the fake's distribution
    done = bare.finish("info", model)
    assert (done.exit_code, "\\n" in done.stdout) == (4, False)
    (reason,) = (line for line in done.stdout.splitlines() if line.startswith("reason:"))
    below = done.stdout.splitlines()[done.stdout.splitlines().index(reason) + 1 :]
    assert below
    assert all(line.startswith(18 * " ") for line in below)
    (row,) = bare.finish("discover", model).stdout.splitlines()[1:]
    assert row.split("\t")[-1].startswith("none: ")
    assert str(model) not in row


def test_info_of_a_backend_that_does_not_load_the_model(infer_cli: InferCli, broken: Path) -> None:
    done = infer_cli("info", broken / "page.gguf", "--backend", "fake")
    assert (done.exit_code, "an HTML page" in done.stdout) == (4, True)
    assert infer_cli("info", broken / "nothing").exit_code == 3


def test_discover_sorts(infer_cli: InferCli, broken: Path) -> None:
    names = ("page.gguf", "half.gguf.part", "pickled/pytorch_model.bin", "config/model.safetensors")
    for seconds, name in enumerate(names):
        os.utime(broken / name, (seconds, seconds))

    def order(*options: str) -> list[str]:
        lines = infer_cli("discover", broken, *options).stdout.splitlines()[1:]
        return [line.split("\t")[0] for line in lines]

    assert order("--sort", "name") == ["config", "half.gguf.part", "model", "page.gguf", "pickled"]
    assert order("--sort", "size") == ["page.gguf", "config", "model", "half.gguf.part", "pickled"]
    assert order("--sort", "modified") == [
        "model",
        "config",
        "pickled",
        "half.gguf.part",
        "page.gguf",
    ]
    assert order("--loadable") == ["model"]


def test_discover_quietly_says_what_a_model_option_takes(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    store = tmp_path / ".cache" / "core" / "models"
    store.mkdir(parents=True)
    fake_model.rename(store / "mine")
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    nowhere = {**home, "HF_HUB_CACHE": str(tmp_path), "OLLAMA_MODELS": str(tmp_path / "none")}
    assert infer_cli("discover", "-q", **nowhere).stdout == "mine\n"
    for options in (("-q", "--paths"), (store, "-q")):
        assert infer_cli("discover", *options, **nowhere).stdout == f"{store / 'mine'}\n"
    assert infer_cli("info", "-m", "mine", **nowhere).exit_code == 0
    assert infer_cli("info", INFER_MODEL="mine", **nowhere).exit_code == 0


def test_info_takes_one_model(infer_cli: InferCli, fake_model: Path) -> None:
    path = str(fake_model)
    assert infer_cli("info", "-m", path).stdout == infer_cli("info", path).stdout
    assert infer_cli("info", path, INFER_MODEL="nothing-like-it").exit_code == 0
    for words in ([], [path, "-m", path]):
        assert infer_cli("info", *words).exit_code == 2


def test_discover_names_models_by_their_way_from_the_directory(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    deep = tmp_path / "org" / "deep" / "er"
    deep.parent.mkdir(parents=True)
    fake_model.rename(deep)
    found = infer_cli("discover", tmp_path, "--depth", "3")
    assert found.stdout.splitlines()[1].split("\t")[0] == "org/deep/er"
    missed = infer_cli("discover", tmp_path)
    assert missed.stderr.startswith(f"0 models found in {tmp_path} and 1 level below it; --depth 3")


def test_discover_json_is_one_array(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    models = json.loads(infer_cli("discover", fake_model.parent, "--json").stdout)
    assert [model["path"] for model in models] == [str(fake_model)]
    assert models[0]["size_bytes"] == 10
    assert fake_model.parent == tmp_path  # one folder too deep for what follows
    shallow = infer_cli("discover", tmp_path, "--depth", "0", "--json")
    assert json.loads(shallow.stdout) == []


def test_discover_survives_names_that_are_not_utf8(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    fake_model.rename(tmp_path / "\udcff\x1b[31m")
    as_json = infer_cli.finish("discover", tmp_path, "--json")
    assert json.loads(as_json.stdout)[0]["path"] == str(tmp_path / "\udcff\x1b[31m")
    lines = infer_cli.finish("discover", tmp_path)
    assert (lines.exit_code, "\x1b" in lines.stdout) == (0, False)
    assert "\\x1b[31m" in lines.stdout


def test_discover_names_a_model_of_the_hugging_face_cache_as_people_do(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    hub = tmp_path / "hub"
    snapshot = hub / "models--org--name" / "snapshots" / "0a1b"
    snapshot.parent.mkdir(parents=True)
    fake_model.rename(snapshot)
    (hub / "models--org--name" / "refs").mkdir()
    (hub / "models--org--name" / "refs" / "main").write_text("0a1b")
    nowhere = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    result = infer_cli("discover", HF_HUB_CACHE=str(hub), **nowhere)
    assert result.stdout.splitlines()[1].split("\t")[0] == "org/name"
    for called in ("org/name", "name", str(hub / "models--org--name")):
        info = infer_cli("info", called, "--json", HF_HUB_CACHE=str(hub), **nowhere)
        assert json.loads(info.stdout)["path"] == str(snapshot)


def test_discover_and_info_show_what_a_name_of_ollamas_stands_for(
    infer_cli: InferCli, tiny_gguf: Path, tmp_path: Path
) -> None:
    root = tmp_path / "ollama"
    (root / "blobs").mkdir(parents=True)
    base, lora, text = (root / "blobs" / f"sha256-{letter * 64}" for letter in "abc")
    tiny_gguf.rename(base)
    for file in (lora, text):
        file.write_text("x")
    for name, layers in {
        "plain": {"model": base},
        "clerk": {"model": base, "system": text, "params": text},
        "tuned": {"model": base, "adapter": lora},
    }.items():
        manifest = root / "manifests" / "registry.ollama.ai" / "library" / name / "latest"
        manifest.parent.mkdir(parents=True)
        content = [
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": blob.name}
            for kind, blob in layers.items()
        ]
        manifest.write_text(json.dumps({"layers": content}))

    here = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "OLLAMA_MODELS": str(root)}
    rows = [line.split("\t")[:2] for line in infer_cli("discover", **here).stdout.splitlines()]
    assert rows[1:] == [
        ["plain:latest", "ollama"],
        ["clerk:latest", "ollama: params, system"],
        ["tuned:latest", "ollama: adapter"],
    ]
    quiet = infer_cli("discover", "--quiet", "--paths", **here).stdout.splitlines()
    assert quiet == [str(base), str(base), "tuned:latest"]

    found = {
        name: json.loads(infer_cli("info", name, "--json", **here).stdout)
        for name in ("plain", "clerk", "tuned", str(base))
    }
    assert {facts["path"] for facts in found.values()} == {str(base)}
    assert found["plain"]["parts"] == found[str(base)]["parts"] == {}
    assert found["tuned"]["parts"] == {"adapter": str(lora)}
    assert list(found["clerk"]["parts"]) == ["params", "system"]
    lines = infer_cli("info", "clerk", **here).stdout
    assert "system:           not applied: pass it as a system message (`ollama show" in lines
    assert "--system clerk:latest` prints it)" in lines
    assert f"adapter:          {lora}\n" in infer_cli("info", "tuned", **here).stdout


def test_info_reads_config_json(infer_cli: InferCli, fake_model: Path) -> None:
    facts = json.loads(infer_cli("info", fake_model, "--json").stdout)
    assert facts["path"] == str(fake_model)
    assert (facts["format"], facts["model_type"]) == ("safetensors", "fake")
    assert (facts["hidden_size"], facts["num_layers"], facts["vocab_size"]) == (8, 2, 100)
    assert facts["context_length"] is None
    assert facts["backend"] == "fake"
    assert "can run on this machine" in facts["reason"]
    assert "loaded" not in facts


def test_info_reads_the_header_of_a_gguf_file(infer_cli: InferCli, tiny_gguf: Path) -> None:
    facts = json.loads(infer_cli("info", tiny_gguf, "--backend", "fake", "--json").stdout)
    assert (facts["format"], facts["model_type"]) == ("gguf", "fakearch")
    assert (facts["context_length"], facts["num_layers"], facts["hidden_size"]) == (512, 4, 32)
    assert (facts["vocab_size"], facts["quant_bits"]) == (3, 4)
    assert facts["backend"] == "fake"
    assert facts["reason"] == "asked for by name"


def test_info_says_how_a_model_is_quantised(
    infer_cli: InferCli, fake_model: Path, tiny_gguf: Path
) -> None:
    def lines(model: Path) -> list[str]:
        return infer_cli("info", model, "--backend", "fake").stdout.splitlines()

    assert "quantisation:     none" in lines(fake_model)
    assert any(line.startswith("quantisation:     Q4_0 (4 bits") for line in lines(tiny_gguf))
    config = fake_model / "config.json"
    packed = {**json.loads(config.read_text()), "quantization": {"bits": 8, "group_size": 32}}
    config.write_text(json.dumps(packed))
    assert "quantisation:     8-bit (8 bits, in groups of 32)" in lines(fake_model)


def test_info_says_why_earlier_backends_were_skipped(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    earlier = tmp_path / "earlier" / "zero-1.dist-info"
    earlier.mkdir(parents=True)
    (earlier / "METADATA").write_text("Metadata-Version: 2.1\nName: zero\nVersion: 1\n")
    (earlier / "entry_points.txt").write_text("[core.backends]\nfacade = core_fake:OFF\n")
    done = infer_cli.beside(earlier.parent).finish("info", fake_model, "--json")
    assert json.loads(done.stdout)["skipped"]["facade"] == "no abacus on this desk. Buy one."
    lines = infer_cli.beside(earlier.parent).finish("info", fake_model).stdout
    assert "not facade:       no abacus on this desk. Buy one." in lines


def test_info_load_adds_what_the_model_says(infer_cli: InferCli, fake_model: Path) -> None:
    facts = json.loads(infer_cli("info", fake_model, "--load", "--json").stdout)
    assert facts["loaded"]["info"]["context_length"] == 64
    assert [choice["name"] for choice in facts["loaded"]["choices"]] == ["backend", "device"]
    lines = infer_cli("info", fake_model, "--load").stdout
    assert "device:           abacus (it was on the desk)" in lines


def test_info_without_any_backend_for_the_model_still_describes_it(
    infer_cli: InferCli, fake_model: Path
) -> None:
    bare = type(infer_cli)(infer_cli.path[:1])  # without the fake's distribution
    done = bare.finish("info", fake_model, "--json")
    facts = json.loads(done.stdout)
    assert (done.exit_code, facts["model_type"], facts["backend"]) == (4, "fake", None)
    assert facts["reason"]
