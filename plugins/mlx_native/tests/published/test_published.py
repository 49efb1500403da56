"""Directories in the shape of each publisher, against what transformers makes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from unittest.mock import patch

import pytest

import core
from core_mlx_native.model import MlxModel
from core_runtime.checkpoint.families import FAMILIES
from runtime.tests.published.publications import PUBLICATIONS, Publication
from runtime.tests.published.writing import HERE, write

TEXTS: dict[str, str] = json.loads((HERE / "texts.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-4

Record = dict[str, Any]


def record_of(publication: Publication) -> Record:
    path = HERE / "data" / f"{publication.name}.json"
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return record


@pytest.fixture(scope="module", params=PUBLICATIONS, ids=lambda publication: publication.name)
def publication(request: pytest.FixtureRequest) -> Publication:
    one: Publication = request.param
    return one


@pytest.fixture(scope="module")
def record(publication: Publication) -> Record:
    return record_of(publication)


@pytest.fixture(scope="module")
def model(publication: Publication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxModel]:
    directory = write(publication, tmp_path_factory.mktemp("published"))
    with core.load_model(directory, backend="mlx_cpu") as loaded:
        assert isinstance(loaded, MlxModel)
        yield loaded


def test_every_family_is_covered() -> None:
    assert {publication.family for publication in PUBLICATIONS} == set(FAMILIES)
    names = {path.stem for path in (HERE / "data").iterdir()}
    assert names == {publication.name for publication in PUBLICATIONS}
    places = {publication.place for publication in PUBLICATIONS}
    assert len(places) == 3


def test_ids_are_those_of_transformers(model: MlxModel, record: Record) -> None:
    assert set(record["plain"]) == set(TEXTS)
    assert {name: model.encode(text) for name, text in TEXTS.items()} == record["plain"]


def test_special_tokens_are_those_of_transformers(model: MlxModel, record: Record) -> None:
    ids = {name: model.encode(core.RenderedPrompt(text)) for name, text in TEXTS.items()}
    assert ids == record["marked"]


def test_logits_and_greedy_tokens_are_those_of_transformers(
    model: MlxModel, record: Record
) -> None:
    prompts = {**record["plain"], "chat": record["chat"]}
    for name, wanted in record["computed"].items():
        [sequence] = model.generate_tokens([prompts[name]], max_tokens=len(wanted["greedy"]))
        assert [*sequence.ids][len(prompts[name]) :] == wanted["greedy"], name
    texts = {**TEXTS, "chat": core.RenderedPrompt(record["prompt"])}
    for name, wanted in record["computed"].items():
        [result] = model.classify([texts[name]], return_logits=True)
        assert result.logits is not None
        for place, value in wanted["logits"].items():
            assert result.logits[int(place)] == pytest.approx(value, abs=TOLERANCE), name
        total = math.log(math.fsum(map(math.exp, result.logits)))
        assert total == pytest.approx(wanted["logsumexp"], abs=TOLERANCE)


def test_chats_are_those_of_transformers(model: MlxModel, record: Record) -> None:
    messages = [core.Message(**message) for message in record["messages"]]
    with patch("core_runtime.chat.prompts.datetime", wraps=datetime) as clock:
        clock.now.return_value = datetime.fromisoformat(record["now"])
        prompt = model.render_chat(messages)
    assert prompt == record["prompt"]
    assert model.encode(prompt) == record["chat"]
