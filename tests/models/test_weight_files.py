"""Which safetensors files of a directory are the model's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import InvalidModelError
from core.models.weight_files import INDEX, STRANGERS, UNKNOWN_FILE, weight_files

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
ORDER = [  # what is read where everything above it is taken away
    ["model.safetensors"],
    SHARDS,
    ["model-a.safetensors", "model_b.safetensors"],
    ["weights.00.safetensors"],
]


def test_the_first_kind_of_names_that_is_there_is_read(tmp_path: Path) -> None:
    left = [*(name for names in ORDER for name in names), "foo.safetensors", "config.json"]
    for names in ORDER:
        chosen = weight_files(str(tmp_path), left)
        beside = {name for name in left if name.endswith(".safetensors")} - set(names)
        if names != ORDER[2]:  # there, all of model* is read
            assert (list(chosen.own), set(chosen.others)) == (names, beside)
        assert (chosen.missing, chosen.problem) == ((), "")
        left = [name for name in left if name not in names]
    assert weight_files(str(tmp_path), left).problem.startswith("no weights of a model, only foo")
    assert weight_files(str(tmp_path), ["config.json"]).problem == "no weights"


def test_shards_are_counted_by_their_names(tmp_path: Path) -> None:
    chosen = weight_files(str(tmp_path), SHARDS[1:])
    assert (chosen.own, chosen.missing) == (tuple(SHARDS), (SHARDS[0],))
    most = weight_files(str(tmp_path), ["model-00001-of-99999.safetensors"])
    assert len(most.missing) < 99_998  # a name alone makes no list of any length


def test_the_index_goes_before_names(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "one.safetensors", "b": "../two.safetensors"}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    chosen = weight_files(str(tmp_path), ["one.safetensors", *SHARDS])
    assert chosen.own == ("../two.safetensors", "one.safetensors")
    assert chosen.missing == ("../two.safetensors",)  # what is elsewhere is never there
    assert chosen.others == dict.fromkeys(SHARDS, UNKNOWN_FILE)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": [1]}'])
def test_a_broken_index_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(InvalidModelError, match="index"):
        weight_files(str(tmp_path), ["model.safetensors"])


@pytest.mark.parametrize("pattern", STRANGERS)
def test_a_known_stranger_is_called_what_it_is(tmp_path: Path, pattern: str) -> None:
    name = pattern.replace("*", "x")
    others = weight_files(str(tmp_path), ["model.safetensors", name]).others
    assert others == {name: STRANGERS[pattern]}
