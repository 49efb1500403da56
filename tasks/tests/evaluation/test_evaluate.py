"""Items asked of models: prompts, marks, batch sizes, samples."""

from __future__ import annotations

from typing import Any

import pytest

import core
import core_tasks
from core import EvaluationError, InvalidOptionError, UnsupportedOperationError
from core.testing import FakeModel
from core_tasks import Item, Prompting
from core_tasks.evaluation.tally import Tally

SUMS = [Item(f"{n} + 1 =", (f"{n} and one is {n + 1}",)) for n in range(5)]
TREES = [Item(f"{n}: a tree?", ("oak",), ("salmon", "oak", "red granite")) for n in range(3)]


def count(prompt: str) -> str:
    """Right, except for 3."""
    number = int(prompt.split()[1])
    return f" {number}+1 = {number + 1 if number != 3 else 9}, so the answer is {number + 1}"


def test_numbers_are_compared() -> None:
    evaluation = core_tasks.evaluate(FakeModel(count), SUMS, metric="numeric", max_tokens=50)
    assert [item.prediction for item in evaluation.items] == ["1", "2", "3", "4", "5"]
    assert (evaluation.accuracy, evaluation.report["right"]) == (1.0, 5)
    assert evaluation.interval is not None
    assert evaluation.interval[0] == pytest.approx(0.5655, abs=1e-4)  # Wilson, 5 of 5


def test_words_are_compared_as_asked() -> None:
    model, items = FakeModel(" Paris.\nAnd more"), [Item("The capital?", ("paris",))]
    assert core_tasks.evaluate(model, items).accuracy == 0.0
    loose = core_tasks.evaluate(model, items, ignore_case=True, ignore_punctuation=True)
    assert loose.accuracy == 1.0
    assert loose.items[0].samples[0].output == " Paris."  # an answer ends with its line
    taken = core_tasks.evaluate(model, items, extract=r"(\w+)\.", ignore_case=True)
    assert taken.items[0].prediction == "paris"
    assert core_tasks.evaluate(model, items, extract="[0-9]").items[0].prediction is None


def test_the_prompt_has_examples_before_the_item() -> None:
    model = FakeModel(" 3")
    prompting = Prompting(examples=(Item("1 + 1 =", ("2",)), Item("5 + 5 =", ("10",))))
    core_tasks.evaluate(model, [Item("2 + 1 =", ("3",))], prompting=prompting)
    [prompt] = model.calls[-1].prompts
    assert prompt == (
        "Question: 1 + 1 =\nAnswer: 2\n\nQuestion: 5 + 5 =\nAnswer: 10\n\n"
        "Question: 2 + 1 =\nAnswer:"
    )


def test_a_template_takes_any_field() -> None:
    item = Item("Why?", ("x",), ("x", "y"), {"topic": "trees", "n": 3})
    put = Prompting("{topic} {n} {{n}} {question}\n{choices}\n", letters=True)
    assert put.prompt(item) == "trees 3 {n} Why?\nA. x\nB. y\n"
    assert put.endings(item, put.prompt(item)) == ["A", "B"]
    with pytest.raises(EvaluationError, match="The item has no field 'topic'"):
        Prompting("{topic} {question}").prompt(SUMS[0])


@pytest.mark.parametrize(
    ("put", "told"),
    [
        (Prompting("no place"), "uses no field of an item"),
        (Prompting("{question}", letters=True), r"require \{choices\} in the template"),
    ],
)
def test_a_template_without_the_item_is_refused(put: Prompting, told: str) -> None:
    with pytest.raises(EvaluationError, match=told):
        core_tasks.evaluate(FakeModel(), SUMS, prompting=put)


def test_a_chat_has_examples_as_turns() -> None:
    model = FakeModel("2")
    put = Prompting(chat=True, system="Be brief.", examples=(Item("1 + 1 =", ("2",)),))
    evaluation = core_tasks.evaluate(
        model, [Item("1 + 1 =", ("2",)), Item("0 + 2 =", ("2",))], prompting=put
    )
    turns = [(m.role, m.content) for m in put.messages(Item("a", ("b",)))]
    assert turns == [
        *(("system", "Be brief."), ("user", "1 + 1 ="), ("assistant", "2"), ("user", "a")),
    ]
    assert evaluation.report["among_examples"] == 1
    assert evaluation.report["accuracy_of_others"] == 1.0


# ----------------------------------------------------------------------- choices


def test_the_likeliest_choice_is_taken_by_sum_and_by_length(scorer: Any) -> None:
    likely = {" oak": -2.0, " salmon": -5.0, " red granite": -4.0}
    model = scorer(lambda prompt, end: likely[end])
    evaluation = core_tasks.evaluate(model, TREES[:1])
    [item] = evaluation.items
    assert (item.prediction, item.right) == ("oak", True)
    assert item.right_normalised is False  # -4 / 11 is more than -2 / 3
    assert item.logprobs == {"salmon": -5.0, "oak": -2.0, "red granite": -4.0}
    assert sum(item.probabilities.values()) == pytest.approx(1)
    assert item.sureness == max(item.probabilities.values())
    assert evaluation.report["accuracy_normalised"] == 0.0
    shares = item.probabilities
    brier = shares["salmon"] ** 2 + (1 - shares["oak"]) ** 2 + shares["red granite"] ** 2
    assert evaluation.report["brier"] == pytest.approx(brier, abs=1e-9)


def test_letters_are_scored_and_choices_are_told(scorer: Any) -> None:
    model = scorer(lambda prompt, end: -1.0 if end == " B" else -2.0)
    evaluation = core_tasks.evaluate(model, TREES, prompting=Prompting(letters=True))
    assert [item.prediction for item in evaluation.items] == ["oak"] * 3
    assert evaluation.accuracy == 1.0


def test_more_choices_than_letters_are_the_items_own_error(scorer: Any) -> None:
    many = Item("?", ("c3",), tuple(f"c{n}" for n in range(30)))
    model = scorer(lambda prompt, end: -1.0 if end == " B" else -2.0)
    evaluation = core_tasks.evaluate(model, [TREES[0], many], prompting=Prompting(letters=True))
    assert [item.right for item in evaluation.items] == [True, None]
    assert "30 choices, more than the 26 letters" in str(evaluation.items[1].error)
    assert core_tasks.evaluate(model, [many]).report["failed"] == 0


def test_a_model_that_does_not_score_says_so() -> None:
    with pytest.raises(UnsupportedOperationError, match="scoring"):
        core_tasks.evaluate(FakeModel(), TREES)


def test_an_impossible_choice_is_no_error(scorer: Any) -> None:
    model = scorer(lambda prompt, end: float("-inf"))
    [item] = core_tasks.evaluate(model, TREES[:1]).items
    assert [*item.probabilities.values()] == [pytest.approx(1 / 3)] * 3
    assert item.to_dict()["logprobs"] == {"salmon": None, "oak": None, "red granite": None}


# ----------------------------------------------------------------------- batch sizes, samples


def test_each_batch_size_is_asked_and_compared(scorer: Any) -> None:
    def tied(prompt: str, end: str) -> float:
        return -1.0 if end == " oak" or ("1:" in prompt and 3 in model.batches[-1:]) else -2.0

    model = scorer(tied)
    evaluation = core_tasks.evaluate(model, TREES, batch_sizes=(3, 1))
    # A warm-up, one batch of three items with three choices, then three of one.
    assert model.batches == [3, 9, 3, 3, 3]
    assert evaluation.report["batch_sizes"]["1"]["other_answers"] == 1
    assert evaluation.items[1].again == {1: (False, False)}
    assert evaluation.items[0].again == {1: (True, True)}


def test_samples_are_drawn_with_seeds_behind_one_another() -> None:
    model = FakeModel(["1", "2", "2", "9"])
    options = {"num_samples": 4, "temperature": 1.0, "seed": 7, "pass_at": (1, 2)}
    evaluation = core_tasks.evaluate(model, [Item("1 + 1 =", ("2",))], metric="numeric", **options)  # type: ignore[arg-type]
    assert [call.config.seed for call in model.calls] == [7, 8, 9, 10]
    [item] = evaluation.items
    assert (item.prediction, item.right) == ("1", False)
    assert (item.majority, item.majority_right) == ("2", True)
    assert evaluation.report["pass_at"]["1"]["mean"] == 0.5
    assert evaluation.report["pass_at"]["2"]["mean"] == pytest.approx(5 / 6)
    assert evaluation.report["accuracy_of_majority"] == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_samples": 2},
        {"num_samples": 2, "temperature": 1.0, "batch_sizes": (1, 2)},
        {"num_samples": 0},
        {"num_samples": 2, "temperature": 1.0, "pass_at": (3,)},
        {"pass_at": (0,)},
        {"batch_sizes": (-1,)},
        {"metric": "best"},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        core_tasks.evaluate(FakeModel("2"), SUMS, **wrong)


# ----------------------------------------------------------------------- failures


def test_what_is_wrong_with_an_item_is_its_own_error() -> None:
    model = FakeModel("2", errors={"Question: 1 + 1 =\nAnswer:": core.RequestError("odd")})
    items = [*SUMS[:2], Item("?", ("no number",))]
    evaluation = core_tasks.evaluate(model, items, metric="numeric")
    assert [item.right for item in evaluation.items] == [False, None, None]
    assert [str(item.error) for item in evaluation.items[1:]] == [
        "odd",
        "The answer 'no number' has no number.",
    ]
    assert (evaluation.report["failed"], evaluation.report["items"]) == (2, 3)
    mixed = core_tasks.evaluate(model, [SUMS[0], TREES[0]], metric="exact")
    assert mixed.report["failed"] == 0


def test_no_items_are_an_error() -> None:
    with pytest.raises(EvaluationError, match="no items"):
        core_tasks.evaluate(FakeModel(), [])


def test_a_tally_does_not_depend_on_the_order(scorer: Any) -> None:
    model = scorer(lambda prompt, end: -float(len(prompt + end) % 7) - ord(prompt[-9]) / 97)
    records = [item.to_dict() for item in core_tasks.evaluate(model, TREES).items]
    tallies = [Tally(), Tally()]
    for tally, order in zip(tallies, (records, records[::-1]), strict=True):
        for record in order:
            tally.add(record)
    assert tallies[0].to_dict() == tallies[1].to_dict()


def test_notebooks_show_the_figures() -> None:
    evaluation = core_tasks.evaluate(FakeModel(count), SUMS, metric="numeric", max_tokens=50)
    assert "<td>accuracy</td><td>1.0</td>" in evaluation._repr_html_()
    assert evaluation.to_dict()["items"][0]["gold"] == "1"
