"""``infer-cli eval``: items asked, marked, written, reckoned again and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import core
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model
from tests.attacks.tiny_models import checkpoint, gguf

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli


def said(prompt: str) -> str:
    """One more than the number before " + 1", except for 3; asked to be wrong, always wrong."""
    number = int(prompt.rpartition("Question: ")[2].split()[0])
    wrong = number == 3 or "wrong" in prompt
    return f" It is\nthat:\n#### {0 if wrong else number + 1}"


@pytest.fixture
def model(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    core.register(FakeBackend(said, name="scripted"))
    yield "-m", str(write_model(tmp_path / "scripted")), "--backend", "scripted"
    REGISTRY._registered.pop("scripted")


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    file = tmp_path / "sums.jsonl"
    lines = [
        {"id": f"s{n}", "question": f"{n} + 1", "answer": f"so\n#### {n + 1}"} for n in range(9)
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def evaluated(infer_cli: InferCli, *flags: str | Path) -> Result:
    done = infer_cli("eval", *flags)
    assert "Traceback" not in done.output
    return done


def items_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


NUMERIC = ("--metric", "numeric")


def test_items_are_marked_and_told(infer_cli: InferCli, model: tuple[str, ...], sums: Path) -> None:
    done = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, "--json")
    assert done.exit_code == 0, done.output
    items = items_of(done.stdout)
    assert [item["right"] for item in items] == [n != 3 for n in range(9)]
    assert (items[2]["prediction"], items[2]["gold"], items[2]["id"]) == ("3", "3", "s2")
    assert items[2]["answer"] == "so\n#### 3"  # what the input had
    assert "correct: 88.9 % (56.5 to 98.0)" in done.stderr
    table = evaluated(infer_cli, *model, "-i", sums, *NUMERIC).stdout.splitlines()
    assert table[0].split("\t") == [
        "line",
        "text",
        "prediction",
        "gold",
        "right",
        "sureness",
        "error",
    ]
    assert table[1].split("\t")[1:5] == ["0 + 1", "1", "1", "True"]


def test_all_batch_sizes_are_asked(
    infer_cli: InferCli, model: tuple[str, ...], sums: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    sizes = ("--gen-batch-size", "1,3,8", "--report", report)
    done = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, *sizes)
    assert done.exit_code == 0, done.output
    found = json.loads(report.read_text())["evaluation"]
    assert {size: each["accuracy"] for size, each in found["batch_sizes"].items()} == {
        "3": pytest.approx(8 / 9),
        "8": pytest.approx(8 / 9),
    }
    assert [*found["speed"]] == ["1", "3", "8"]
    assert "batch size 8: " in done.stderr
    assert "88.9 % correct, 0 answers changed" in done.stderr


def test_a_job_goes_on_and_shards_are_merged_and_reckoned_again(
    infer_cli: InferCli, model: tuple[str, ...], sums: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole.jsonl"
    assert evaluated(infer_cli, *model, "-i", sums, *NUMERIC, "-o", whole).exit_code == 0
    again = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, "-o", whole, "--resume")
    assert "already complete" in again.stderr
    other = evaluated(infer_cli, *model, "-i", sums, "-o", whole, "--resume", "--metric", "exact")
    assert other.exit_code == 2  # marked in another way, it is another job

    parts = [tmp_path / f"part{n}.jsonl" for n in (1, 2)]
    for n, part in enumerate(parts, 1):
        shard = ("-o", part, "--shard", f"{n}/2")
        assert evaluated(infer_cli, *model, "-i", sums, *NUMERIC, *shard).exit_code == 0
    merged = tmp_path / "merged.jsonl"
    assert infer_cli("merge", merged, *parts).exit_code == 0
    assert merged.read_bytes() == whole.read_bytes()
    told = evaluated(infer_cli, "--from", merged)
    assert "correct: 88.9 % (56.5 to 98.0)" in told.stderr
    figures = json.loads(evaluated(infer_cli, "--from", merged, "--json").stdout)
    assert (figures["items"], figures["right"]) == (9, 8)
    few = evaluated(infer_cli, "--from", merged, "--pass-at", "5")
    assert few.exit_code == 2
    assert "has fewer than 5 samples per item" in few.stderr
    below = evaluated(infer_cli, "--from", merged, "--fail-under", "0.9")
    assert below.exit_code == 1
    assert "Accuracy 88.9 % is below --fail-under 90 %" in below.stderr


def test_samples_pass_and_vote(infer_cli: InferCli, model: tuple[str, ...], sums: Path) -> None:
    drawn = ("--num-samples", "3", "--temperature", "1", "--seed", "5", "--pass-at", "2")
    done = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, *drawn, "--json")
    assert done.exit_code == 0, done.output
    assert "pass@1: 88.9 %" in done.stderr
    assert "pass@2: 88.9 %" in done.stderr
    assert "majority of samples: 88.9 %" in done.stderr
    assert len(items_of(done.stdout)[0]["samples"]) == 3


def test_examples_that_hold_items_are_said(
    infer_cli: InferCli, model: tuple[str, ...], sums: Path, tmp_path: Path
) -> None:
    shots = tmp_path / "shots.jsonl"
    examples = [{"question": f"{n} + 1", "answer": f"{n + 1}"} for n in (3, 50)]
    shots.write_text("\n".join(map(json.dumps, examples)))
    few = ("--few-shot", shots)
    done = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, *few)
    assert f"1 item of {sums} is also in the examples of {shots}" in done.stderr
    assert "without items that are examples: 100.0 %" in done.stderr
    shown = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, *few, "--show-prompt").stdout
    assert shown == (
        "Question: 3 + 1\nAnswer: 4\n\nQuestion: 50 + 1\nAnswer: 51\n\nQuestion: 0 + 1\nAnswer:\n"
    )
    fewer = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, *few, "--shots", "3")
    assert "has only 2 examples; --shots is 3" in fewer.stderr


def test_two_evaluations_are_compared(
    infer_cli: InferCli, model: tuple[str, ...], sums: Path, tmp_path: Path
) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    wrong = ("--template", r"wrong Question: {question}\nAnswer:")
    evaluated(infer_cli, *model, "-i", sums, *NUMERIC, "-o", a)
    evaluated(infer_cli, *model, "-i", sums, *NUMERIC, "-o", b, *wrong)
    done = evaluated(infer_cli, "--compare", a, b)
    assert done.exit_code == 0, done.output
    assert "same answer: 1 of 9 items, 11.1 %" in done.stderr
    assert "correct only in the first: 8, only in the second: 0; McNemar p = 0.00781" in done.stderr
    assert "line 1, gold '1': '1' " in done.stderr
    report = tmp_path / "report.json"
    below = evaluated(
        infer_cli, "--compare", a, b, "--fail-under", "0.5", "--json", "--report", report
    )
    assert below.exit_code == 1
    assert "Agreement 11.1 % is below --fail-under 50 %" in below.stderr
    told = json.loads(below.stdout)
    assert {"kind": "core.report", "format": 1, **told} == json.loads(report.read_text())
    assert (told["mcnemar_p"], len(told["flips"])) == (pytest.approx(2 / 2**8), 8)
    assert told["speed"]["first"]["items_per_second"] > 0

    # As an editor saves them, with a byte order mark.
    array = tmp_path / "b.json"
    rows = b.read_text().splitlines()
    array.write_text("[\r\n" + ",\r\n".join(rows) + "\r\n]\r\n", encoding="utf-8-sig")
    a.write_bytes(a.read_bytes().decode().replace("\n", "\r\n").encode("utf-8-sig"))
    again = evaluated(infer_cli, "--compare", a, array)
    assert again.exit_code == 0, again.output
    assert "same answer: 1 of 9 items, 11.1 %" in again.stderr

    live = ("template=Question: {question}", r"template=wrong Question: {question}\nAnswer:")
    made = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, "--compare", *live)
    assert "same answer: 1 of 9 items, 11.1 %" in made.stderr


@pytest.mark.parametrize(
    ("lines", "flags", "told"),
    [
        ([], (), "contains no items"),
        ([{"question": "1", "wrong": "1"}], (), "no answer in any of answer, label"),
        ([{"q": "1", "answer": "1"}], (), "no 'question' or 'ctx'"),
        (
            [{"question": "1", "choices": ["a", "b"], "answer": "c1"}],
            (),
            "not one of the 2 choices",
        ),
        ([{"question": "1", "choices": ["a", "a"], "answer": "a"}], (), "1 and 2 are equal: 'a'"),
        (
            [{"question": "1", "answer": "1"}],
            ("--template", "no place"),
            "uses no field of an item",
        ),
        ([{"question": "1", "answer": "1"}], ("--letters",), "does not support scoring"),
        ([{"question": "1", "answer": "1"}], ("--num-samples", "2"), "with temperature=0"),
        (
            [{"question": "1", "answer": "1"}],
            ("--pass-at", "2"),
            "numbers from 1 to 1, the samples",
        ),
        ([{"question": "1", "answer": "1"}], ("--shots", "2"), "--few-shot FILE"),
        (
            [{"question": "1", "answer": "1"}],
            ("--extract", "("),
            "is not a valid regular expression",
        ),
        ([{"question": "1", "answer": "1"}], ("--gen-batch-size", "0"), "with N from 1"),
        ([{"question": "1", "answer": "1"}], ("-o", "x.csv"), "-o OUT.jsonl"),
        (
            [{"question": "1", "answer": "1"}],
            ("--compare", "a=b", "c"),
            "--compare a=... is not supported",
        ),
    ],
)
def test_what_makes_no_sense_is_told(
    infer_cli: InferCli,
    model: tuple[str, ...],
    tmp_path: Path,
    lines: list[dict[str, Any]],
    flags: tuple[str, ...],
    told: str,
) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = evaluated(infer_cli, *model, "-i", file, *flags)
    assert done.exit_code in (1, 2, 5), done.output
    assert told in " ".join(done.output.split())


def test_a_bad_item_fails_alone(infer_cli: InferCli, model: tuple[str, ...], sums: Path) -> None:
    with sums.open("a") as file:
        file.write('{"question": "9 + 1"}\n{"question": "4 + 1", "answer": "none"}\n')
    done = evaluated(infer_cli, *model, "-i", sums, *NUMERIC, "--json")
    assert done.exit_code == 5
    errors = [item["error"] and item["error"]["message"] for item in items_of(done.stdout)]
    assert errors[:9] == [None] * 9
    assert errors[9] == (
        "line 10: The item has no answer in any of answer, label, gold, answerKey, target, "
        "solution, output."
    )
    assert "has no number" in errors[10]
    assert "correct: 88.9 %" in done.stderr


def test_plain_text_holds_no_items(
    infer_cli: InferCli, model: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "items.txt"
    file.write_text("hello\n")
    done = evaluated(infer_cli, *model, "-i", file)
    assert done.exit_code == 2
    assert "is plain text" in done.stderr


def test_a_file_of_something_else_is_no_evaluation(infer_cli: InferCli, sums: Path) -> None:
    done = evaluated(infer_cli, "--from", sums)
    assert done.exit_code == 2
    assert f"{sums}, line 1 is not an item written by eval" in done.stderr


# ----------------------------------------------------------------------- real models


@pytest.mark.parametrize("backend", ["mlx_cpu", pytest.param("llama_cpp", marks=pytest.mark.whole)])
def test_every_batch_size_comes_to_the_same_with_ragged_prompts(
    infer_cli: InferCli, tmp_path: Path, backend: str
) -> None:
    place = tmp_path / "model"
    place.mkdir()
    path = (checkpoint if backend == "mlx_cpu" else gguf)(place)
    lines: list[dict[str, Any]] = [
        {
            "question": "a b " * (1 + n * n % 7) + "ab"[n % 2],
            "answer": "a",
            "choices": ["a", "b", "ab"],
        }
        for n in range(10)
    ]
    file, report = tmp_path / "items.jsonl", tmp_path / "report.json"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    asked = ("-m", path, "--backend", backend, "-i", file, "--template", "{question}")
    sizes = ("--gen-batch-size", "1,3,8", "--report", report, "--json", "--keep", "none")
    for metric in ("exact", "choice"):
        done = evaluated(infer_cli, *asked, *sizes, "--metric", metric, "-n", "6")
        assert done.exit_code == 0, done.output
        found = json.loads(report.read_text())["evaluation"]
        for each in found["batch_sizes"].values():
            assert each["accuracy"] == found["accuracy"]
            assert each["other_answers"] == 0
        items = items_of(done.stdout)
        if metric == "exact":
            assert {item["tokens"] for item in items} <= set(range(7))
            assert len({item["output"] for item in items}) > 1
            continue

        # What the choices come to is what the model's own score says of each pair.
        with core.load_model(str(path), backend=backend) as model:
            assert isinstance(model, core.Scoring)
            for item, line in zip(items, lines, strict=True):
                question = str(line["question"])
                ends = [
                    f"{'' if line['question'][-1:].isspace() else ' '}{c}" for c in line["choices"]
                ]
                scores = model.score([question] * 3, ends)
                told = [*item["logprobs"].values()]
                tolerance = 3 * model.info.logit_tolerance + 1e-4
                assert told == pytest.approx([s.logprob for s in scores], abs=tolerance)


def test_items_are_read_from_tables_and_parquet(infer_cli: InferCli, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows: list[dict[str, Any]] = [
        {"ctx": "a b a", "endings": ["a", "b", "ab"], "label": 1},
        {"ctx": "ab b", "endings": ["no", "b"], "label": 0},
    ]
    place = tmp_path / "model"
    place.mkdir()
    asked = ("-m", checkpoint(place), "--backend", "mlx_cpu", "--keep", "none", "--json")
    lines, table, parquet = (tmp_path / f"items.{form}" for form in ("jsonl", "csv", "parquet"))
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    cells = [(row["ctx"], "|".join(row["endings"]), row["endings"][row["label"]]) for row in rows]
    table.write_text("ctx,endings,label\n" + "".join(f"{','.join(row)}\n" for row in cells))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), parquet)
    found = [evaluated(infer_cli, *asked, "-i", file) for file in (lines, table, parquet)]
    assert [done.exit_code for done in found] == [0, 0, 0], found[-1].output
    marks = [[(item["gold"], item["logprobs"]) for item in items_of(done.stdout)] for done in found]
    assert marks[0] == marks[1] == marks[2]
    assert [gold for gold, _ in marks[0]] == ["b", "no"]
