"""What ``train`` takes and returns: dictionaries, wrong examples, a run that is or is not read."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import core
from core.training import checked_examples
from core_mlx_native.model import MlxModel
from core_mlx_native.train.optimiser import Optimiser
from plugins.mlx_native.tests.train.tasks import config, labelled

Load = Callable[..., MlxModel]
DICTIONARIES: list[dict[str, Any]] = [
    {"text": example.text, "label": example.label} for example in labelled()
]


def test_dictionaries_are_the_examples_with_their_fields(load: Load) -> None:
    one, other = load(), load()
    asked = config(iterations=3)
    losses = [step.loss for step in one.train(labelled(), asked)]
    assert [step.loss for step in other.train(DICTIONARIES, asked)] == losses
    assert [step.loss for step in load().train(iter(DICTIONARIES), asked)] == losses


def test_messages_of_an_example_may_be_dictionaries() -> None:
    turns: list[Any] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    [example] = checked_examples([{"messages": turns}])
    assert example.messages == (core.Message("user", "a"), core.Message("assistant", "b"))
    assert checked_examples([core.TrainingExample(messages=turns)]) == [example]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ("ab", "a list of core.TrainingExample, not a str"),
        ({"text": "ab"}, "not a dict"),
        (7, "not a int"),
        (["ab"], "Example 1: it is a str"),
        ([*DICTIONARIES, ["ab", "no"]], f"Example {len(DICTIONARIES) + 1}: it is a list"),
        ([{"text": "ab", "answer": "no"}], "Example 1: unknown key 'answer'; the keys are prompt"),
        ([{"text": 7}], "Example 1: its text is a int, not a string"),
        ([core.TrainingExample(text=None)], "Example 1: its text is a NoneType"),  # type: ignore[arg-type]
        ([{"text": "ab", "label": 1}], "Example 1: its label is a int"),
        ([{"messages": ["hello"]}], "Example 1: Message 0: This is a str"),
        (
            [{"messages": [{"role": "user"}]}],
            "Example 1: Message 0, content: This field is required",
        ),
    ],
)
def test_wrong_examples_are_named(load: Load, examples: Any, words: str) -> None:
    with pytest.raises(core.TrainingError, match=words):
        load().train(examples, config())
    with pytest.raises(core.TrainingError):
        config(validation=examples)


def test_texts_and_labels_side_by_side_are_told_how(load: Load) -> None:
    with pytest.raises(TypeError, match=r"TrainConfig as its config, not a list.*'label'"):
        load().train(["ab", "cd"], ["no", "yes"])  # type: ignore[arg-type, list-item]


def test_run_takes_all_steps_and_returns_the_last(load: Load) -> None:
    one, other = load(), load()
    last = one.train(labelled(), config(iterations=4)).run()
    steps = [*other.train(labelled(), config(iterations=4))]
    assert last is not None
    assert (last.step, last.loss) == (4, steps[-1].loss)
    [answer], [wanted] = (model.classify(["ab"], return_logits=True) for model in (one, other))
    assert answer.logits == wanted.logits

    run = one.train(labelled(), config(iterations=4))
    next(run)
    assert run.run() is not None
    assert run.run() is None  # nothing is left


def test_a_run_that_is_never_read_says_so(
    load: Load,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = load()
    with caplog.at_level(logging.WARNING, "core"):
        model.train(labelled(), config())
        gc.collect()
        assert [record.message[:60] for record in caplog.records] == [
            "train() was called but none of its steps was read, so nothin"
        ]
        caplog.clear()

        # One that is read in part, or closed, was meant so.
        next(model.train(labelled(), config()))
        model.train(labelled(), config()).close()
        gc.collect()
    assert not caplog.records


def test_a_run_keeps_its_model(load: Load) -> None:
    steps = [step.step for step in load().train(labelled(), config(iterations=2))]
    gc.collect()
    assert steps == [1, 2]
    run = load().train(labelled(), config(iterations=2))
    gc.collect()
    assert next(run).step == 1


def test_adamw_is_that_of_the_paper_by_default() -> None:
    # arXiv 1711.05101, algorithm 2, in numpy: decoupled weight decay, and m_hat and v_hat.
    rate, (beta_1, beta_2), eps, decay = 0.01, (0.9, 0.999), 1e-8, 0.01
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((4, 3)).astype(np.float32)
    optimiser = Optimiser(core.TrainConfig(learning_rate=rate), {"w": mx.array(weight)})
    moved = {"w": mx.array(weight)}
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for step in range(1, 4):
        slope = draw.standard_normal((4, 3)).astype(np.float32)
        first = beta_1 * first + (1 - beta_1) * slope
        second = beta_2 * second + (1 - beta_2) * slope**2
        first_hat, second_hat = first / (1 - beta_1**step), second / (1 - beta_2**step)
        weight -= rate * (first_hat / (np.sqrt(second_hat) + eps) + decay * weight)
        moved, _ = optimiser.moved(moved, {"w": mx.array(slope)}, step)
    np.testing.assert_allclose(np.array(moved["w"]), weight, atol=2e-6)
