"""From a path to the GGUF file to open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import InvalidModelError, ModelNotFoundError
from core_runtime.gguf_files import find_files

TinyGguf = Callable[..., Path]


def test_a_file_is_itself(tiny_gguf: TinyGguf) -> None:
    path = tiny_gguf()
    files = find_files(path)
    assert files.first == path
    assert files.all == (path,)
    assert files.size == path.stat().st_size


def test_the_name_does_not_count(tiny_gguf: TinyGguf) -> None:
    """Ollama calls its files by their hash."""
    blob = tiny_gguf().rename(tiny_gguf().with_name("sha256-abc"))
    assert find_files(str(blob)).first == blob


def test_a_directory_with_one_model(tiny_gguf: TinyGguf) -> None:
    path = tiny_gguf()
    shutil.copy(path, path.with_name("mmproj-tiny.gguf"))
    (path.parent / "README.md").write_text("")
    assert find_files(path.parent).first == path


def test_a_directory_with_several_lists_them(tiny_gguf: TinyGguf) -> None:
    tiny_gguf("one")
    path = tiny_gguf("two")
    with pytest.raises(InvalidModelError, match=r"(?s)several.*one\.gguf.*two\.gguf"):
        find_files(path.parent)


@pytest.mark.parametrize("names", [[], ["mmproj-model.gguf"], ["notes.txt"]])
def test_a_directory_without_a_model(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ModelNotFoundError, match="not a model directory"):
        find_files(tmp_path)


def test_a_path_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        find_files(tmp_path / "nothing.gguf")


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(InvalidModelError, match="does not start with 'GGUF'"):
        find_files(tmp_path / "model.gguf")


def test_a_safetensors_directory_is_no_model_here(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match=r"expected a \*\.gguf"):
        find_files(tmp_path)


def test_a_split_model_from_its_first_file_or_its_directory(tiny_gguf: TinyGguf) -> None:
    first = tiny_gguf(shards=3)
    files = find_files(first)
    assert first.name == "tiny-00001-of-00003.gguf"
    assert [path.name for path in files.all] == [
        f"tiny-{number:05d}-of-00003.gguf" for number in (1, 2, 3)
    ]
    assert files.size == sum(path.stat().st_size for path in files.all)
    assert find_files(first.parent) == files


def test_a_later_part_names_the_first(tiny_gguf: TinyGguf) -> None:
    first = tiny_gguf(shards=2)
    with pytest.raises(InvalidModelError, match=r"Pass the first.*00001-of-00002"):
        find_files(first.with_name("tiny-00002-of-00002.gguf"))


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize("by_directory", [True, False])
def test_a_missing_part_is_named(tiny_gguf: TinyGguf, missing: int, by_directory: bool) -> None:
    first = tiny_gguf(shards=3)
    gone = first.with_name(f"tiny-{missing:05d}-of-00003.gguf")
    gone.unlink()
    there = first if missing != 1 else first.with_name("tiny-00002-of-00003.gguf")
    with pytest.raises(InvalidModelError, match=f"1 of them are missing .*{gone.name}"):
        find_files(first.parent if by_directory else there)


def test_a_long_list_of_missing_parts_stays_short(tiny_gguf: TinyGguf) -> None:
    path = tiny_gguf().rename(tiny_gguf().with_name("m-00001-of-99999.gguf"))
    with pytest.raises(InvalidModelError, match="99998 of them are missing") as caught:
        find_files(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["m-00001-of-00000.gguf", "m-00000-of-00002.gguf"])
def test_a_name_that_only_looks_split(tiny_gguf: TinyGguf, name: str) -> None:
    path = tiny_gguf().rename(tiny_gguf().with_name(name))
    assert find_files(path).all == (path,)


def test_an_address_is_not_a_path() -> None:
    with pytest.raises(ModelNotFoundError, match=r"Unknown address 'hf://org/name'"):
        find_files("hf://org/name")
