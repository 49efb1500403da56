"""`FewShot` on the fake, whose states tell words apart, and on both real models."""

from __future__ import annotations

import json
import math
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import core
import core_learn
from core.testing import FakeModel
from core_learn import FewShot, ForeignHeadError, LearnError, TrainingDataError

ROOT = Path(__file__).resolve().parents[3]
LINES = (ROOT / "examples" / "headlines.jsonl").read_text(encoding="utf-8").splitlines()
ROWS: list[dict[str, str]] = [json.loads(line) for line in LINES]
TEXTS, LABELS = [row["text"] for row in ROWS], [row["label"] for row in ROWS]

WEATHER = [f"rain wind storm {word}" for word in "abcd"]
SPORT = [f"goal match team {word}" for word in "abcd"]
SMALL, SMALL_LABELS = [*WEATHER, *SPORT], ["weather"] * 4 + ["sport"] * 4


class Blind(FakeModel):
    """A model to which all prompts are alike."""

    def hidden_states(self, prompts: Any, *config: Any, **options: Any) -> Any:
        return super().hidden_states(["a b"] * len(prompts), *config, **options)


class LastOnly(FakeModel):
    """A model that shows its last layer alone, as llama.cpp does."""

    def hidden_states(self, prompts: Any, *config: Any, layers: Any = (-1,), **options: Any) -> Any:
        if tuple(layers) not in ((-1,), (1,)):
            raise core.UnsupportedOptionError("layers", "fake")
        return super().hidden_states(prompts, *config, layers=layers, **options)


def _noted(texts: list[str], asked: list[str]) -> Iterator[str]:
    for text in texts:
        asked.append(text)
        yield text


def test_it_learns_and_gives_probabilities() -> None:
    few = FewShot(FakeModel()).fit(SMALL, SMALL_LABELS)
    assert few.head.labels == ("sport", "weather")
    assert few.head.accuracy is not None
    assert few.head.accuracy > 0.8
    asked = ["wind storm rain x", "x team goal match"]
    assert few.predict(asked) == ["weather", "sport"]
    likely = few.predict_proba(asked)
    np.testing.assert_allclose(likely.sum(axis=1), 1.0)
    assert likely[0, 1] > 0.8
    assert few.predict_proba([]).shape == (0, 2)


def test_results_have_each_texts_own_error() -> None:
    few = FewShot(FakeModel(errors={"no": core.RequestError("No.")})).fit(SMALL, SMALL_LABELS)
    first, wrong, last = few.classify(["rain wind", "no", "goal team"])
    assert (first.label, last.label) == ("weather", "sport")
    assert first.probabilities is not None
    assert math.isclose(sum(first.probabilities.values()), 1.0)
    assert first.margin == pytest.approx(abs(2 * first.probabilities["sport"] - 1))
    assert first.confidence == pytest.approx(2 * max(first.probabilities.values()) - 1)
    assert {row.level for row in (first, wrong, last)} == {"head"}
    assert first.labels == (first.label,)
    assert isinstance(wrong.error, core.RequestError)
    assert [type(row.error) for row in few.classify(["no"])] == [core.RequestError]
    with pytest.raises(core.RequestError) as caught:
        few.predict(["rain", "no"])
    assert caught.value.__notes__ == ["This is the error of text 1."]


class Broken(FakeModel):
    """A model whose states of some texts are not numbers."""

    def hidden_states(self, prompts: Any, *config: Any, **options: Any) -> Any:
        found = super().hidden_states(prompts, *config, **options)
        odd = {"nan": math.nan, "inf": -math.inf}
        for prompt, result in zip(prompts, found, strict=True):
            if prompt in odd and result.states is not None:
                result.states[3] = odd[prompt]
        return found


def test_a_text_whose_states_are_not_numbers_has_an_error_and_never_nan() -> None:
    few = FewShot(Broken()).fit(SMALL, SMALL_LABELS)
    first, nan, infinite, last = few.classify(["rain wind", "nan", "inf", "goal team"])
    assert (first.label, last.label) == ("weather", "sport")
    for failed in (nan, infinite):
        assert isinstance(failed.error, core.InvalidModelError)
        assert (failed.label, failed.probabilities) == (None, None)
    with pytest.raises(core.InvalidModelError, match="NaN or infinite"):
        few.fit([*SMALL, "nan"], [*SMALL_LABELS, "sport"])


def test_out_of_fold_a_text_is_judged_by_what_the_others_teach() -> None:
    few = FewShot(FakeModel())
    folds = [n % 4 for n in range(8)]
    found = few.out_of_fold(SMALL, SMALL_LABELS, folds)
    for fold in range(4):
        rest = [n for n in range(8) if folds[n] != fold]
        alone = FewShot(FakeModel()).fit([SMALL[n] for n in rest], [SMALL_LABELS[n] for n in rest])
        own = [n for n in range(8) if folds[n] == fold]
        np.testing.assert_allclose(found[own], alone.predict_proba([SMALL[n] for n in own]))
    turned = few.out_of_fold(SMALL[::-1], SMALL_LABELS[::-1], folds[::-1])
    np.testing.assert_allclose(turned[::-1], found)
    with pytest.raises(LearnError, match="not fitted yet"):
        few.head  # noqa: B018
    with pytest.raises(TrainingDataError, match="all of its texts in one fold"):
        few.out_of_fold(SMALL, SMALL_LABELS, [0] * 4 + [1] * 4)


def test_the_accuracy_is_that_of_heads_that_were_chosen_without_the_text() -> None:
    texts = [*SMALL, "goal rain", "wind team", "storm match"] * 2
    labels = [*SMALL_LABELS, "sport", "weather", "sport"] * 2
    few = FewShot(FakeModel()).fit(texts, labels)
    key = {text: number for number, text in enumerate(sorted(set(texts)))}
    place = {"sport": 0, "weather": 0}
    fold_of: dict[str, int] = {}
    for text in key:  # dealt to five folds, label by label, in the order of the texts
        label = labels[texts.index(text)]
        fold_of[text] = place[label] % 5
        place[label] += 1
    likely = few.out_of_fold(texts, labels, [fold_of[text] for text in texts])
    right = [few.head.labels[n] == y for n, y in zip(likely.argmax(1), labels, strict=True)]
    assert few.head.accuracy == np.mean(right) < max(trial.accuracy for trial in few.trials)


@pytest.mark.parametrize(
    "repeated", [lambda text: text, lambda text: f" {text}\n"], ids=["as-it-is", "spaced"]
)
def test_a_text_that_is_repeated_is_not_judged_by_what_was_learned_of_it(
    repeated: Callable[[str], str],
) -> None:
    """Labels at random, each text three times; a row elsewhere would give each label away."""
    draw = np.random.default_rng(0)
    texts = [f"{draw.bytes(8).hex()}" for _ in range(30)]
    labels = [["a", "b", "c"][n % 3] for n in draw.permutation(30)]
    few = FewShot(FakeModel()).fit([*texts, *map(repeated, texts), *texts], labels * 3)
    assert few.head.accuracy is not None
    assert few.head.accuracy < 0.6
    assert max(trial.accuracy for trial in few.trials) < 0.75
    assert few.head.scale < 100  # the probabilities do not become 1


def test_a_label_whose_rows_have_one_text_leaves_nothing_to_judge_by() -> None:
    texts = [WEATHER[0], *SPORT, WEATHER[0] + " "]
    few = FewShot(FakeModel()).fit(texts, ["weather", *["sport"] * 4, "weather"])
    assert (few.trials, few.head.accuracy) == ([], None)


def test_a_stream_has_the_same_decisions_block_by_block() -> None:
    few = FewShot(FakeModel()).fit(SMALL, SMALL_LABELS)
    texts = [f"rain {n}" if n % 3 else f"goal {n}" for n in range(600)]
    asked: list[str] = []
    stream = few.classify_iter(_noted(texts, asked))
    assert asked == []
    first = next(stream)
    assert len(asked) < 600
    assert [first, *stream] == few.classify(texts)
    with pytest.raises(TypeError, match="Wrap a single one in a list"):
        few.classify_iter("rain")


def test_a_cancelled_call_gives_each_text_its_error() -> None:
    few = FewShot(FakeModel()).fit(SMALL, SMALL_LABELS)
    cancel = threading.Event()
    cancel.set()
    found = few.classify(["rain", "goal"], core.GenerateConfig(cancel=cancel))
    assert [type(row.error) for row in found] == [core.GenerationCancelled] * 2


def test_the_order_of_the_rows_does_not_matter() -> None:
    few = FewShot(FakeModel(), layers=(1,)).fit(SMALL, SMALL_LABELS)
    other = FewShot(FakeModel(), layers=(1,)).fit(SMALL[::-1], SMALL_LABELS[::-1])
    np.testing.assert_allclose(few.head.weights, other.head.weights, atol=1e-9)


def test_one_text_for_each_label_is_enough_to_begin() -> None:
    few = FewShot(FakeModel()).fit([WEATHER[0], SPORT[0]], ["weather", "sport"])
    assert (few.trials, few.head.accuracy) == ([], None)
    assert few.predict(["rain storm", "team match"]) == ["weather", "sport"]


def test_a_blank_text_is_an_error_unless_allowed() -> None:
    model = FakeModel()
    few = FewShot(model).fit(SMALL, SMALL_LABELS)
    texts = [" \n", "rain wind", "", "goal team"]
    for rows in (few.classify(texts), [*few.classify_iter(iter(texts))]):
        assert [row.label for row in rows] == [None, "weather", None, "sport"]
        assert [type(row.error).__name__ for row in rows[::2]] == ["EmptyPromptError"] * 2
    assert few.classify([" \n"], allow_blank=True)[0].label is not None
    assert [row.label for row in few.classify(["", " "])] == [None, None]


def test_a_template_says_where_the_text_goes() -> None:
    model = FakeModel()
    FewShot(model, template="News: {text} {it}").fit(SMALL, SMALL_LABELS)
    assert model.calls[0].prompts[0] == f"News: {SMALL[0]} {{it}}"


def test_a_model_that_shows_its_last_layer_alone_is_asked_for_that() -> None:
    few = FewShot(LastOnly()).fit(SMALL, SMALL_LABELS)
    assert few.head.layer == 1
    with pytest.raises(core.UnsupportedOptionError):
        FewShot(LastOnly(), layers=(0, 1)).fit(SMALL, SMALL_LABELS)


def test_a_saved_head_gives_the_same(tmp_path: Path) -> None:
    few = FewShot(FakeModel(), template="{text} today").fit(SMALL, SMALL_LABELS)
    few.save(tmp_path / "head.safetensors")
    again = FewShot.load(tmp_path / "head.safetensors", FakeModel())
    np.testing.assert_array_equal(again.predict_proba(SMALL), few.predict_proba(SMALL))
    assert again.template == "{text} today"


def test_a_head_of_another_model_is_refused(tmp_path: Path) -> None:
    FewShot(FakeModel()).fit(SMALL, SMALL_LABELS).save(tmp_path / "head")
    with pytest.raises(ForeignHeadError, match="Learn a head on this model"):
        FewShot.load(tmp_path / "head", Blind())


@pytest.mark.parametrize(
    ("texts", "labels", "said"),
    [
        (["a"], ["x"], "At least two distinct labels are required"),
        ([], [], "At least two distinct labels are required"),
        (["a", "b"], ["x", "x"], "At least two distinct labels are required"),
        (["a", "b"], ["x"], "2 texts and 1 labels"),
        (["a", "b"], ["x", math.nan], "text 1 is nan"),
        (["a", "b"], ["x", None], "text 1 is None"),
        (["a a", "a a", "a a", "a a"], ["x", "y", "x", "y"], "same features"),
    ],
    ids=["one row", "none", "one label", "unequal", "NaN", "None", "constant"],
)
def test_rows_of_which_nothing_can_be_learned(texts: Any, labels: Any, said: str) -> None:
    with pytest.raises(TrainingDataError, match=said):
        FewShot(FakeModel(), template="a {text}", layers=(1,)).fit(texts, labels)


def test_a_label_without_a_text_is_named() -> None:
    few = FewShot(FakeModel())
    with pytest.raises(TrainingDataError, match="No text has the label 'art'"):
        few.fit(SMALL, SMALL_LABELS, labels=["sport", "weather", "art"])
    with pytest.raises(TrainingDataError, match=r"missing in labels: \['weather'\]"):
        few.fit(SMALL, SMALL_LABELS, labels=["sport", "art"])
    assert few.fit(SMALL, SMALL_LABELS, ["weather", "sport"]).head.labels == ("weather", "sport")


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(core.UnsupportedOperationError, match="hidden_states"):
        FewShot(object())
    wrong: dict[str, Any]
    for wrong in ({"template": "no place"}, {"kinds": ()}, {"kinds": ("forest",)}):
        with pytest.raises(core.InvalidOptionError):
            FewShot(FakeModel(), **wrong)
    with pytest.raises(LearnError, match="Call fit"):
        FewShot(FakeModel()).predict(["a"])
    with pytest.raises(TypeError, match="Wrap a single one in a list"):
        FewShot(FakeModel()).fit("ab", ["x", "y"])
    with pytest.raises(TypeError, match="Text 1 is not a string, but float"):
        FewShot(FakeModel()).fit(["a", math.nan], ["x", "y"])  # type: ignore[list-item,unused-ignore]
    assert issubclass(core_learn.HeadFileError, core.CoreError)


# ------------------------------------------------------------ real models


class Kept:
    """A model's states of the headlines, computed once for all splits."""

    def __init__(self, model: Any) -> None:
        self.info = model.info
        self._found: dict[str, dict[int, memoryview]] = {}
        last = self.info.num_layers
        layers = sorted({(last + 1) // 2, 2 * last // 3, 5 * last // 6, last})
        for text in (TEXTS, list(core_learn.fewshot.PROBES)):
            for prompt, result in zip(text, model.hidden_states(text, layers=layers), strict=True):
                self._found[prompt] = dict(zip(result.layers, result.vectors, strict=True))

    def hidden_states(self, prompts: Any, *config: Any, layers: Any = (-1,)) -> Any:
        """As `core.HiddenStates` has it."""
        numbers = tuple(layer % (self.info.num_layers + 1) for layer in layers)
        found = []
        for prompt in prompts:
            states = array("f")
            for number in numbers:
                states.extend(self._found[prompt][number])
            found.append(core.HiddenResult(numbers, states))
        return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "wanted"), [("smollm2", 0.97), ("gemma3", 0.99)])
def test_four_texts_a_label_are_enough(
    name: str, wanted: float, request: pytest.FixtureRequest
) -> None:
    """The mean over 20 splits; of each, the rows that are not learned from decide nothing."""
    with core.load_model(request.getfixturevalue(f"{name}_dir"), backend="mlx_cpu") as model:
        kept = Kept(model)
    right = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        of_each = [np.flatnonzero(np.array(LABELS) == label) for label in sorted(set(LABELS))]
        some = np.concatenate([random.permutation(rows)[:4] for rows in of_each])
        rest = np.setdiff1d(np.arange(len(TEXTS)), some)
        few = FewShot(kept).fit([TEXTS[row] for row in some], [LABELS[row] for row in some])
        found = few.predict([TEXTS[row] for row in rest])
        right.append(np.mean([a == LABELS[row] for a, row in zip(found, rest, strict=True)]))
    assert np.mean(right) >= wanted, right


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_a_head_of_mlx_labels_alike_in_llama_cpp_or_is_refused(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with core.load_model(request.getfixturevalue(f"{name}_dir"), backend="mlx_cpu") as model:
        few = FewShot(model, layers=(-1,)).fit(TEXTS[::3], LABELS[::3])
        few.save(tmp_path / "head")
        ours = few.predict(TEXTS)
    with core.load_model(request.getfixturevalue(f"{name}_gguf"), backend="llama_cpp") as other:
        theirs = FewShot.load(tmp_path / "head", other).predict(TEXTS)
    assert np.mean([a == b for a, b in zip(ours, theirs, strict=True)]) >= 0.97
