"""Which tokens end a generation, for what model directories say and for what is broken in them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models

from core.errors import InvalidModelError
from core_runtime.tokenizer.files import stop_tokens

WORDS = [f"w{index}" for index in range(8)]
MARKS = ["<end_of_turn>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>"]
MARKS += ["<｜end▁of▁sentence｜>"]  # noqa: RUF001 - so it is spelled
VOCAB_SIZE = 20

_AS_NOBODY = """
import os, sys
from pathlib import Path
from tokenizers import Tokenizer, models
from core.errors import ModelAccessError
from core_runtime.tokenizer.files import stop_tokens
path = Path(sys.argv[1])
library = Tokenizer(models.BPE({}, []))
stop_tokens(path.parent, library, 8)
path.chmod(0)
if os.getuid() == 0:
    os.setuid(65534)
try:
    stop_tokens(path.parent, library, 8)
except ModelAccessError as error:
    print(error)
"""


def library(*special: str, plain: tuple[str, ...] = ()) -> Tokenizer:
    """Words 0 to 7, then the special tokens, then those that are plain added tokens."""
    made = Tokenizer(models.BPE({word: index for index, word in enumerate(WORDS)}, []))
    made.add_special_tokens(list(special))
    made.add_tokens([AddedToken(text, special=False) for text in plain])
    return made


def found(directory: Path, made: Tokenizer | None = None, /, **files: Any) -> frozenset[int]:
    """The stop tokens, with files given by their names without .json."""
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return stop_tokens(directory, made or library(), VOCAB_SIZE)


def test_a_directory_that_says_nothing_has_none(tmp_path: Path) -> None:
    assert found(tmp_path) == frozenset()
    nothing = {"eos_token_id": None, "eos_token": None, "text_config": None}
    assert (
        found(tmp_path, config=nothing, generation_config=nothing, tokenizer_config=nothing)
        == frozenset()
    )


def test_every_file_adds_its_own(tmp_path: Path) -> None:
    ids = found(
        tmp_path,
        generation_config={"eos_token_id": [1, 2]},
        config={"eos_token_id": 3},
        tokenizer_config={"eos_token": "w4"},
    )
    assert ids == {1, 2, 3, 4}
    for file in tmp_path.glob("*.json"):  # as an editor may save it
        file.write_text(file.read_text(), encoding="utf-8-sig")
    assert found(tmp_path) == ids


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        ({"eos_token_id": 0}, {0}),
        ({"eos_token_id": []}, set()),
        ({"eos_token_id": VOCAB_SIZE - 1}, {VOCAB_SIZE - 1}),
        ({"text_config": {"eos_token_id": [5, 6]}}, {5, 6}),
        ({"eos_token_id": None, "text_config": {"eos_token_id": 5}}, {5}),
        ({"eos_token_id": 3, "text_config": {"eos_token_id": 5}}, {3}),
        ({"eos_token_id": 3, "text_config": None}, {3}),
        ({"eos_token_id": 0, "text_config": {"eos_token_id": 5}}, {0}),
    ],
)
def test_the_config_may_hold_it_in_its_text_section(
    tmp_path: Path, config: dict[str, Any], ids: set[int]
) -> None:
    assert found(tmp_path, config=config) == ids


def test_the_tokenizer_names_it_as_text_or_as_added_token(tmp_path: Path) -> None:
    assert found(tmp_path, tokenizer_config={"eos_token": "w2"}) == {2}
    added = {"__type": "AddedToken", "content": "w3", "special": True}
    assert found(tmp_path, tokenizer_config={"eos_token": added}) == {3}
    assert found(tmp_path, tokenizer_config={"eos_token": "not in the vocabulary"}) == set()


@pytest.mark.parametrize("mark", MARKS)
def test_end_marks_of_known_families_stop_when_they_are_special(tmp_path: Path, mark: str) -> None:
    assert found(tmp_path, library("<other>", mark)) == {len(WORDS) + 1}
    assert found(tmp_path, library("<other>", plain=(mark,))) == set()


def test_endoftext_stops_also_where_it_is_the_bos(tmp_path: Path) -> None:
    settings = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    made = library("<|endoftext|>", "<|im_end|>")
    assert found(tmp_path, made, tokenizer_config=settings) == {8, 9}


def test_tokens_that_the_model_has_no_row_for_are_left_out(tmp_path: Path) -> None:
    made = library(*(f"<{index}>" for index in range(VOCAB_SIZE)), "<|im_end|>")
    settings = {"eos_token": f"<{VOCAB_SIZE - 1}>"}
    assert found(tmp_path, made, tokenizer_config=settings) == set()


def test_real_models(smollm2_dir: Path, gemma3_dir: Path) -> None:
    smollm2 = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    assert stop_tokens(smollm2_dir, smollm2, 49152) == {0, 2, 4}  # 4: <reponame>
    gemma3 = Tokenizer.from_file(str(gemma3_dir / "tokenizer.json"))
    assert stop_tokens(gemma3_dir, gemma3, 262144) == {1, 106}


# ---------------------------------------------------------------- broken files


@pytest.mark.parametrize("name", ["config", "generation_config"])
@pytest.mark.parametrize("value", ["2", 2.0, True, -1, VOCAB_SIZE, {"id": 2}, [1, None], [[1]]])
def test_what_is_no_token_id_is_an_error_that_names_file_and_key(
    tmp_path: Path, name: str, value: object
) -> None:
    with pytest.raises(InvalidModelError, match=rf"[/\\]{name}\.json: eos_token_id "):
        found(tmp_path, **{name: {"eos_token_id": value}})


@pytest.mark.parametrize(
    "value", [2, True, ["w2"], {}, {"content": None}, {"content": 2}, "\ud800"]
)
def test_what_is_no_token_text_is_an_error_that_names_file_and_key(
    tmp_path: Path, value: object
) -> None:
    with pytest.raises(InvalidModelError, match=r"tokenizer_config\.json: eos_token "):
        found(tmp_path, tokenizer_config={"eos_token": value})


def test_the_error_names_the_section(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"config\.json: text_config: eos_token_id "):
        found(tmp_path, config={"text_config": {"eos_token_id": "x"}})
    with pytest.raises(InvalidModelError, match=r"config\.json: text_config is \[\]"):
        found(tmp_path, config={"text_config": []})


@pytest.mark.parametrize("name", ["config", "generation_config", "tokenizer_config"])
@pytest.mark.parametrize("content", ["{", "[1]", '{"eos_token_id": ' + "9" * 5000 + "}"])
def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / f"{name}.json").write_text(content)
    with pytest.raises(InvalidModelError, match=rf"[/\\]{name}\.json"):
        found(tmp_path)


def test_a_file_that_may_not_be_read_is_no_missing_file() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own is closed to other users
        Path(name).chmod(0o755)
        path = Path(name, "generation_config.json")
        path.write_text("{}")
        command = [sys.executable, "-c", _AS_NOBODY, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "generation_config.json" in done.stdout
    assert "permission" in done.stdout
