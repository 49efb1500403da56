"""The loaded model: labels, embeddings, tokens, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import core
from core.extensions import HiddenStates
from core.kit.chat import RenderedPrompt
from core_openvino.encoder import loaded
from core_openvino.encoder.backend import Encoder
from core_openvino.encoder.capabilities import EMBEDDING, PAIRS
from plugins.openvino.tests.encoder.tiny import WORDS, write_model

if TYPE_CHECKING:
    from core_openvino.encoder.model import CrossEncoderModel, EncoderModel

TEXTS = ["a bank", "a match", "rain, and wind", "x", "a longer text about votes", "a bank"]
LABELS = ["economy", "sports", "weather"]
Load = Any


def load(directory: Path, **options: Any) -> EncoderModel:
    """Load on one thread, in float32."""
    own = {"n_threads": 1, "dtype": "float32", **options}
    return cast("EncoderModel", core.load_model(directory, backend="encoder", options=own))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("encoder") / "model")


@pytest.fixture(scope="module")
def model(directory: Path) -> Iterator[EncoderModel]:
    with load(directory) as opened:
        yield opened


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrossEncoderModel]:
    with load(write_model(tmp_path_factory.mktemp("pairs") / "model", "bert-nli")) as opened:
        yield opened


# ----------------------------------------------------------------------------------- labels


def test_scores_are_scaled_cosines(model: EncoderModel) -> None:
    results = model.classify(TEXTS, labels=LABELS)
    texts = vectors(model, TEXTS)
    sentences = vectors(model, [f"This text is about {label}." for label in LABELS])
    expected = np.exp(20 * texts @ sentences.T)
    expected /= expected.sum(1, keepdims=True)
    for result, shares in zip(results, expected, strict=True):
        assert result.probabilities is not None
        assert list(result.probabilities) == LABELS
        assert np.allclose(list(result.probabilities.values()), shares, atol=1e-5)
        assert result.label == LABELS[int(shares.argmax())]
        assert result.margin == pytest.approx(np.sort(shares)[-1] - np.sort(shares)[-2], abs=1e-5)
        assert (result.token, result.logprobs, result.label_mass, result.logits) == (None,) * 4


def test_scores_are_logits_of_pairs(pairs: CrossEncoderModel) -> None:
    text, sentences = "a bank", [f"about {label}" for label in LABELS]
    [result] = pairs.classify([text], labels=LABELS, label_sentence="about {label}")
    tokenizer, head = pairs._loaded.tokenizer, pairs._loaded.config.head
    assert head is not None
    rows = [tokenizer.pair(tokenizer.encode(text), tokenizer.encode(one)) for one in sentences]
    assert [WORDS[id] for id in rows[0].ids][:4] == ["[CLS]", "a", "b", "##a"]
    assert [rows[0].ids.count(3), rows[0].ids[-1]] == [2, 3]
    first = rows[0].ids.index(3) + 1
    assert list(rows[0].segments) == [0] * first + [1] * (len(rows[0].ids) - first)
    scores = pairs._owner.run(lambda: pairs._loaded.session.compute(rows))[:, head.score]
    shares = np.exp(scores) / np.exp(scores).sum()
    assert result.probabilities is not None
    assert np.allclose(list(result.probabilities.values()), shares, atol=1e-5)


@pytest.mark.parametrize("kind", ["model", "pairs"])
def test_neighbours_and_order_change_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    model: EncoderModel = request.getfixturevalue(kind)
    together = probabilities(model, TEXTS)
    alone = np.vstack([probabilities(model, [text]) for text in TEXTS])
    backwards = probabilities(model, TEXTS[::-1])[::-1]
    streamed = [shares(result) for result in model.classify_iter(iter(TEXTS), labels=LABELS)]
    for other in (alone, backwards, streamed):
        assert np.allclose(together, other, atol=1e-5)
    assert np.array_equal(together[0], together[-1])  # equal texts


def test_equal_texts_run_once_and_labels_once_a_call(
    model: EncoderModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    compute = type(model._loaded.session).compute

    def counted(session: Any, rows: list[Any]) -> Any:
        counts.append(len(rows))
        return compute(session, rows)

    monkeypatch.setattr(
        type(model._loaded.session),
        "compute",
        counted,
    )
    model.classify(["ab", "cd", "ab", "ab"] * 5, labels=LABELS)
    assert sum(counts) == 3 + 2
    assert model.metrics.cached_prompt_tokens > 0
    counts.clear()
    assert len(list(model.classify_iter(["ab", "cd"] * 200, labels=LABELS))) == 400
    assert sum(counts) == 3 + 2


def test_errors_are_those_of_rows(model: EncoderModel) -> None:
    results = model.classify(["ab", "", "x " * 100, "\ud800", "cd"], labels=LABELS)
    kinds = [type(result.error) for result in results]
    assert kinds == [
        type(None),
        core.EmptyPromptError,
        core.PromptTooLongError,
        core.RequestError,
        type(None),
    ]
    assert np.allclose(shares(results[0]), probabilities(model, ["ab"])[0], atol=1e-5)
    assert "102 tokens; the context limit is 64" in str(results[2].error)


def test_a_pair_that_is_too_long(pairs: CrossEncoderModel) -> None:
    [fits, long] = pairs.classify(["a", "a" * 50], labels=LABELS)
    assert fits.error is None
    assert isinstance(long.error, core.PromptTooLongError)
    assert "with its longest label sentence" in str(long.error)


@pytest.mark.parametrize(
    ("labels", "message"),
    [(["Ab", "aB"], "have the same tokens"), (["a", "x" * 70], "cannot be read")],
)
@pytest.mark.parametrize("kind", ["model", "pairs"])
def test_labels_that_cannot_be_scored(
    kind: str, labels: list[str], message: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(core.LabelError, match=message):
        request.getfixturevalue(kind).classify(["ab"], labels=labels)


@pytest.mark.parametrize("kind", ["model", "pairs"])
def test_a_call_that_stops(kind: str, request: pytest.FixtureRequest) -> None:
    model: EncoderModel = request.getfixturevalue(kind)
    cancel = threading.Event()
    cancel.set()
    for options, error in (
        ({"cancel": cancel}, core.GenerationCancelled),
        ({"timeout": 1e-9}, core.GenerationTimeout),
    ):
        results = model.classify(["ab", "cd"], labels=LABELS, **options)
        assert [type(result.error) for result in results] == [error] * 2
    assert model.classify(["ab"], labels=LABELS)[0].error is None


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (MemoryError("no memory"), core.OutOfMemoryError),
        (RuntimeError("Exception from src/x.cpp:1:\nbad_alloc"), core.OutOfMemoryError),
        (RuntimeError("Exception from src/x.cpp:1:\nCheck failed"), RuntimeError),
    ],
)
def test_a_failed_pass_is_its_rows_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, expected: type[Exception]
) -> None:
    with load(directory, n_batch=8) as model:
        shares_before = probabilities(model, ["ab", "c" * 20])
        arrays = type(model._loaded.session)._arrays

        def failing(self: Any, rows: Any) -> Any:
            if any(len(row.ids) == 22 for row in rows):
                raise failure
            return arrays(self, rows)

        monkeypatch.setattr(type(model._loaded.session), "_arrays", failing)
        [fine, failed] = model.classify(["ab", "c" * 20], labels=LABELS)
        assert type(failed.error) is expected
        assert np.allclose(shares(fine), shares_before[0], atol=1e-5)
        # A pass of label sentences is of all rows.
        results = model.classify(["ab", "abc"], labels=("c" * 20, "d"), label_sentence="{label}")
        assert [type(result.error) for result in results] == [expected] * 2
        monkeypatch.undo()
        assert np.allclose(probabilities(model, ["ab", "c" * 20]), shares_before, atol=1e-5)


# ------------------------------------------------------------------- embeddings and tokens


def test_the_embedding_is_the_last_layer(model: EncoderModel) -> None:
    [result] = model.hidden_states(["ab cd"])
    assert result.layers == (model.info.num_layers,)
    assert result.states is not None
    assert len(result.states) == model.info.hidden_size == 32
    assert np.linalg.norm(result.states) == pytest.approx(1, abs=1e-6)
    same = model.hidden_states(["ab cd"], layers=(3,))[0]
    assert same.states == result.states
    for layers in ((0,), (1, -1)):
        with pytest.raises(core.UnsupportedOptionError, match="layers"):
            model.hidden_states(["ab"], layers=layers)
    with pytest.raises(core.InvalidOptionError):
        model.hidden_states(["ab"], layers=(4,))


def test_tokens(model: EncoderModel) -> None:
    ids = model.encode("Ab, c [SEP]")
    assert [WORDS[id] for id in ids] == (
        ["[CLS]", "a", "##b", ",", "c", "[UNK]", "s", "##e", "##p", "[UNK]", "[SEP]"]
    )
    marked = RenderedPrompt("ab[SEP]c", "")
    assert [WORDS[id] for id in model.encode(marked)] == (
        ["[CLS]", "a", "##b", "[SEP]", "c", "[SEP]"]
    )
    assert model.decode(model.encode("ab c")) == "ab c"
    with pytest.raises(core.ChatTemplateError):
        model.render_chat([{"role": "user", "content": "ab"}])


def test_truncation_only_when_asked(directory: Path, model: EncoderModel) -> None:
    text = "ab " * 100
    with load(directory, truncate=True) as cut:
        ids = cut.encode(text)
        assert (len(ids), ids[0], ids[-1]) == (64, 2, 3)
        assert ids[1:-1] == model.encode("ab " * 31)[1:-1]
        assert cut.hidden_states([text])[0].error is None
        assert len(cut.encode("ab")) == 4
    with pytest.raises(core.InvalidOptionError, match="truncate"):
        load(directory, truncate="yes")


def test_truncation_of_a_pair_keeps_the_label(tmp_path: Path) -> None:
    with load(write_model(tmp_path / "model", "bert-nli"), truncate=True) as model:
        tokenizer = model._loaded.tokenizer
        label = tokenizer.encode("about ab.")
        pair = tokenizer.pair(tokenizer.encode("c" * 100), label)
        assert len(pair.ids) == len(pair.segments) == 64
        assert pair.ids[-len(label) + 1 :] == label[1:]
        assert model.classify(["c" * 500], labels=LABELS)[0].error is None
        [result] = model.classify(
            ["c" * 9], labels=["x" * 45, "y" * 45], label_sentence="a {label}"
        )
        assert result.error is None
        [result] = model.classify(["c" * 9], labels=["x" * 61, "y" * 61], label_sentence="{label}")
        assert isinstance(result.error, core.PromptTooLongError)


@pytest.mark.parametrize("case", ["bert", "bert-nli"])
def test_truncation_never_cuts_a_label(tmp_path: Path, case: str) -> None:
    with (
        load(write_model(tmp_path / "model", case), truncate=True) as model,
        pytest.raises(core.LabelError, match=r"'xxx.* cannot be read: .* 102 tokens"),
    ):
        model.classify(["c"], labels=["x" * 100, "y"], label_sentence="{label}")


# -------------------------------------------------------------------------- what it declares


def test_it_keeps_the_protocol(model: EncoderModel) -> None:
    [point] = entry_points(group="core.backends", name="encoder")
    assert point.load() is Encoder
    backend = Encoder()
    assert isinstance(backend, core.Backend)
    assert isinstance(backend, core.ModelProbe)
    assert isinstance(backend, core.DeviceReporting)
    assert backend.capabilities == EMBEDDING == model.declared()
    assert isinstance(model, core.HiddenStates)
    assert isinstance(model, core.ClassifyStreaming)
    assert isinstance(model, core.Tokenizing)
    assert isinstance(model, core.Explaining)
    assert not isinstance(model, core.Scoring)
    assert not isinstance(model, core.Submitting)
    assert backend.devices()[0].kind == "cpu"


def test_a_cross_encoder_has_no_embedding(pairs: CrossEncoderModel) -> None:
    assert pairs.declared() == PAIRS
    assert not isinstance(cast("object", pairs), HiddenStates)
    choices = {choice.name: choice.value for choice in pairs.choices()}
    assert choices["score"] == "logit of entailment"


def test_everything_else_is_refused_by_name(model: EncoderModel) -> None:
    for operation in ("generate", "chat", "batch_generate"):
        argument: Any = [{"role": "user", "content": "a"}] if operation == "chat" else ["a"]
        argument = "a" if operation == "generate" else argument
        with pytest.raises(core.UnsupportedOperationError, match=f"does not support {operation}"):
            getattr(model, operation)(argument)
    with pytest.raises(core.UnsupportedOperationError, match="does not support classify"):
        model.classify(["ab"])
    for options in (
        {"label_prefix": ""},
        {"temperature": 0.5},
        {"seed": 1},
        {"return_logits": True},
        {"return_logprobs": True},
    ):
        with pytest.raises(core.UnsupportedOptionError, match=next(iter(options))):
            model.classify(["ab"], labels=LABELS, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gpu_layers": 5}, core.UnsupportedOptionError, "leave gpu_layers at -1 or 0"),
        ({"parallel_slots": 4}, core.UnsupportedOptionError, "parallel_slots"),
        ({"adapter_path": "x"}, core.UnsupportedOptionError, "adapter_path"),
        ({"options": {"device": "GPU"}}, core.UnsupportedOptionError, "'GPU' has not been run"),
        ({"options": {"cache_cells": 9}}, core.InvalidOptionError, "dtype, n_batch, n_threads"),
        ({"options": {"dtype": "float16"}}, core.InvalidOptionError, "'float32', 'bfloat16'"),
        ({"options": {"n_batch": 0}}, core.InvalidOptionError, "n_batch=0"),
    ],
)
def test_load_options_that_are_refused(
    directory: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        core.load_model(directory, backend="encoder", **options)


def test_choices_are_explained(model: EncoderModel) -> None:
    choices = {choice.name: choice for choice in model.choices()}
    assert list(choices) == [
        *("backend", "device", "context_len", "dtype", "n_threads", "n_batch", "truncate"),
        *("score", "pooling", "normalize", "prompt"),
    ]
    assert all(choice.reason for choice in choices.values())
    assert (choices["score"].value, choices["pooling"].value) == ("20 x cosine", "mean")
    info = model.info
    assert (info.architecture, info.num_layers, info.vocab_size) == ("bert", 3, 64)
    assert info.logit_tolerance == loaded.TOLERANCE["float32"]
    assert model.model_type == "bert"
    assert model.metrics.peak_memory_bytes >= 0


def test_a_closed_model(directory: Path) -> None:
    model = load(directory)
    model.close()
    model.close()
    for call in (
        lambda: model.classify(["ab"], labels=LABELS),
        lambda: model.hidden_states(["ab"]),
        lambda: model.encode("ab"),
    ):
        with pytest.raises(core.ModelClosedError):
            call()


def vectors(model: EncoderModel, texts: list[str]) -> Any:
    """Return the embeddings of texts."""
    return np.array([result.raise_for_error().states for result in model.hidden_states(texts)])


def shares(result: core.ClassifyResult) -> list[float]:
    """Return the probabilities of the labels."""
    probabilities = result.raise_for_error().probabilities
    assert probabilities is not None
    return list(probabilities.values())


def probabilities(model: EncoderModel, texts: list[str]) -> Any:
    """Return the probabilities of the labels for each text."""
    return np.array([shares(result) for result in model.classify(texts, labels=LABELS)])
