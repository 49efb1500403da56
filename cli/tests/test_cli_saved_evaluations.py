"""``eval --from`` and ``--compare`` of files that somebody changed: refused with line and place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

ITEM: dict[str, object] = {
    "line": 1,
    "gold": "a",
    "prediction": "a",
    "right": True,
    "sureness": 0.75,
    "probabilities": {"a": 0.75, "b": 0.25},
    "logprobs": {"a": -0.3, "b": -1.4},
    "right_normalised": False,
    "tokens": 3,
    "samples": [{"output": "a", "said": "a", "right": True}],
    "majority": "a",
    "majority_right": True,
    "batch_sizes": {"8": {"right": True, "same": False}},
    "among_examples": False,
    "error": None,
    "question": "which?",
}
CHANGES: dict[str, tuple[dict[str, object], str]] = {
    "line": ({"line": "1"}, "line is '1', not a whole number"),
    "gold": ({"gold": 3}, "gold is 3, not a text"),
    "prediction": ({"prediction": []}, "prediction is [], not a text"),
    "right": ({"right": "yes"}, "right is 'yes', not true or false"),
    "sureness": ({"sureness": float("nan")}, "sureness is nan, not a number from -1e-06 to"),
    "sure beyond 1": ({"sureness": 7.0}, "sureness is 7.0, not"),
    "probabilities": ({"probabilities": [1]}, "probabilities is [1], not a table"),
    "a probability": ({"probabilities": {"a": 1e308}}, "probabilities.a is 1e+308, not a number"),
    "tokens": ({"tokens": "many"}, "tokens is 'many', not a whole number"),
    "samples": ({"samples": [3]}, "samples[0] is 3, not a table"),
    "a sample": ({"samples": [{}]}, "samples[0].right is missing"),
    "majority": ({"majority_right": None}, "majority_right is None, not true or false"),
    "sizes": ({"batch_sizes": {"8": None}}, "batch_sizes.8 is None, not a table"),
    "a size": ({"batch_sizes": {"8": {"right": 1}}}, "batch_sizes.8.right is 1, not true or fa"),
    "examples": ({"among_examples": 0}, "among_examples is 0, not true or false"),
}


def written(path: Path, *items: dict[str, object] | bytes) -> Path:
    lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in items]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_a_written_evaluation_is_added_up(infer_cli: InferCli, tmp_path: Path) -> None:
    failed = {**ITEM, "right": None, "prediction": None, "error": {"type": "X", "message": "x"}}
    done = infer_cli("eval", "--from", written(tmp_path / "e.jsonl", ITEM, failed), "--json")
    assert done.exit_code in (0, 5), done.output
    figures = json.loads(done.stdout)
    assert (figures["items"], figures["failed"], figures["right"]) == (2, 1, 1)
    assert figures["brier"] == pytest.approx(2 * 0.25**2)
    assert figures["generated_tokens"] == 3


@pytest.mark.parametrize("what", CHANGES)
def test_an_odd_item_is_refused_with_its_line_and_place(
    infer_cli: InferCli, tmp_path: Path, what: str
) -> None:
    change, reason = CHANGES[what]
    sound = written(tmp_path / "sound.jsonl", ITEM, ITEM)
    odd = written(tmp_path / "odd.jsonl", ITEM, {**ITEM, **change})
    for asked in (("--from", odd), ("--compare", sound, odd)):
        done = infer_cli("eval", *asked)
        assert done.exit_code == 2, done.output
        told = f"{odd}, line 2 is not an item written by eval"
        assert told in done.stderr
        assert f": {reason}" in done.stderr


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"line": ' + b"9" * 5_000 + b"}", "a number with too many digits"),
        (b'{"line": 1, "gold": "\xff"}', "it is not UTF-8"),
        (b"{}", "line is missing"),
        (b'{"line": 1, "gold": "a", "right": true, "error": null}', "prediction is missing"),
        (b"[1]", "it is [1], not a table"),
    ],
    ids=range(6),
)
def test_what_is_no_item_is_refused(
    infer_cli: InferCli, tmp_path: Path, line: bytes, reason: str
) -> None:
    done = infer_cli("eval", "--from", written(tmp_path / "e.jsonl", ITEM, line))
    assert done.exit_code == 2, done.output
    assert "line 2 is not an item" in done.stderr
    assert reason in done.stderr


def test_a_line_without_an_end_is_not_read_for_ever(infer_cli: InferCli, tmp_path: Path) -> None:
    endless = tmp_path / "endless"
    with open(endless, "wb") as file:
        file.truncate(2**40)  # sparse: it takes no space on disk
    done = infer_cli("eval", "--from", endless)
    assert done.exit_code == 2
    assert f"{endless} is not a saved evaluation: it has a line of {2**26} bytes" in done.stderr
    os.truncate(endless, 0)
    assert "contains no items" in infer_cli("eval", "--from", endless).stderr
