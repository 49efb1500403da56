"""The places where people keep models, each rebuilt in a temporary home."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest

from core.models.stores import core_models_dir, discover_stores

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GGUF = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
VARIABLES = "HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME OLLAMA_MODELS LLAMA_CACHE"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES.split():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def found() -> list[tuple[str, str]]:
    """Source and path, without a store that the machine itself may have."""
    models = discover_stores()
    return [(m.source, m.path) for m in models if not m.path.startswith("/usr/share/ollama")]


def model(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"x")
    return directory


def gguf(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(GGUF)
    return path


def snapshot(hub: Path, name: str = "models--org--name", commit: str = COMMIT) -> Path:
    """A repository in the Hugging Face cache: links into blobs, and a ref to the commit."""
    repository = hub / name
    directory = repository / "snapshots" / commit
    for part in (directory, repository / "blobs", repository / "refs"):
        part.mkdir(parents=True, exist_ok=True)
    for file, blob in (("config.json", "aa"), ("model.safetensors", "bb")):
        (repository / "blobs" / blob).write_text("{}")
        (directory / file).symlink_to(Path("../../blobs") / blob)
    (repository / "refs" / "main").write_text(commit)
    return directory


def test_an_empty_home_has_no_models() -> None:
    assert found() == []


def test_our_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert core_models_dir() == str(home / ".cache" / "core" / "models")
    assert found() == []
    mine = model(Path(core_models_dir()) / "mine")
    assert found() == [("core", str(mine))]
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "elsewhere"))
    assert core_models_dir() == str(home / "elsewhere" / "core" / "models")
    assert found() == []


# --------------------------------------------------------------------------- Hugging Face


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("", ".cache/huggingface/hub"),
    ],
)
def test_where_the_hugging_face_cache_is(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str
) -> None:
    base = home / "moved" if variable else home
    if variable:
        monkeypatch.setenv(variable, "~/moved")
    directory = snapshot(base / below)
    assert found() == [("huggingface", str(directory))]


def hub(home: Path) -> Path:
    return home / ".cache" / "huggingface" / "hub"


def test_the_snapshot_of_main(home: Path) -> None:
    snapshot(hub(home), commit="f" * 40)
    main = snapshot_again(hub(home))
    assert found() == [("huggingface", str(main))]


def snapshot_again(root: Path) -> Path:
    directory = root / "models--org--name" / "snapshots" / COMMIT
    directory.mkdir()
    for file, blob in (("config.json", "aa"), ("model.safetensors", "bb")):
        (directory / file).symlink_to(Path("../../blobs") / blob)
    (root / "models--org--name" / "refs" / "main").write_text(COMMIT + "\n")
    return directory


def test_a_repository_without_main_and_without_an_organisation(home: Path) -> None:
    directory = snapshot(hub(home), "models--gpt2")
    (hub(home) / "models--gpt2" / "refs" / "main").unlink()
    assert found() == [("huggingface", str(directory))]


def test_a_gguf_repository(home: Path) -> None:
    directory = snapshot(hub(home))
    for file in directory.iterdir():
        file.unlink()
    file = gguf(directory / "Q4_K_M" / "m.gguf")
    assert found() == [("huggingface", str(file))]


def test_what_is_in_the_cache_and_is_no_model(home: Path) -> None:
    snapshot(hub(home), "datasets--org--name")
    directory = snapshot(hub(home))
    (directory.parents[1] / "refs" / "main").write_text("../../elsewhere")
    assert found() == []


@pytest.mark.parametrize("damage", ["blob", "incomplete", "shard", "ref"])
def test_an_incomplete_snapshot_is_skipped(home: Path, damage: str) -> None:
    repository = snapshot(hub(home)).parents[1]
    directory = repository / "snapshots" / COMMIT
    if damage == "blob":
        (directory / "tokenizer.json").symlink_to("../../blobs/not-here-yet")
    elif damage == "incomplete":
        (repository / "blobs" / "cc.incomplete").write_bytes(b"")
    elif damage == "shard":
        (directory / "model.safetensors").rename(directory / "model-00001-of-00002.safetensors")
    else:
        (repository / "refs" / "main").write_text("e" * 40)
    assert found() == []


# --------------------------------------------------------------------------- the others


@pytest.mark.parametrize("root", [".lmstudio/models", ".cache/lm-studio/models"])
def test_lm_studio(home: Path, root: str) -> None:
    mlx = model(home / root / "publisher" / "mlx-model")
    file = gguf(home / root / "publisher" / "model" / "m.gguf")
    assert found() == [("lm-studio", str(mlx)), ("lm-studio", str(file))]


def ollama(root: Path, name: str, digest: str = "a" * 64, kind: str = "model") -> Path:
    manifest = root / "manifests" / "registry.ollama.ai" / "library" / name / "latest"
    manifest.parent.mkdir(parents=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'1' * 64}"},
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}"},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return root / "blobs" / f"sha256-{digest}"


def test_ollama(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = gguf(ollama(home / ".ollama" / "models", "llama3"))
    assert found() == [("ollama", str(blob))]
    moved = gguf(ollama(home / "moved", "llama3", "b" * 64))
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "moved"))
    assert found() == [("ollama", str(moved))]


def test_two_names_for_one_ollama_model(home: Path) -> None:
    root = home / ".ollama" / "models"
    blob = gguf(ollama(root, "llama3"))
    ollama(root, "mine")
    assert found() == [("ollama", str(blob))]


def test_broken_ollama_manifests(home: Path) -> None:
    root = home / ".ollama" / "models"
    gguf(root / "blobs" / f"sha256-{'c' * 64}")
    ollama(root, "gone", "b" * 64)
    ollama(root, "adapter", "c" * 64, "adapter")
    gguf(root / "blobs" / "sha256-x")
    ollama(root, "no digest", "x")
    names = root / "manifests" / "registry.ollama.ai" / "library"
    for name, text in (("a", "{"), ("b", '{"layers": 5}'), ("c", '{"layers": [1, {}]}')):
        (names / name).mkdir()
        (names / name / "latest").write_text(text)
    assert found() == []


@pytest.mark.skipif(sys.platform == "win32", reason="another place there")
def test_llama_cpp(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
    file = gguf(home / cache / "llama.cpp" / "m.gguf")
    assert found() == [("llama.cpp", str(file))]
    moved = gguf(home / "moved" / "m.gguf")
    monkeypatch.setenv("LLAMA_CACHE", str(home / "moved"))
    assert found() == [("llama.cpp", str(moved))]


def test_no_file_is_listed_twice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = gguf(ollama(home / ".ollama" / "models", "llama3"))
    link = home / ".lmstudio" / "models" / "ollama" / "llama3" / "m.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    mine = model(Path(core_models_dir()) / "mine")
    monkeypatch.setenv("LLAMA_CACHE", str(Path(core_models_dir())))
    assert found() == [("core", str(mine)), ("lm-studio", str(link))]


def test_nothing_is_written(home: Path) -> None:
    snapshot(hub(home))
    gguf(ollama(home / ".ollama" / "models", "llama3"))
    before = sorted((path, path.lstat().st_mtime_ns) for path in home.rglob("*"))
    assert len(found()) == 2
    assert sorted((path, path.lstat().st_mtime_ns) for path in home.rglob("*")) == before
