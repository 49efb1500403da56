"""``infer-cli tune`` with several models: one table, best first, and the task of the best."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import core
import core_tasks
from core.errors import InvalidModelError
from core.options import LoadConfig
from core.registry import REGISTRY
from core.testing import FakeEncoder, FakeModel, write_model
from core_tasks.tuning import SENTENCES

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

LABELS = ("money", "games")
TEXTS = [f"{'a day of' if n % 2 else 'this is on'} {LABELS[n % 2]} {n}" for n in range(40)]
GOOD, BAD = "{text} is", "games games {text} is"
TEMPLATES = ("--template", BAD, "--template", GOOD, "--labels", ",".join(LABELS))

Tune = Callable[..., "Result"]


class Kinds:
    """A backend whose models are encoders, or language models, by the name of their directory."""

    name, protocol, formats = "kinds", 2, frozenset({"safetensors"})
    capabilities = FakeEncoder.capabilities
    available, unavailable_reason = lambda self: True, lambda self: None

    def __init__(self) -> None:
        self.models: list[FakeEncoder | FakeModel] = []
        self.open: list[int] = []  # models that are open at each load

    def load_model(
        self, path: str | os.PathLike[str], config: LoadConfig
    ) -> FakeEncoder | FakeModel:
        name = Path(path).name
        if name == "broken":
            raise InvalidModelError("the weights end too early")
        encodes = name == "encoder"
        model = FakeEncoder() if encodes else FakeModel(labels=counted, name=self.name)
        self.models.append(model)
        self.open.append(sum(not _closed(one) for one in self.models))
        return model


def _closed(model: FakeEncoder | FakeModel) -> bool:
    try:
        model.encode("a")
    except core.ModelClosedError:
        return True
    return False


def counted(prompt: str, labels: Any) -> dict[str, float]:
    """How often each label is in the prompt."""
    counts = {label: prompt.count(label) + 0.1 for label in labels}
    return {label: count / sum(counts.values()) for label, count in counts.items()}


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    monkeypatch.setattr(REGISTRY, "_registered", {})
    backend = Kinds()
    core.register(backend)
    return backend


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    lines = [{"text": text, "gold": LABELS[n % 2]} for n, text in enumerate(TEXTS)]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


@pytest.fixture
def tune(infer_cli: InferCli, kinds: Kinds, rows: Path, tmp_path: Path) -> Tune:
    def call(
        *names: str,
        flags: tuple[str | Path, ...] = ("--gold", "gold"),
        asked: tuple[str, ...] = TEMPLATES,
    ) -> Result:
        models = [str(write_model(tmp_path / name)) for name in names]
        words = [word for model in models for word in ("-m", model)]
        return infer_cli("tune", *words, "--backend", "kinds", "-i", rows, *asked, *flags)

    return call


def test_one_table_with_the_best_model_first(tune: Tune, kinds: Kinds, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    done = tune("broken", "decoder", "encoder", flags=("--gold", "gold", "-o", file))
    assert done.exit_code == 0, done.output
    head, *lines = (line.split("\t") for line in done.stdout.splitlines())
    shown = [dict(zip(head, line, strict=True)) for line in lines]
    assert [Path(row["MODEL"]).name for row in shown][-1] == "broken"
    assert [row["ACCURACY"] for row in shown[:-1]] == sorted(
        (row["ACCURACY"] for row in shown[:-1]), reverse=True
    )
    assert all(row["ECE"] and row["ROWS/S"] and row["SIZE"] for row in shown[:-1])
    assert (shown[-1]["ACCURACY"], shown[-1]["PROBLEM"]) == ("failed", "the weights end too early")
    assert f"Best of 3 models: {shown[0]['MODEL']}, with" in done.stderr
    assert "nested cross-validation" in done.stderr
    assert max(kinds.open) == 1
    assert all(map(_closed, kinds.models))
    assert core_tasks.load_task(file).model == shown[0]["MODEL"]


def test_each_kind_tries_what_it_reads(tune: Tune) -> None:
    done = tune("decoder", "encoder", flags=("--gold", "gold", "--json", "--level", "raw"))
    assert done.exit_code == 0, done.output
    models = {Path(one["model"]).name: one for one in json.loads(done.stdout)["models"]}
    language, encoder = models["decoder"], models["encoder"]
    assert {trial["template"] for trial in language["trials"]} == {GOOD, BAD}
    assert {trial["label_sentence"] for trial in encoder["trials"]} == {*SENTENCES}
    accuracies = [trial["accuracy"] for trial in language["trials"]]
    assert language["worst_accuracy"] == min(accuracies) < 1
    assert language["mean_accuracy"] == pytest.approx(sum(accuracies) / 2)
    assert language["backend"] == "kinds"
    assert language["size_bytes"] == 10
    assert language["problem"] is None
    assert language["expected"]["accuracy"] == 1.0


def test_one_without_candidates_is_a_row_too(tune: Tune) -> None:
    flags = ("--gold", "gold", "--json", "--level", "raw")
    done = tune("decoder", "encoder", flags=flags, asked=("--labels", ",".join(LABELS)))
    assert done.exit_code == 0, done.output
    first, last = json.loads(done.stdout)["models"]
    assert Path(first["model"]).name == "encoder"
    assert "requires --template" in last["problem"]


def test_a_failing_model_is_a_record_with_its_reason(tune: Tune) -> None:
    done = tune("broken", "decoder", flags=("--gold", "gold", "--json"))
    assert done.exit_code == 0
    last = json.loads(done.stdout)["models"][-1]
    assert (Path(last["model"]).name, last["problem"]) == ("broken", "the weights end too early")
    assert "Warning: " in done.stderr


def test_where_all_fail_the_first_reason_is_the_error(tune: Tune) -> None:
    done = tune("broken", "decoder", flags=("--gold", "gold", "--limit", "4"))
    assert done.exit_code == 1
    assert "the weights end too early" in done.stderr
    assert done.stdout == ""


def test_without_gold_labels_models_are_not_compared(tune: Tune) -> None:
    done = tune("decoder", "encoder", flags=())
    assert done.exit_code == 2
    assert "Several models can only be compared on gold labels: pass --gold." in done.output


def test_the_same_model_twice_is_one(tune: Tune) -> None:
    done = tune("decoder", "decoder")
    assert done.stdout.startswith("TEMPLATE\t")


def test_a_model_of_the_environment_may_have_spaces(
    infer_cli: InferCli, kinds: Kinds, rows: Path, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "a model")
    flags = ("--gold", "gold", "--level", "raw", "--backend", "kinds")
    done = infer_cli("tune", "-i", rows, *TEMPLATES, *flags, INFER_MODEL=str(model))
    assert done.exit_code == 0, done.output
    assert len(kinds.models) == 1


def test_the_table_fits_a_terminal(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from core_cli import output

    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    done = tune("broken", "decoder", "encoder")
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "MODEL",
        "ACCURACY",
        "MEAN",
        "WORST",
        "ECE",
        "HEAD",
        "ROWS/S",
        "SIZE",
    ]
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    assert "failed" in lines[-1]
