"""benchmarks/encoder.py: its figures are those of their rows, its goals those that were set."""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import core
from benchmarks import encoder
from benchmarks.encoder_parts import contestants, languages, quality, tables
from benchmarks.encoder_parts.contestants import MLX, ONNX, OURS, REFERENCE, SPARROW, Timed
from benchmarks.encoder_parts.subject import RUNNERS, Spec
from benchmarks.label_parts.sets import FITTING, LabelledSet
from core.options import LABEL_SENTENCE

LABELS = ("a", "b")


def small(rows: int = 140) -> LabelledSet:
    gold = [row % 2 for row in range(rows)]
    texts = [f"text {row}" for row in range(rows)]
    return LabelledSet("x", LABELS, {}, texts, gold, [*range(FITTING)], [*range(FITTING, rows)])


def leaning() -> np.ndarray[Any, Any]:
    """Rows that know the label, and lean to the first by more than they know."""
    logits = np.array([[2.0 + (gold == 0), 0.0 + (gold == 1)] for gold in small().gold])
    rows: np.ndarray[Any, Any] = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return rows


# Quality


def test_a_prior_of_unlabelled_rows_takes_away_what_all_rows_lean_to() -> None:
    figures = quality.accuracies(leaning(), small())
    assert (figures["plain"], figures["plain_all"]) == (0.5, 0.5)
    assert (figures["prior"], figures["prior_unseen"]) == (1.0, 1.0)


def test_the_rows_of_a_prior_are_drawn_at_random_and_the_same_each_time() -> None:
    draws = [*quality.prior_draws(300)]
    assert len(draws) == 20
    assert all(len(set(drawn)) == FITTING for drawn in draws)
    assert len({tuple(drawn) for drawn in draws}) == 20
    assert all(
        (one == other).all() for one, other in zip(draws, quality.prior_draws(300), strict=True)
    )


def test_scores_are_the_softmax_of_scaled_cosines() -> None:
    texts, sentences = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)[:2]
    shares = np.exp(quality.scores(texts, sentences))
    assert shares.sum(1) == pytest.approx([1.0] * 3)
    assert shares[2] == pytest.approx([0.5, 0.5])
    assert shares[0, 0] == pytest.approx(1 / (1 + np.exp(-quality.SCALE)))


def test_cosines_and_clear_labels_are_compared_with_the_reference() -> None:
    one = {"x": np.array([[1.0, 0.0], [0.0, 1.0]])}
    other = {"x": np.array([[1.0, 0.0], [0.6, 0.8]])}
    assert quality.cosines(other, one) == {"least": 0.8, "mean": 0.9}
    clear = {"x": np.log(np.array([[0.9, 0.1], [0.505, 0.495], [0.2, 0.8]]))}
    odd = {"x": np.log(np.array([[0.4, 0.6], [0.4, 0.6], [0.2, 0.8]]))}
    assert quality.agreement(odd, clear) == {"same": 1, "compared": 2}


def test_a_head_learns_from_the_fitting_rows() -> None:
    of = small()
    vectors = np.array(
        [[1.0, 0.1 * n] if gold else [-1.0, 0.1 * n] for n, gold in enumerate(of.gold)]
    )
    figures = quality.heads(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), of)
    assert set(figures) == {"4", "8", "16"}
    assert figures["16"] > 0.9


def test_the_best_scale_is_small_where_cosines_mislead() -> None:
    of = small()
    right = np.eye(2)[of.gold]
    assert quality.best_scale(right, np.eye(2), of) > 30.0
    assert quality.best_scale(1 - right, np.eye(2), of) == 2.0


def test_the_first_sentence_is_the_default() -> None:
    assert quality.SENTENCES[0] == LABEL_SENTENCE
    assert all("{label}" in sentence for sentence in (*quality.SENTENCES, *quality.SPECIAL))
    assert len(set(quality.SENTENCES)) == len(quality.SENTENCES)


# Goals and tables


def figures(cpu_ms: float, **changes: Any) -> dict[str, Any]:
    each = {"plain": 0.95, "prior": 0.96}
    sets = {name: dict(each) for name in ("topics", "sentiment", "tickets")}
    return {
        "cpu_ms": cpu_ms,
        "accuracy": sets,
        "heads": {name: {"8": 0.9} for name in sets},
        "cosine": {"least": 0.999},
        "labels": {"same": 9, "compared": 10},
        **changes,
    }


REPORT = {
    OURS["float32"]: figures(2.0),
    OURS["bfloat16"]: figures(1.0),
    OURS["int8"]: figures(0.8, cosine={"least": 0.99}),
    ONNX["float32"]: figures(2.1),
    ONNX["int8"]: figures(0.8),
    MLX: {"cpu_ms": 40.0},
}


def test_each_goal_has_its_figure() -> None:
    goals = {goal.words: goal for goal in tables.goals(REPORT)}
    assert goals[f"float32: times the rows of {ONNX['float32']}"].figure == 1.05
    assert goals[f"bfloat16: times the rows of {MLX}"].figure == 40.0
    missed = {words for words, goal in goals.items() if not goal.met}
    assert missed == {
        f"int8: times the rows of {ONNX['int8']}",
        "int8: least cosine to float32",
    }
    assert len(goals) == 17
    told = tables.told([*goals.values()])
    assert "| int8: least cosine to float32 | 0.990000 | 0.997 | **no** |" in told


def test_absent_contestants_have_no_goals() -> None:
    assert tables.goals({MLX: {"cpu_ms": 40.0}}) == []
    assert [goal.words for goal in tables.goals({OURS["float32"]: figures(2.0)})] == [
        "topics, plain", "tickets, plain", "tickets, prior", "tickets, head of 8 rows a label",
    ]  # fmt: skip


def test_the_tables_have_a_line_for_each() -> None:
    sentence = {name: {"plain": 0.9, "prior": 0.8} for name in ("topics", "sentiment", "tickets")}
    report = {"contestants": REPORT, "sentences": {LABEL_SENTENCE: sentence}}
    lines = tables.peers(report).splitlines()
    assert len(lines) == 2 + len(REPORT)
    assert "| 40.00 | - | - |" in lines[-1]
    shown = tables.sentences(report)
    assert f"| `{LABEL_SENTENCE}` | 90.0 / 80.0 |" in shown
    assert "| worst of them | 90.0 / 80.0 |" in shown


# Languages


def test_each_language_has_as_many_headlines_of_each_label() -> None:
    for of in tomllib.loads(languages.FILE.read_text("utf-8")).values():
        counts = Counter(label for label, _ in of["rows"])
        assert counts == dict.fromkeys(of["labels"], 4)
        assert len({text for _, text in of["rows"]}) == 12
        assert of["english"] == ["finance", "sports", "technology"]
        assert "{text}" in of["template"]


def test_right_labels_are_counted_in_either_language() -> None:
    of = {"labels": ["x", "y"], "english": ["a", "b"], "rows": [["x", "1"], ["y", "2"], ["y", "3"]]}
    results = [core.ClassifyResult(label=label) for label in ("a", "y", "x")]
    assert languages._count(of, results) == 2


# Processes


class Fake:
    """A contestant without a process."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.spec = Spec(name, "core", "", "", LABEL_SENTENCE)
        self.order = order

    def label(self, texts: Any, labels: Any, question: str) -> dict[str, Any]:
        self.order.append(self.spec.name)
        return {"rows": [[0.0, -1.0]], "cpu_seconds": 0.4, "seconds": 0.5}


def test_turns_are_interleaved_after_a_warm_up() -> None:
    order: list[str] = []
    fakes: Any = [Fake("x", order), Fake("y", order)]
    timed = contestants.by_turns(fakes, ["t"] * 4, LABELS, 2)
    assert order == ["x", "y", "y", "x", "x", "y"]
    assert timed["x"] == Timed([0.4, 0.4], [0.5, 0.5], [[0.0, -1.0]])
    assert encoder.times(timed["x"], 4) == {
        "cpu_ms": 100.0, "all_cpu_ms": [100.0, 100.0], "wall_ms": 125.0,
    }  # fmt: skip


def test_one_that_cannot_run_has_its_reason(tmp_path: Path) -> None:
    specs = [
        Spec("no model", "core", str(tmp_path), sys.executable, "", {"backend": "openvino"}),
        Spec("no interpreter", "core", "", str(tmp_path / "python"), ""),
    ]
    if find_spec("sparrow_decider") is None:
        specs.append(Spec(SPARROW, "sparrow", "", sys.executable, ""))
    with ExitStack() as stack:
        running, skipped = contestants.started(specs, {}, stack)
    assert running == []
    assert set(skipped) == {spec.name for spec in specs}
    assert "cannot be started" in skipped["no interpreter"]


def test_a_process_answers_with_rows_and_has_no_vectors(smollm2_dir: Path) -> None:
    options = {"backend": "mlx_cpu", "load": {"prefix_cache": 0}}
    spec = Spec("x", "core", str(smollm2_dir), sys.executable, "{text} is", options)
    with ExitStack() as stack:
        [running], skipped = contestants.started([spec], {"OMP_NUM_THREADS": "1"}, stack)
        assert skipped == {}
        assert "backend mlx_cpu" in running.about
        reply = running.label(["Water"], ["wet", "dry", "odd"], "{text} is")
        assert running.embed(["Water"]) == []
    [row] = reply["rows"]
    assert len(row) == 3
    assert 0 < np.exp(row).sum() <= 1
    assert reply["cpu_seconds"] > 0


def test_every_contestant_has_a_runner_and_one_thread() -> None:
    specs = contestants.specs("encoder", "decoder", "peers")
    assert tuple(spec.name for spec in specs) == contestants.NAMES
    assert {spec.runner for spec in specs} == set(RUNNERS)
    assert {spec.python for spec in specs if spec.runner != "core"} == {"peers"}
    for spec in specs:
        threads = spec.options.get("threads", spec.options.get("load", {}).get("n_threads"))
        assert threads in (1, None)
    assert REFERENCE in contestants.ENCODERS
    json.dumps([spec.options for spec in specs])
