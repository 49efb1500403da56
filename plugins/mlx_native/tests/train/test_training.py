"""`MlxModel.train`: what a training does to its model, to its directory, and to other models."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import core
from core.models.fingerprint import fingerprint_of
from core_mlx_native.model import MlxModel
from core_mlx_native.train import optimiser
from plugins.mlx_native.tests.train.tasks import config, labelled

Load = Callable[..., MlxModel]
ROOT = Path(__file__).parents[4]
PROMPTS = ["ax:", "bzz:", "no way", "abc b"]


def logits(model: core.TextModel, prompts: Sequence[str] = PROMPTS) -> np.ndarray[Any, Any]:
    return np.array([found.logits for found in model.classify(prompts, return_logits=True)])


def losses(model: MlxModel, asked: core.TrainConfig) -> list[float]:
    return [step.loss for step in model.train(labelled(), asked)]


def test_a_constructed_task_is_learned(load: Load) -> None:
    model = load()
    reports = [*model.train(labelled(), config(iterations=30))]
    assert [report.step for report in reports] == [*range(1, 31)]
    assert reports[-1].loss < 0.2 < 1 < reports[0].loss
    assert all(report.tokens and report.learned and report.seconds > 0 for report in reports)

    prompts = [f"{example.text}:" for example in labelled()]
    found = model.classify(prompts, labels=("no", "ab"))
    assert [result.label for result in found] == [example.label for example in labelled()]


def test_an_adapter_changes_nothing_before_its_first_step(load: Load) -> None:
    model = load()
    before = logits(model)
    steps = model.train(labelled(), config())
    np.testing.assert_array_equal(logits(model), before)
    next(steps)
    assert np.abs(logits(model) - before).max() > 1e-3


def test_a_trained_model_is_another_until_its_adapter_is_saved(load: Load, tmp_path: Path) -> None:
    """So a calibration of before is refused, and one of the saved adapter taken."""
    model, adapter = load(), str(tmp_path / "adapter")
    told = [fingerprint_of(model)]
    steps = model.train(labelled(), config(iterations=2))
    told.append(fingerprint_of(model))
    told.extend(fingerprint_of(model) for _ in steps)
    assert told[0] == told[1]
    assert len({*told, fingerprint_of(model)}) == 4

    model.save_adapter(adapter)
    assert fingerprint_of(model) == fingerprint_of(load(adapter_path=adapter))


def test_a_saved_adapter_is_loaded_with_equal_logits(load: Load, tmp_path: Path) -> None:
    model = load()
    losses(model, config())
    model.save_adapter(tmp_path / "adapter")
    other = load(adapter_path=str(tmp_path / "adapter"))
    np.testing.assert_allclose(logits(other), logits(model), atol=1e-5)


def test_models_over_the_same_weights_stay_as_they_are(load: Load) -> None:
    model = load()
    before = logits(model)
    beside = model.with_adapter(None)
    losses(model, config())
    behind = model.with_adapter(None)
    for other in (beside, behind):
        np.testing.assert_allclose(logits(other), before, atol=1e-5)
        other.close()


def test_what_was_kept_of_earlier_prompts_is_not_used(load: Load) -> None:
    """A prefix of before would have the keys and values of another model."""
    model, without = load(), load(options={"prefix_cache": 0})
    prompts = ["abc abc abc abc abc no", "abc abc abc abc abc ab"]
    for each in (model, without):
        each.classify(prompts)
        losses(each, config(iterations=5))
    np.testing.assert_allclose(logits(model, prompts), logits(without, prompts), atol=1e-4)


def test_a_training_that_is_left_early_leaves_a_usable_model(load: Load) -> None:
    model = load()
    steps = model.train(labelled(), config())
    next(steps)
    steps.close()
    assert model.generate("ab", max_tokens=3).text()
    assert len(losses(model, config())) == 12


def test_the_same_seed_trains_the_same_adapter(load: Load) -> None:
    asked = config(dropout=0.3, iterations=6)
    first, second, third = (losses(load(), replace(asked, seed=seed)) for seed in (1, 1, 2))
    assert first == second != third


def test_dropout_is_of_the_step_and_not_of_what_ran_before(load: Load) -> None:
    """Measuring between steps, and a random number drawn elsewhere, move nothing."""
    asked, model = config(dropout=0.3, iterations=6), load()
    undisturbed = losses(load(), asked)
    steps = model.train(labelled(), asked)
    disturbed = []
    for step in steps:
        disturbed.append(step.loss)
        mx.random.normal((3,))
        logits(model)
    assert disturbed == undisturbed != losses(load(), replace(asked, dropout=0.0))


def test_accumulated_batches_are_one_large_batch(load: Load) -> None:
    rows = labelled(8)
    large = load()
    one = next(large.train(rows, config(batch_size=16, iterations=1)))
    small = load()
    parts = next(small.train(rows, config(batch_size=4, accumulate=4, iterations=1)))
    assert parts.loss == pytest.approx(one.loss, rel=1e-5)
    assert parts.learned == one.learned == len(rows)
    np.testing.assert_allclose(logits(small), logits(large), atol=1e-3)


def test_validation_stops_early_with_the_best_adapter(load: Load) -> None:
    """The labels of the validation are wrong, so that learning makes it worse."""
    wrong = tuple(
        replace(each, label={"no": "ab", "ab": "no"}[each.label or ""]) for each in labelled(2)
    )
    model = load()
    asked = config(validation=wrong, validate_every=2, patience=2, iterations=40)
    measured = [step.validation_loss for step in model.train(labelled(), asked)]
    found = [loss for loss in measured if loss is not None]
    best = min(range(len(found)), key=found.__getitem__)
    assert len(measured) < 40
    assert len(found) == best + 3

    other = load()
    taken = [*islice(other.train(labelled(), asked), 2 * (best + 1))]
    assert len(taken) == 2 * (best + 1)
    np.testing.assert_array_equal(logits(model), logits(other))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dropout": 0.2, "accumulate": 2},
        {"schedule": "cosine", "warmup": 3, "clip_norm": 1.0},
        {"adapter_dtype": "bfloat16"},
        {"dora": True},
    ],
    ids=["plain", "dropout", "cosine", "bfloat16", "dora"],
)
def test_a_run_goes_on_exactly(load: Load, tmp_path: Path, changes: dict[str, Any]) -> None:
    asked = config(save_every=4, **changes)
    whole = losses(load(), replace(asked, directory=tmp_path / "whole"))
    part = replace(asked, directory=tmp_path / "part")
    first = [step.loss for step in islice(load().train(labelled(), part), 6)]
    model = load()
    rest = [step.loss for step in model.train(labelled(), replace(part, resume=True))]
    assert first == whole[:6]
    assert rest == whole[4:]
    assert (tmp_path / "part" / "losses.svg").read_text().startswith("<svg")


def test_a_killed_run_goes_on_exactly(load: Load, checkpoint: Any, tmp_path: Path) -> None:
    """SIGKILL, in a process of its own, between two checkpoints."""
    asked = config(save_every=4, dropout=0.1)
    whole = losses(load(), asked)
    directory = tmp_path / "run"
    script = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
import core
from core.models.fingerprint import fingerprint_of
from plugins.mlx_native.tests.train.tasks import config, labelled
model = core.load_model({str(checkpoint("gemma3", "again"))!r}, backend="mlx_cpu")
asked = config(save_every=4, dropout=0.1, directory={str(directory)!r})
for step in model.train(labelled(), asked):
    if step.step == 7:
        os.kill(os.getpid(), {signal.SIGKILL})
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    rest = losses(load(), replace(asked, directory=directory, resume=True))
    assert rest == whole[4:]


def test_a_run_that_was_begun_otherwise_does_not_go_on(load: Load, tmp_path: Path) -> None:
    asked = config(directory=tmp_path, save_every=2, iterations=2)
    losses(load(), asked)
    model, again = load(), replace(asked, resume=True, iterations=4)
    with pytest.raises(core.TrainingError, match=r"rank changed from 4 to 2"):
        model.train(labelled(), replace(again, rank=2))
    with pytest.raises(core.TrainingError, match=r"data changed from .* to "):
        model.train(labelled()[1:], again)
    with pytest.raises(core.TrainingError, match=r"already contains a training"):
        model.train(labelled(), asked)
    assert [step.step for step in model.train(labelled(), again)] == [3, 4]


def test_a_newer_checkpoint_is_refused_by_its_number(load: Load, tmp_path: Path) -> None:
    losses(load(), config(directory=tmp_path, iterations=1))
    [path] = tmp_path.glob("checkpoint-*.safetensors")
    whole = path.read_bytes()
    newer = whole.replace(b'\\"format\\": 1', b'\\"format\\": 9')
    assert newer != whole
    path.write_bytes(newer)
    with pytest.raises(core.TrainingError, match=r"in format 9, .* up to 1"):
        load().train(labelled(), config(directory=tmp_path, resume=True))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        core.TrainingError, match=r"is not a checkpoint of a training: it cannot be read"
    ):
        load().train(labelled(), config(directory=tmp_path, resume=True))


def test_two_trainings_in_one_directory_are_refused(load: Load, tmp_path: Path) -> None:
    first = load().train(labelled(), config(directory=tmp_path))
    next(first)
    second = load().train(labelled(), config(directory=tmp_path))
    with pytest.raises(core.TrainingError, match=r"Another running training is writing to"):
        next(second)
    assert next(first).step == 2


def test_a_full_disk_leaves_the_last_good_checkpoint(
    load: Load, checkpoint: Any, tmp_path: Path
) -> None:
    """The system refuses to let files grow, as a full disk does; nothing is taken away."""
    script = f"""
import resource, signal, sys
sys.path.insert(0, {str(ROOT)!r})
import core
from core.models.fingerprint import fingerprint_of
from plugins.mlx_native.tests.train.tasks import config, labelled
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = core.load_model({str(checkpoint("gemma3", "again"))!r}, backend="mlx_cpu")
steps = model.train(labelled(), config(save_every=2, directory={str(tmp_path / "run")!r}))
for step in steps:
    if step.step == 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        break
try:
    for step in steps:
        pass
except core.TrainingError as error:
    print(error.step, error.checkpoint)
    print(model.generate("ab", max_tokens=2).text() != "")
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=300, capture_output=True, text=True
    )
    last = tmp_path / "run" / "checkpoint-0000002.safetensors"
    assert ended.stdout.split() == ["4", str(last), "True"]
    assert [path.name for path in (tmp_path / "run").glob("*.safetensors")] == [last.name]
    assert not [*(tmp_path / "run").glob(".*checkpoint*")]
    rest = losses(load(), config(save_every=2, directory=tmp_path / "run", resume=True))
    assert rest == losses(load(), config())[2:]


def test_a_loss_that_is_no_number_stops_with_step_and_checkpoint(
    load: Load, tmp_path: Path
) -> None:
    model = load()
    asked = config(learning_rate=1e18, save_every=1, directory=tmp_path, clip_norm=0.0)
    with pytest.raises(core.TrainingError, match=r"At step \d+ the loss is (nan|inf)") as failed:
        losses(model, asked)
    assert failed.value.step == 2
    assert failed.value.checkpoint is None, "that of step 1 gives the loss that is none"
    assert not [*tmp_path.glob("checkpoint-*")]
    assert model.generate("ab", max_tokens=2).text(), "the adapter is that of before"
    np.testing.assert_allclose(logits(model), logits(load()), atol=1e-5)


def test_the_last_good_checkpoint_is_told(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that breaks at its fourth step, which the fifth finds out."""
    asked = config(save_every=1, iterations=6, directory=tmp_path)
    good, model = load(), load()
    losses(good, replace(asked, iterations=3, directory=None))

    def breaking(config: core.TrainConfig, step: int) -> float:
        return 1e30 if step == 4 else config.learning_rate

    monkeypatch.setattr(optimiser, "learning_rate", breaking)
    with pytest.raises(core.TrainingError, match=r"At step 5 .* the adapter of step 3") as failed:
        losses(model, asked)
    last = tmp_path / "checkpoint-0000003.safetensors"
    assert failed.value.checkpoint == str(last)
    assert [*tmp_path.glob("checkpoint-*")] == [last]
    np.testing.assert_array_equal(logits(model), logits(good))

    monkeypatch.undo()
    whole = losses(load(), replace(asked, directory=None))
    assert losses(load(), replace(asked, resume=True)) == whole[3:]


def test_another_adapter_than_the_model_has_is_refused(load: Load, tmp_path: Path) -> None:
    model = load()
    losses(model, config(iterations=2))
    with pytest.raises(core.TrainingError, match=r"already has an adapter.*lora_a"):
        model.train(labelled(), config(rank=2))
    more = losses(model, config(iterations=4))
    assert more[0] < losses(load(), config(iterations=1))[0], "it is trained on"


def test_a_loaded_adapter_is_trained_on(load: Load, tmp_path: Path) -> None:
    model = load()
    losses(model, config(iterations=6))
    model.save_adapter(tmp_path)
    other = load(adapter_path=str(tmp_path))
    asked = config(iterations=1, seed=7)
    assert losses(other, asked)[0] == pytest.approx(losses(model, asked)[0], rel=1e-5)


def test_there_has_to_be_an_adapter_to_save(load: Load, tmp_path: Path) -> None:
    with pytest.raises(core.TrainingError, match=r"has no adapter to save"):
        load().save_adapter(tmp_path)


def test_a_resumed_run_has_the_parameters_of_before(load: Load, tmp_path: Path) -> None:
    """What is trained is named and counted: not one more, and not the model itself."""
    losses(load(), config(directory=tmp_path, iterations=1, targets=("q_proj",), num_layers=1))
    [path] = tmp_path.glob("checkpoint-*.safetensors")
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    names = [name for name in header if name.startswith("parameters/")]
    assert names == [
        f"parameters/model.layers.2.self_attn.q_proj.lora_{part}" for part in ("a", "b")
    ]
    assert os.path.getsize(path) < 20_000


@pytest.mark.parametrize("read", [0, 1, 12], ids=["not-begun", "left", "whole"])
def test_a_closed_model_holds_nothing_whoever_keeps_its_training(load: Load, read: int) -> None:
    gc.collect()
    before = mx.get_active_memory()
    model = load()
    steps = model.train(labelled(), config())
    assert len([*islice(steps, read)]) == read
    model.close()
    assert mx.get_active_memory() <= before + 4096


def test_an_error_that_is_kept_keeps_no_network(load: Load) -> None:
    gc.collect()
    before, model = mx.get_active_memory(), load()
    with pytest.raises(core.TrainingError) as failed:
        losses(model, config(learning_rate=1e25))
    model.close()
    assert failed.value.step == 2
    assert mx.get_active_memory() <= before + 4096


def test_use_after_close_is_refused(load: Load, tmp_path: Path) -> None:
    model = load()
    steps = model.train(labelled(), config())
    next(steps)
    model.close()
    with pytest.raises(core.ModelClosedError):
        next(steps)
    with pytest.raises(core.ModelClosedError):
        model.train(labelled(), config())
    with pytest.raises(core.ModelClosedError):
        model.save_adapter(tmp_path)
