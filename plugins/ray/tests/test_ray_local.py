"""`core_ray` and ``infer-cli classify --ray`` on one small Ray of this machine."""

from __future__ import annotations

import re
import runpy
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import core
import core_ray
from core.testing import write_model
from core_cli.app import build

pytestmark = [
    pytest.mark.load,
    pytest.mark.usefixtures("local_ray"),
    pytest.mark.filterwarnings("ignore:The minimum number of concurrent actors"),
]

ROOT = Path(__file__).resolve().parents[3]
LABELS = ("good", "bad")


def text(number: int) -> str:
    return f"{number} {LABELS[number % 2]}"


def rows(dataset: Any) -> list[dict[str, Any]]:
    return sorted(dataset.take_all(), key=lambda row: row["id"])


def test_every_row_is_answered_once_with_its_columns(model: str) -> None:
    import ray.data

    given = [{"id": n, "text": text(n) if n != 7 else "", "label": "gold"} for n in range(500)]
    answers = core_ray.classify(
        ray.data.from_items(given),
        model=model,
        backend="fragile",
        labels=LABELS,
        concurrency=2,
        num_cpus=1,
        batch_size=50,
    )
    made = rows(answers)
    assert [row["id"] for row in made] == [*range(500)]
    assert [row["label"] for row in made if row["id"] != 7] == [
        LABELS[n % 2] for n in range(500) if n != 7
    ]
    assert made[7]["label"] is None
    assert made[7]["error"].startswith("EmptyPromptError: ")
    assert {row["input_label"] for row in made} == {"gold"}
    assert set(made[0]["probabilities"]) == {*LABELS}


def test_generation(model: str) -> None:
    import ray.data

    config = core.GenerateConfig(max_tokens=4)
    given = ray.data.from_items([{"id": n, "text": text(n)} for n in range(20)])
    made = rows(core_ray.generate(given, model=model, backend="fragile", config=config))
    assert [(row["answer"], row["finish_reason"]) for row in made] == [
        (f"So {text(n)}"[:4], "length") for n in range(20)
    ]


def test_a_loaded_model_does_not_travel_and_a_function_does(model: str) -> None:
    import ray.data

    given = ray.data.from_items([{"id": 0, "text": "good"}])
    loaded: Any = core.load_model(model, backend="fragile")
    with pytest.raises(TypeError, match="FakeModel cannot be sent"):
        core_ray.classify(given, model=loaded, labels=LABELS)
    load = lambda: core.load_model(model, backend="fragile")  # noqa: E731 - by value, not by name
    [row] = rows(core_ray.classify(given, model=load, labels=LABELS))
    assert row["label"] == "good"


@pytest.fixture
def news(tmp_path: Path) -> Path:
    """A folder with three Parquet files of 40 rows each."""
    folder = tmp_path / "news"
    folder.mkdir()
    for part in range(3):
        numbers = range(40 * part, 40 * part + 40)
        table = pa.table({"id": [*numbers], "text": [text(n) for n in numbers]})
        pq.write_table(table, folder / f"{part}.parquet")
    return folder


def job(news: Path, out: Path, *flags: str, model: str) -> Result:
    """``infer-cli classify --ray`` in this process, which is connected."""
    command = ["-m", model, "--backend", "fragile", "-i", str(news), "-o", str(out)]
    return CliRunner().invoke(build(), ["classify", "--ray", *command, *flags])


def written(out: Path) -> list[dict[str, Any]]:
    found = [row for file in out.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    return sorted(found, key=lambda row: row["id"])


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines on stdout, without Ray's own, which it prints there where a machine is slow."""
    return [line for line in capsys.readouterr().out.splitlines() if "(raylet)" not in line]


@pytest.mark.slow
def test_the_page_and_the_example(
    news: Path, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "ray.md").read_text("utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    [snippet] = [each for each in snippets if "core_ray" in each]
    names: dict[str, Any] = {"folder": str(news), "path": model}
    exec(compile(snippet, "docs/ray.md", "exec"), names)
    assert len(printed(capsys)) == 3

    example = runpy.run_path(str(ROOT / "examples" / "ray_parquet.py"))
    example["label_folder"](model, str(news), str(tmp_path / "out"))
    assert printed(capsys) == ["120 rows, 0 failed"]
    assert [row["id"] for row in written(tmp_path / "out")] == [*range(120)]


@pytest.mark.slow
def test_a_job_writes_each_row_once_and_is_finished(news: Path, tmp_path: Path, model: str) -> None:
    out, flags = tmp_path / "out", ("--labels", "good, bad", "--num-cpus", "1")
    done = job(news, out, *flags, model=model)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"{out}: 120 rows, 0 failed"
    made = written(out)
    assert [row["id"] for row in made] == [*range(120)]
    assert [row["label"] for row in made] == [LABELS[n % 2] for n in range(120)]
    assert not (tmp_path / "out.checkpoint").exists()

    # What is there is not touched, unless it is said to be.
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    assert "Use --resume to continue it" in job(news, out, *flags, model=model).stderr
    again = job(news, out, *flags, "--resume", model=model)
    assert (again.exit_code, "is already complete" in again.stderr) == (0, True)
    other = job(news, out, "--labels", "good,other", "--resume", model=model)
    assert (other.exit_code, "has changed" in other.stderr) == (2, True)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before

    # With --overwrite, what Ray wrote is known by its names and goes; nothing else does.
    (out / "mine.parquet").write_text("mine")
    kept = job(news, out, *flags, "--overwrite", model=model)
    assert (kept.exit_code, "contains mine.parquet" in kept.stderr) == (2, True)
    (out / "mine.parquet").unlink()
    replaced = job(news, out, *flags, "--overwrite", model=model)
    assert replaced.exit_code == 0, replaced.stderr
    assert [row["id"] for row in written(out)] == [*range(120)]
    assert not before.keys() - {"_job.json"} & {file.name for file in out.iterdir()}


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_told_once(
    news: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = write_model(tmp_path / "broken")
    (broken / "cannot").touch()
    done = job(news, tmp_path / "out", "--labels", "good,bad", model=str(broken))
    assert done.exit_code == 1
    reason = "InvalidModelError: These weights are no weights. Fetch them again."
    told = (done.output + "".join(capfd.readouterr())).splitlines()
    assert [line for line in told if reason in line] == [
        f"Error: Cannot load the model on {socket.gethostname()}: {reason}"
    ]
