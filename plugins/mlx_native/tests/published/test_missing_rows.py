"""Tokens without a row of the embedding: an error of their prompt, in every operation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native.model import MlxModel
from runtime.tests.published import vocabularies
from runtime.tests.published.publications import GEMMAS, QWENS
from runtime.tests.published.shapes import Added, Vocabulary
from runtime.tests.published.writing import write

GEMMA = GEMMAS[0]  # its <image_soft_token> has no row
IMAGE = "<image_soft_token>"
LABELS = ["science", "sports"]


def with_ticket() -> Vocabulary:
    """Gemma's, and a token after it that plain texts become."""
    gemma = vocabularies.gemma_3()
    last = max(token.id for token in gemma.added)
    return replace(gemma, added=[*gemma.added, Added(last + 1, "<ticket>", special=False)])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ticket = replace(GEMMA, vocabulary=with_ticket, padding=-2)
    return write(ticket, tmp_path_factory.mktemp("ticket"))


@pytest.fixture(scope="module")
def model(directory: Path) -> Iterator[MlxModel]:
    with core.load_model(directory, backend="mlx_cpu") as loaded:
        assert isinstance(loaded, MlxModel)
        yield loaded


def ids_of(model: MlxModel) -> tuple[int, int]:
    size = model.info.vocab_size
    assert model.encode(core.RenderedPrompt(IMAGE)) == [size]
    assert model.encode("<ticket>")[1:] == [size + 1]
    return size, size + 1


def test_the_error_names_the_token_its_id_and_the_last_row(model: MlxModel) -> None:
    image, ticket = ids_of(model)
    rows = model.classify(["a <ticket> is", core.RenderedPrompt(f"{IMAGE}a"), "the news is"])
    for row, id, text in ((rows[0], ticket, "<ticket>"), (rows[1], image, IMAGE)):
        assert isinstance(row.error, core.RequestError)
        assert f"token id {id} ('{text}')" in str(row.error)
        assert f"last id is {image - 1}." in str(row.error)
        assert row.token is None
    assert rows[2].error is None
    assert rows[2] == model.classify(["the news is"])[0]


def test_a_plain_text_spells_no_special_token(model: MlxModel) -> None:
    [row] = model.classify([f"a {IMAGE} is"], labels=LABELS)
    assert row.error is None


Call = Callable[[MlxModel, str], Any]
RAISING: dict[str, Call] = {
    "generate": lambda model, text: next(model.generate(text)),
    "submit": lambda model, text: list(model.submit(text)),
    "stream_tokens": lambda model, text: list(model.stream_tokens(model.encode(text))),
    "chat": lambda model, text: list(model.chat([core.Message("user", text)])),
    "inspect_attention": lambda model, text: model.inspect_attention(text),
    "batch_stream": lambda model, text: list(model.batch_stream([text], max_tokens=1)),
}
BY_ROW: dict[str, Call] = {
    "classify": lambda model, text: model.classify([text, "the"]),
    "labels": lambda model, text: model.classify([text, "the"], labels=LABELS),
    "labels_only": lambda model, text: model.classify(
        [text, "the"], labels=LABELS, labels_only=True
    ),
    "classify_iter": lambda model, text: list(model.classify_iter(iter([text, "the"]))),
    "batch_generate": lambda model, text: model.batch_generate([text, "the"], max_tokens=2),
    "generate_tokens": lambda model, text: model.generate_tokens(
        [model.encode(text), model.encode("the")], max_tokens=2
    ),
    "hidden_states": lambda model, text: model.hidden_states([text, "the"]),
    "score, prompt": lambda model, text: model.score([text, "the"], [" news", " news"]),
    "score, continuation": lambda model, text: model.score(["the", "the"], [text, " news"]),
    "score, last token": lambda model, text: model.score(["the", "the"], ["<ticket>", " news"]),
    "score_tokens": lambda model, text: model.score_tokens(
        [[5], [5]], [[6, model.encode(text)[-1]], [6]]
    ),
}


@pytest.mark.parametrize("name", RAISING)
def test_an_operation_on_one_prompt_raises(model: MlxModel, name: str) -> None:
    with pytest.raises(core.RequestError, match="no embedding"):
        RAISING[name](model, "a <ticket>")


@pytest.mark.parametrize("name", BY_ROW)
def test_an_operation_on_many_gives_the_row_its_error(model: MlxModel, name: str) -> None:
    broken, sound = BY_ROW[name](model, "a <ticket>")
    assert isinstance(broken.error, core.RequestError)
    assert "no embedding" in str(broken.error)
    assert sound.error is None


@pytest.mark.parametrize("options", [{}, {"labels_only": True}, {"return_logits": True}])
@pytest.mark.parametrize("label", ["<ticket>", "a<ticket>", "<ticket>a"])
def test_a_label_without_a_row_is_each_rows_error(
    model: MlxModel, label: str, options: dict[str, Any]
) -> None:
    rows = model.classify(["the news is", "the", "a <ticket>"], labels=["sports", label], **options)
    for row in rows[:2]:
        assert isinstance(row.error, core.RequestError)
        assert re.search(rf"label '{label}' has the token id \d+ \('<ticket>'\)", str(row.error))
        assert row.probabilities is None
    assert "The prompt has" in str(rows[2].error)


EXAMPLES = {
    "text": core.TrainingExample(text="a <ticket>"),
    "completion": core.TrainingExample(prompt="a", completion="<ticket>"),
    "messages": core.TrainingExample(
        messages=(core.Message("user", "<ticket>"), core.Message("assistant", "a"))
    ),
    "label": core.TrainingExample(text="a", label="<ticket>"),
}


@pytest.mark.parametrize("form", EXAMPLES)
def test_an_example_without_a_row_is_refused(directory: Path, form: str) -> None:
    labels = ("sports", "<ticket>") if form == "label" else ()
    config = core.TrainConfig(labels=labels)
    with (
        core.load_model(directory, backend="mlx_cpu") as model,
        pytest.raises(core.TrainingError, match=r"Example 1 .*<ticket>.*no embedding"),
    ):
        model.train([EXAMPLES[form]], config)  # type: ignore[attr-defined]


def test_a_text_ends_with_its_end_only_where_that_has_a_row(tmp_path: Path) -> None:
    """As in models whose chat tokens were added and never trained."""
    directory = write(replace(GEMMA, vocabulary=with_ticket, padding=-2), tmp_path)
    file = directory / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token": "<ticket>"}))
    with core.load_model(directory, backend="mlx_cpu") as model:
        assert isinstance(model, MlxModel)
        [row] = model.training_rows([core.TrainingExample(text="the")], core.TrainConfig())
        assert [*row.ids] == model.encode("the")
        assert model.generate("the", max_tokens=2).text()


def test_ends_without_a_row_are_passed_over(tmp_path: Path) -> None:
    directory = write(GEMMA, tmp_path)
    file = directory / "generation_config.json"
    size = json.loads((directory / "config.json").read_text())["vocab_size"]
    file.write_text(json.dumps({"eos_token_id": [1, size]}))
    with core.load_model(directory, backend="mlx_cpu") as model:
        assert isinstance(model, MlxModel)
        assert size not in model._loaded.stop_ids
        assert 1 in model._loaded.stop_ids
    file.write_text(json.dumps({"eos_token_id": size + 1}))  # which the tokenizer lacks, too
    with pytest.raises(core.InvalidModelError, match="eos_token_id"):
        core.load_model(directory, backend="mlx_cpu")


def test_a_stop_token_without_a_row_stops_nothing(model: MlxModel) -> None:
    size, _ = ids_of(model)
    wanted = model.batch_generate(["the news"], max_tokens=4)
    assert model.batch_generate(["the news"], max_tokens=4, stop_tokens=(size,)) == wanted


def test_rows_beyond_the_tokenizer_are_the_models_own(tmp_path: Path) -> None:
    """Qwen pads its embedding: ids there have a row, and no text."""
    directory = write(QWENS[0], tmp_path)
    with core.load_model(directory, backend="mlx_cpu") as model:
        assert isinstance(model, MlxModel)
        last = model.info.vocab_size - 1
        assert model.decode([last]) == ""
        inside, beyond = model.generate_tokens([[5, last], [5, last + 1]], max_tokens=2)
        assert inside.error is None
        assert f"token id {last + 1}, for which" in str(beyond.error)
        [score] = model.score_tokens([[5]], [[last]])
        assert score.error is None
        drawn = model.generate_tokens([[5]] * 8, max_tokens=16, temperature=50.0, seed=1)
        assert any(max(row.ids) > last - QWENS[0].padding for row in drawn)
        assert not any(row.error for row in drawn)


def test_words_of_another_tokenizer_are_noticed(tmp_path: Path) -> None:
    directory = write(replace(GEMMA, padding=-60), tmp_path)
    with pytest.raises(core.InvalidModelError, match="do not belong together"):
        core.load_model(directory, backend="mlx_cpu")


def test_added_tokens_that_the_vocabulary_has_too_may_lack_rows(tmp_path: Path) -> None:
    """Some libraries write them into both."""

    def both() -> Vocabulary:
        gemma = vocabularies.gemma_3()
        return replace(gemma, tokens={**gemma.tokens, IMAGE: gemma.added[-1].id})

    directory = write(replace(GEMMA, vocabulary=both), tmp_path)
    with core.load_model(directory, backend="mlx_cpu") as model:
        assert model.classify(["the news"], labels=LABELS)[0].error is None
