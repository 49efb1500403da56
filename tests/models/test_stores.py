"""The places where people keep models, each rebuilt in a temporary home."""

from __future__ import annotations

import json
import os
import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import ModelNotFoundError
from core.models.locating import locate
from core.models.stores import core_models_dir, discover_in, discover_stores, model_at

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
    (directory / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
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
        text = "{}" if blob == "aa" else "\2\0\0\0\0\0\0\0{}"
        (repository / "blobs" / blob).write_text(text)
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


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("blob", "incomplete download"),
        ("incomplete", "incomplete download"),
        ("weights", "incomplete download"),
        ("shard", "1 of 2 shards missing"),
        ("retried", ""),
    ],
)
def test_an_incomplete_snapshot_is_called_so(home: Path, damage: str, problem: str) -> None:
    repository = snapshot(hub(home)).parents[1]
    directory = repository / "snapshots" / COMMIT
    if damage == "blob":
        (directory / "tokenizer.json").symlink_to("../../blobs/not-here-yet")
    elif damage == "incomplete":
        (repository / "blobs" / "cc.incomplete").write_bytes(b"")
    elif damage == "weights":
        (directory / "model.safetensors").unlink()
        (repository / "blobs" / "cc.incomplete").write_bytes(b"12345")
    elif damage == "shard":
        (directory / "model.safetensors").rename(directory / "model-00001-of-00002.safetensors")
    else:
        (repository / "blobs" / "bb.incomplete").write_bytes(b"")
    (only,) = discover_stores()
    assert (only.name, only.path, only.problem) == ("org/name", str(directory), problem)
    assert only.size_bytes == (5 if damage == "weights" else 10)
    for place in (directory, repository):
        assert model_at(place) == replace(only, names=model_at(directory).names)  # type: ignore[union-attr]


def test_a_ref_to_a_snapshot_that_is_not_there(home: Path) -> None:
    repository = snapshot(hub(home)).parents[1]
    (repository / "refs" / "main").write_text("e" * 40)
    assert found() == []
    (repository / "blobs" / "cc.incomplete").write_bytes(b"")
    (only,) = discover_stores()
    assert (only.path, only.problem) == (str(repository), "incomplete download")


def test_a_gguf_file_is_whole_beside_another_that_is_not(home: Path) -> None:
    directory = snapshot(hub(home))
    for name in ("config.json", "model.safetensors"):
        (directory / name).unlink()
    whole = gguf(directory / "q4.gguf")
    (directory.parents[1] / "blobs" / "cc.incomplete").write_bytes(b"")
    problems = {model.path: model.problem for model in discover_stores()}
    assert problems == {str(whole): "", str(directory): "incomplete download"}
    assert locate("org/name") == locate("org/name/q4.gguf") == str(whole)


def test_a_name_is_not_taken_from_a_download_that_is_not_complete(home: Path) -> None:
    repository = snapshot(hub(home)).parents[1]
    (repository / "blobs" / "cc.incomplete").write_bytes(b"")
    snapshot(hub(home), "models--org--name-large")
    assert locate("org/name") == str(repository / "snapshots" / COMMIT)


# --------------------------------------------------------------------------- a store by its path


def test_a_store_is_searched_in_its_own_depth(home: Path) -> None:
    directory = snapshot(hub(home))
    studio = gguf(home / ".lmstudio" / "models" / "publisher" / "model" / "m.gguf")
    blob = gguf(ollama(home / ".ollama" / "models", "llama3"))
    wanted = {
        **dict.fromkeys((hub(home), hub(home).parent, directory.parents[1]), directory),
        **dict.fromkeys((home / ".lmstudio", home / ".lmstudio" / "models"), studio),
        **dict.fromkeys((home / ".ollama", home / ".ollama" / "models"), blob),
    }
    assert {place: [m.path for m in discover_in(place)] for place in wanted} == {
        place: [str(path)] for place, path in wanted.items()
    }
    names = [
        m.name
        for place in (hub(home), studio.parents[2], blob.parents[1])
        for m in discover_in(place)
    ]
    assert names == ["org/name", "publisher/model/m.gguf", "llama3:latest"]


def test_what_lies_beside_a_store_is_found_too(home: Path) -> None:
    directory = snapshot(home / "mixed")
    mine = model(home / "mixed" / "mine")
    deep = model(home / "mixed" / "a" / "deep")
    assert [m.path for m in discover_in(home / "mixed")] == [str(mine), str(directory)]
    assert [m.path for m in discover_in(home / "mixed", 9)] == [*map(str, (deep, mine, directory))]


def test_what_is_no_store_cannot_be_listed(home: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        discover_in(home / "nothing")


# --------------------------------------------------------------------------- the others


@pytest.mark.parametrize("root", [".lmstudio/models", ".cache/lm-studio/models"])
def test_lm_studio(home: Path, root: str) -> None:
    mlx = model(home / root / "publisher" / "mlx-model")
    file = gguf(home / root / "publisher" / "model" / "m.gguf")
    assert found() == [("lm-studio", str(mlx)), ("lm-studio", str(file))]


@pytest.mark.parametrize("base", [".lmstudio", ".cache/lm-studio", "disk/home"])
def test_lm_studio_that_was_moved(home: Path, base: str) -> None:
    file = gguf(home / "disk" / "models" / "publisher" / "model" / "m.gguf")
    other = gguf(home / base / "models" / "publisher" / "other" / "o.gguf")
    settings = {"downloadsFolder": str(home / "disk" / "models"), "language": "en"}
    (home / base / "settings.json").write_text(json.dumps(settings))
    if base == "disk/home":
        assert found() == []
        (home / ".lmstudio-home-pointer").write_text(f"{home / base}\n")
    assert found() == [("lm-studio", str(other)), ("lm-studio", str(file))]
    assert locate("publisher/model") == str(file)
    assert [m.name for m in discover_in(home / "disk" / "models")] == ["publisher/model/m.gguf"]


ODD_FOLDERS = ("a\0b", "~a\0b", "~\ud800", "\ud800/x", "x" * 5000, "~" + "x" * 5000)
SETTINGS = (
    *("", "{", "[]", '{"downloadsFolder": 5}', "{}"),
    *("[" * 100_000, '{"downloadsFolder": ' + "9" * 5_000 + "}", '{"a":' * 99 + "1" + "}" * 99),
    *(json.dumps({"downloadsFolder": folder}) for folder in ODD_FOLDERS),
)


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("pointer", [b"", b"\xff\xfe", b"/nowhere", b"\0", b"~\0a"])
def test_lm_studios_settings_may_be_broken(home: Path, settings: str, pointer: bytes) -> None:
    file = gguf(home / ".lmstudio" / "models" / "publisher" / "model" / "m.gguf")
    (home / ".lmstudio" / "settings.json").write_text(settings)
    (home / ".lmstudio-home-pointer").write_bytes(pointer)
    assert found() == [("lm-studio", str(file))]


def test_both_of_lm_studios_folders_may_be_one(home: Path) -> None:
    file = gguf(home / ".lmstudio" / "models" / "publisher" / "model" / "m.gguf")
    folder = {"downloadsFolder": str(file.parents[2])}
    (home / ".lmstudio" / "settings.json").write_text(json.dumps(folder))
    (home / ".lmstudio-home-pointer").write_text(str(home / ".lmstudio"))
    assert found() == [("lm-studio", str(file))]


def ollama(root: Path, name: str, digest: str = "a" * 64, kind: str = "model") -> Path:
    manifest = root / "manifests" / "registry.ollama.ai" / "library" / name / "latest"
    manifest.parent.mkdir(parents=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'1' * 64}"},
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}"},
    ]
    text = json.dumps({"schemaVersion": 2, "layers": layers}, indent=1).replace("\n", "\r\n")
    manifest.write_text(text, encoding="utf-8-sig")  # as an editor may save it
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
    texts = (
        *("{", '{"layers": 5}', '{"layers": [1, {}]}', "[" * 100_000, "9" * 5_000),
        '{"layers": [{"digest": ' + "[" * 99 + "]" * 99 + "}]}",
        '{"layers": [{"digest": 1e999, "mediaType": {"a": NaN}}]}',
    )
    for number, text in enumerate(texts):
        (names / str(number)).mkdir()
        (names / str(number) / "latest").write_text(text)
    (names / "pipe").mkdir()
    os.mkfifo(names / "pipe" / "latest")
    (root / "manifests" / ".DS_Store").write_text("{}")
    assert [(m.name, m.problem) for m in discover_stores()] == [
        ("gone:latest", "its file is missing")
    ]


def test_what_ollama_pulls_is_incomplete(home: Path) -> None:
    root = home / ".ollama" / "models"
    blob = ollama(root, "llama3")
    part = gguf(root / "blobs" / f"{blob.name}-partial")
    other = gguf(root / "blobs" / f"sha256-{'d' * 64}-partial")
    (root / "blobs" / f"{other.name}-0").write_text("{}")
    assert [(m.name, m.path, m.problem, m.size_bytes) for m in discover_stores()] == [
        ("llama3:latest", str(blob), "incomplete download", part.stat().st_size),
        (other.name, str(other), "incomplete download", part.stat().st_size),
    ]


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
