"""Every key and file of a tokenizer, against what transformers makes of the same directory."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import core
from core_runtime.checkpoint import keys
from core_runtime.tokenizer.files import stop_tokens
from core_runtime.tokenizer.model_tokenizer import Tokenizer
from core_runtime.tokenizer.tokenizer_keys import TOKENIZER_KEYS
from runtime.tests.published.publications import PUBLICATIONS, Publication
from runtime.tests.published.writing import write as published
from runtime.tests.tokenizer_files.cases import CASES, HERE, TEXTS, Case, write
from runtime.tests.tokenizer_files.shapes import Json, of_bytes

RECORDS: dict[str, Any] = json.loads((HERE / "reference.json").read_text(encoding="utf-8"))
MESSAGES = [core.Message("user", "the <s> news")]

READ = [name for name, case in CASES.items() if not case.refused]
REFUSED = [name for name, case in CASES.items() if case.refused]


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return a call for the messages logged from here on; every warning is new."""
    keys.warn_once.cache_clear()
    caplog.set_level(logging.WARNING)
    yield lambda: [record.getMessage() for record in caplog.records]
    keys.warn_once.cache_clear()


def record_of(name: str) -> dict[str, Any]:
    record: dict[str, Any] = RECORDS[CASES[name].like or name]
    return record


def test_every_case_has_a_record() -> None:
    assert set(RECORDS) == {"transformers", *CASES}


@pytest.mark.parametrize("name", READ)
def test_ids_and_texts_are_those_of_transformers(
    name: str, tmp_path: Path, logged: Callable[[], list[str]]
) -> None:
    case, record = CASES[name], record_of(name)
    tokenizer = Tokenizer.from_directory(write(case, tmp_path))
    assert tokenizer.render_chat(MESSAGES) == record["prompt"]
    if not case.by_class:
        assert [tokenizer.encode(text) for text in TEXTS] == record["plain"]
        assert [tokenizer.encode(core.RenderedPrompt(text)) for text in TEXTS] == record["marked"]
        assert [tokenizer.decode(ids) for ids in record["marked"]] == record["decoded"]
    for note, message in zip(case.notes, logged(), strict=True):
        assert note in message


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_gives_something_else_in_transformers(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with pytest.raises(core.ModelError, match=case.refused):
        Tokenizer.from_directory(write(case, tmp_path))
    for file in tmp_path.iterdir():
        file.unlink()
    without = Tokenizer.from_directory(write(Case(made=case.made), tmp_path))
    assert {
        "plain": [without.encode(text) for text in TEXTS],
        "marked": [without.encode(core.RenderedPrompt(text)) for text in TEXTS],
        "decoded": [without.decode(ids) for ids in RECORDS[name]["marked"]],
    } != {key: RECORDS[name][key] for key in ("plain", "marked", "decoded")}


@pytest.mark.parametrize("name", [name for name in READ if CASES[name].like])
def test_what_is_like_another_is_so_in_transformers(name: str) -> None:
    assert (RECORDS[name] == record_of(name)) != CASES[name].unlike


# ------------------------------------------------------------------------------ the table of keys


def test_every_key_of_transformers_is_in_the_table() -> None:
    names = json.loads((HERE / "keys.json").read_text())
    assert len(names) > 40
    assert [name for name in names if name not in TOKENIZER_KEYS] == []


def test_harmless_keys_may_say_anything(tmp_path: Path, logged: Callable[[], list[str]]) -> None:
    harmless = {name: 7 for name, key in TOKENIZER_KEYS.items() if key.verdict == "harmless"}
    own = {**CASES["bytes"].own, **harmless}
    tokenizer = Tokenizer.from_directory(write(Case(own=own), tmp_path))
    assert [tokenizer.encode(text) for text in TEXTS] == RECORDS["bytes"]["plain"]
    assert logged() == []


@pytest.mark.parametrize("publication", PUBLICATIONS, ids=lambda publication: publication.name)
def test_published_files_have_nothing_to_report(
    publication: Publication, tmp_path: Path, logged: Callable[[], list[str]]
) -> None:
    Tokenizer.from_directory(published(publication, tmp_path))
    assert logged() == []


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"added_tokens_decoder": []}, "added_tokens_decoder is"),
        ({"added_tokens_decoder": {"x": "<new>"}}, "'x' is not a token id"),
        ({"added_tokens_decoder": {"1": 5}}, "1 is 5, neither a text nor an added token"),
        ({"added_tokens_decoder": {"1": {"content": "a", "lstrip": 1}}}, "lstrip is 1"),
        ({"extra_special_tokens": 3}, "extra_special_tokens is 3"),
        ({"extra_special_tokens": [3]}, "extra_special_tokens is 3"),
        ({"extra_special_tokens": {"image_token": 3}}, "image_token is 3"),
        ({"mask_token": "a\udc80"}, "mask_token is .*surrogate"),
    ],
)
def test_a_token_of_another_type_is_named(keys: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(core.TokenizerError, match=named):
        Tokenizer.from_directory(write(Case(own=keys), tmp_path))


# ------------------------------------------------------------------------------ tokenizer.json


def ordered(made: Json, *names: str) -> Json:
    """Return the same object with these keys at its end."""
    return {name: made[name] for name in sorted(made, key=lambda name: (name in names, name))}


NEW_RULE = of_bytes(new_rule=True)
ORDERS: dict[str, str] = {
    "as the library writes it": json.dumps(NEW_RULE, separators=(",", ":")),
    "in lines": json.dumps(NEW_RULE, indent=2),
    "sorted": json.dumps(NEW_RULE, sort_keys=True),
    "the model first": json.dumps(dict(reversed(NEW_RULE.items()))),
    "the key last": json.dumps({**NEW_RULE, "model": ordered(NEW_RULE["model"], "new_rule")}),
    "another vocab first": json.dumps(
        {"normalizer": {"type": "NFC", "vocab": 1}}
        | {name: part for name, part in NEW_RULE.items() if name != "normalizer"}
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_unknown_keys_are_reported_wherever_they_stand(
    order: str, tmp_path: Path, logged: Callable[[], list[str]]
) -> None:
    write(CASES["bytes"], tmp_path)
    (tmp_path / "tokenizer.json").write_text(ORDERS[order])
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert [tokenizer.encode(text) for text in TEXTS] == RECORDS["bytes"]["plain"]
    [message] = logged()
    assert "model.new_rule=True" in message


def test_a_number_without_end_is_a_broken_file(tmp_path: Path) -> None:
    write(CASES["bytes"], tmp_path)
    text = json.dumps({**NEW_RULE, "decoder": {**NEW_RULE["decoder"], "twist": "HERE"}})
    (tmp_path / "tokenizer.json").write_text(text.replace('"HERE"', "9" * 5000))
    with pytest.raises(core.TokenizerError, match=r"tokenizer\.json is not a valid tokenizer"):
        Tokenizer.from_directory(tmp_path)


def test_an_unknown_part_is_a_broken_file_or_one_of_a_newer_library(tmp_path: Path) -> None:
    write(Case(made={**NEW_RULE, "postscript": None}), tmp_path)
    with pytest.raises(core.TokenizerError, match=r"newer version of tokenizers .*upgrade"):
        Tokenizer.from_directory(tmp_path)


# ------------------------------------------------------------------------------ special tokens


def test_the_eos_of_an_older_map_ends_a_generation(tmp_path: Path) -> None:
    name = "an older map that says otherwise"
    tokenizer = Tokenizer.from_directory(write(CASES[name], tmp_path))
    assert stop_tokens(tmp_path, tokenizer.library, 300) == {260}
    assert tokenizer.end_id == 260


def test_the_eos_of_a_class_ends_a_generation(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_directory(write(CASES["names of Llama's class"], tmp_path))
    assert stop_tokens(tmp_path, tokenizer.library, 400) == {tokenizer.library.token_to_id("</s>")}


@pytest.mark.parametrize(
    "name",
    ["llama", "llama, normalised tokens", "llama, tokens that another file has not normalised"],
)
def test_special_tokens_are_left_out_of_streams(name: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_directory(write(CASES[name], tmp_path))
    the, end = tokenizer.encode("the"), tokenizer.library.token_to_id("</s>")
    assert end is not None
    stream = tokenizer.detokenizer([])
    assert "".join([*map(stream.add, [*the, end, *the]), stream.finish()]) == " the the"
    assert tokenizer.token_text(end) == "</s>"


@pytest.mark.parametrize(
    ("first", "then"), [("a <s>", " \t the"), ("a ", " <s>"), ("<s>", ""), ("", " <s> b"), ("", "")]
)
def test_white_space_beside_a_token_is_its_own_in_joined_prompts(
    first: str, then: str, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_directory(write(CASES["a token that takes spaces"], tmp_path))
    marked, plain = core.RenderedPrompt(first), core.RenderedPrompt(then)
    assert tokenizer.encode(marked + plain) == tokenizer.encode(core.RenderedPrompt(first + then))
    if "<s>" not in then:
        joined = tokenizer.encode(marked + then)
        assert joined == tokenizer.encode(core.RenderedPrompt(first + then))
        assert tokenizer.encode_continued(marked, [then]) == [joined]


def test_a_message_keeps_its_own_white_space_beside_what_it_spells(tmp_path: Path) -> None:
    own = {**CASES["a token that takes spaces"].own, "chat_template": "{{messages[0].content}}<s>"}
    tokenizer = Tokenizer.from_directory(write(Case(own=own), tmp_path))
    prompt = tokenizer.render_chat([core.Message("user", "a <s> b")])
    assert tokenizer.encode(prompt) == [*tokenizer.encode("a <s> b"), 261]
