"""Files that this project writes and reads again, changed by somebody: refused by name, or sound.

``task``, ``calibration``, ``head``, ``adapter``, ``checkpoint`` and ``journal``. What is read must
give probabilities and losses that are numbers; what is refused, an error of the file's own kind.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

import core
import core_learn
import core_tasks
from core.testing import FakeModel
from core_conformance.checking.adapters import write as write_adapter
from core_learn.fewshot import _probabilities
from core_tasks.calibration import Calibration, load_calibration, save_calibration
from core_tasks.files import from_toml, to_toml

from .damage import damage
from .tiny_models import checkpoint, copied
from .verdict import check, check_rows

GROWTH = 192 * 2**20  # of thousands of models, beside what an attack grows by
FAKE = Path(__file__).parents[2] / "cli" / "tests" / "fake_backend"
TEXTS = [f"{first} {second}" for first in ("ab", "no", "cup") for second in ("goal", "bank", "x")]
GOLD = ["sports", "finance", "sports"] * 3
Use = Callable[[Path], object]


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """The case's number is the seed of what is wrong; ``variant`` is the kind of the file."""
    source = place / "source"
    source.mkdir()
    make, _ = KINDS[variant]
    files, use = make(source)
    for name in files:
        assert _outcome(use, copied(source, place / "mutated") / name) == "loaded"

    def case(number: int) -> str:
        dice = random.Random(f"{variant} {number}")
        file = copied(source, place / "mutated") / dice.choice(files)
        damage(file, dice)
        return _outcome(use, file)

    return case


def _outcome(use: Use, file: Path) -> str:
    """``loaded``, or the kind of the error: one of `core`, or of the system for no file."""
    try:
        use(file)
    except core.CoreError as error:
        return check(error)
    except OSError as error:
        if not file.is_file():  # a directory, a link to itself, or nothing
            return type(error).__name__
        raise
    return "loaded"


def sound(value: object) -> None:
    """Raise AssertionError for NaN, and for infinity; the logarithm of nothing is below zero."""
    if isinstance(value, float):
        assert value < math.inf, value
    for inner in value.values() if isinstance(value, dict) else _items(value):
        sound(inner)


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _sum_to_one(logprobs: Sequence[float]) -> None:
    assert math.isclose(math.fsum(map(math.exp, logprobs)), 1.0, abs_tol=1e-9), logprobs


def _fake() -> FakeModel:
    def likely(prompt: str, labels: Sequence[str]) -> dict[str, float]:
        shares = [crc32(f"{prompt} {label}".encode(errors="replace")) % 997 + 1 for label in labels]
        return {label: n / (sum(shares) + 50) for label, n in zip(labels, shares, strict=True)}

    return FakeModel(labels=likely)


# ------------------------------------------------------------------ tasks and calibrations


def _tasks() -> dict[str, core_tasks.Task]:
    labels = "finance", "sports"
    words = {"finance": ("finance", "money")}
    one = core_tasks.Task("{text} This is about", labels, words, threshold=0.6)
    many = core_tasks.Task("{text} Is this {label}?", labels, mode="many")
    levels = core_tasks.Task("{text} Stars:", ("1", "2", "3.5"), mode="levels")
    model = _fake()
    both = [[label] for label in GOLD]
    return {
        "one": one.fit_prior(model, TEXTS, "batch").fit(model, TEXTS, GOLD, "isotonic"),
        "many": many.fit_prior(model, TEXTS, "batch").fit(model, TEXTS, both, "temperature"),
        "levels": levels.fit_prior(model, TEXTS, "batch"),
    }


def _task(source: Path) -> tuple[list[str], Use]:
    for name, task in _tasks().items():
        task.save(source / f"{name}.toml")
    plain = 'format = 1\n# of a person\ntemplate = """\n{text}: """\nlabels = ["a", \'b\']\n'
    (source / "plain.toml").write_text(plain)
    return ["one.toml", "many.toml", "levels.toml", "plain.toml"], _use_task


def _use_task(file: Path) -> None:
    task = core_tasks.load_task(file)
    assert from_toml(to_toml(task)) == task
    if task.calibration is not None:
        _apply(task.calibration)
    check_rows(decisions := task.classify(_fake(), TEXTS))
    sound([decision.to_dict() for decision in decisions])


def _calibration(source: Path) -> tuple[list[str], Use]:
    for name, task in _tasks().items():
        assert task.calibration is not None
        save_calibration(task.calibration, source / f"{name}.json")
    return ["one.json", "many.json", "levels.json"], _use_calibration


def _use_calibration(file: Path) -> None:
    calibration = load_calibration(file)
    assert Calibration.from_json(calibration.to_json()) == calibration
    _apply(calibration)


def _apply(calibration: Calibration) -> None:
    """Adjust rows: even ones, near ones, one label alone, none, and numbers of any size."""
    count = len(calibration.labels)
    rows = (
        *([-1.0] * count, [-0.1 - 0.7 * n for n in range(count)], [-1e300, *[0.0] * (count - 1)]),
        *(
            [0.0, *[-math.inf] * (count - 1)],
            [-math.inf] * count,
            [-745.0 * n for n in range(count)],
        ),
    )
    for question in calibration.adjustments:
        for row in rows:
            named = dict(zip(calibration.labels, row, strict=True))
            adjusted = [*calibration.apply(named, question).values()]
            sound(adjusted)
            _sum_to_one(adjusted)


# ------------------------------------------------------------------ heads, adapters, checkpoints


def _head(source: Path) -> tuple[list[str], Use]:
    for name, kinds in (("ridge", ["ridge"]), ("lda", ["lda"])):
        few = core_learn.FewShot(_fake(), template="{text} is", kinds=kinds)
        few.fit(TEXTS, GOLD).save(source / f"{name}.safetensors")
    return ["ridge.safetensors", "lda.safetensors"], _use_head


def _use_head(file: Path) -> None:
    head = core_learn.load_head(file)
    largest = float(np.finfo(np.float32).max)
    states = np.array([[0.0], [1.0], [largest], [-largest]]) * np.ones(len(head.weights))
    for shares in _probabilities(head, states).tolist():
        sound(shares)
        assert math.isclose(math.fsum(shares), 1.0, abs_tol=1e-9), shares
    check_rows(decisions := core_learn.FewShot.load(file, _fake()).classify(TEXTS))
    sound([decision.to_dict() for decision in decisions])


def _adapter(source: Path) -> tuple[list[str], Use]:
    base = checkpoint(source.parent, "gemma3")
    write_adapter(str(base), source / "plain", seed=1)
    with _trainable(base) as model:
        list(model.train(_examples(), TRAINED))
        model.save_adapter(source / "trained")
    _to_peft(base, source)
    names = "adapter_config.json", "adapters.safetensors", "adapter_model.safetensors"
    files = [str(file.relative_to(source)) for file in sorted(source.rglob("*.*"))]
    assert {Path(file).name for file in files} == {*names}

    def use(file: Path) -> None:
        sound(dict(_notes(file.parent)))
        with core.load_model(base, backend="mlx_cpu", adapter_path=file.parent) as model:
            _answer(model)

    return files, use


def _notes(adapter: Path) -> Any:
    from core_mlx_native.train.notes import read_notes

    return read_notes(adapter)


def _trainable(base: Path) -> Any:
    return core.load_model(base, backend="mlx_cpu")


def _to_peft(base: Path, source: Path) -> None:
    from core_mlx_native.adapters.files import read_adapter, write_adapter
    from core_runtime.checkpoint.config import load_config

    config = load_config(base)
    write_adapter(source / "peft", read_adapter(source / "plain", config).layers, config, "peft")


def _answer(model: Any) -> None:
    """Ask a model for numbers: each row has some, or an error."""
    prompts = ["ab abc no ab", "no"]
    results = [
        *model.classify(prompts, labels=["ab", "no ab"]),
        *model.score(prompts, [" ab", "no"]),
        *model.batch_generate(prompts, max_tokens=2, return_logprobs=True),
    ]
    check_rows(results)
    sound([result.to_dict() for result in results if result.error is None])


def _examples() -> tuple[core.TrainingExample, ...]:
    kinds = ("a", "no"), ("b", "ab")
    texts = [(f"{first}{rest}", label) for rest in "xyz" for first, label in kinds]
    return tuple(core.TrainingExample(text=text, label=label) for text, label in texts)


TRAINED = core.TrainConfig(
    template="{text}:", rank=2, iterations=2, learning_rate=1e-2, targets=("self_attn.q_proj",)
)


def _checkpoint(source: Path) -> tuple[list[str], Use]:
    base = checkpoint(source.parent, "gemma3")
    config = replace(
        TRAINED, save_every=2, validation=_examples()[:2], validate_every=1, patience=9
    )

    def train(directory: Path, **options: Any) -> None:
        with _trainable(base) as model:
            asked = replace(config, directory=directory, **options)
            sound([_losses(step) for step in model.train(_examples(), asked)])
            _answer(model)

    train(source)
    [file] = source.glob("*.safetensors")
    return [file.name], lambda file: train(file.parent, resume=True, iterations=3)


def _losses(step: core.TrainStep) -> list[float | None]:
    return [step.loss, step.validation_loss, step.gradient_norm]


# ------------------------------------------------------------------ journals


class JobRefusedError(core.CoreError):
    """The command line has refused to resume a job, in words of its own."""


def _journal(source: Path) -> tuple[list[str], Use]:
    """Two jobs, one that is finished and one that was broken off after its second block."""
    sys.path.insert(0, str(FAKE))
    model = source.parent / "model"
    model.mkdir()
    config = {"model_type": "fake", "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 100}
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (source / "rows.txt").write_text("".join(f"a b {n % 70}\n" for n in range(300)))

    outputs = ["done.jsonl", "broken.jsonl", "broken.csv"]
    for name in outputs:
        assert _resumed(model, source / name) == 0
    whole = {name: (source / name).read_bytes() for name in outputs}
    for name in outputs[1:]:
        _break(source / name)

    def use(file: Path) -> None:
        output = file.with_suffix("")
        before = output.read_bytes()
        refused = _resumed(model, output) != 0
        assert output.read_bytes() == (before if refused else whole[output.name])
        if refused:
            raise JobRefusedError("Exit code 2.")

    return [f"{name}.journal" for name in outputs], use


def _break(output: Path) -> None:
    journal = output.with_name(f"{output.name}.journal")
    first, *blocks = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first + b"".join(blocks[:2]))
    with open(output, "r+b") as stream:
        stream.truncate(json.loads(blocks[1])["end"])


def _resumed(model: Path, output: Path) -> int:
    """Resume a job. Returns 0, or 2 where it is refused; what is reported has numbers."""
    from click.testing import CliRunner

    from core_cli.app import build

    report = output.with_name("report.json")
    rows = output.with_name("rows.txt")
    asked = ["-m", model, "--backend", "fake", "--labels", "a,b", "-i", rows, "-o", output]
    arguments = ["classify", *asked, "--resume", "--report", report]
    done = CliRunner().invoke(build(), [*map(str, arguments)], env={"INFER_RAISE_ERRORS": "1"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in (0, 2), done.output
    assert done.exit_code == 0 or done.stderr.strip()
    if done.exit_code == 0 and report.exists():
        sound(json.loads(report.read_bytes()))
    return done.exit_code


Make = Callable[[Path], tuple[list[str], Use]]
KINDS: dict[str, tuple[Make, str]] = {
    "task": (_task, "TaskError"),
    "calibration": (_calibration, "CalibrationError"),
    "head": (_head, "HeadFileError"),
    "adapter": (_adapter, "InvalidModelError"),
    "checkpoint": (_checkpoint, "TrainingError"),
    "journal": (_journal, "JobRefusedError"),
}
"""The maker of sound files that says how they are used, and the error of most that are not."""
