"""``infer-cli merge``: parts whose rows differ in what they have, made one."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from core_cli.jobs.journal import Journal

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli


@pytest.fixture
def parts(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> dict[str, list[Path]]:
    """Two parts in each form, of which the odd rows have other fields than the even ones."""
    rows = tmp_path / "rows.jsonl"
    odd = {"id": 1, "text": "a", "only": 'x,"y"', "n": None, "big": 2}
    even = {"text": "b", "id": 2, "n": 5, "big": 0.5}
    rows.write_text("".join(json.dumps(row) + "\n" for row in (odd, even, odd, even)))
    found: dict[str, list[Path]] = {}
    for form in ("csv", "tsv", "jsonl", "json", "parquet"):
        found[form] = [tmp_path / f"part{n}.{form}" for n in (1, 2)]
        asked = ("classify", "-m", fake_model, "--labels", "a,b", "-i", rows)
        for n, part in enumerate(found[form], 1):
            assert infer_cli(*asked, "-o", part, "--shard", f"{n}/2").exit_code == 0
        assert infer_cli(*asked, "-o", tmp_path / f"whole.{form}").exit_code == 0
    return found


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "json"])
def test_a_merged_text_is_that_of_the_whole(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path, form: str
) -> None:
    """Whichever part is named first: the columns are those of the first rows."""
    for order in (parts[form], parts[form][::-1]):
        merged = tmp_path / f"merged.{form}"
        done = infer_cli("merge", merged, *order, "--overwrite")
        assert done.exit_code == 0, done.output
        assert merged.read_bytes() == (tmp_path / f"whole.{form}").read_bytes()


def test_merged_columns_hold_what_either_part_has(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path
) -> None:
    merged = tmp_path / "merged.parquet"
    done = infer_cli("merge", merged, *parts["parquet"])
    assert done.exit_code == 0, done.output
    table, whole = map(pyarrow.parquet.read_table, (merged, tmp_path / "whole.parquet"))
    assert table.schema == whole.schema
    assert table.to_pylist() == whole.to_pylist()
    assert [row["n"] for row in table.to_pylist()] == [None, 5, None, 5]
    assert [row["big"] for row in table.to_pylist()] == [2.0, 0.5, 2.0, 0.5]


def test_a_part_is_not_written_over(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path
) -> None:
    first, second = parts["csv"]
    before = first.read_bytes()
    refused = infer_cli("merge", first, first, second, "--overwrite")
    assert refused.exit_code == 2
    assert "is one of the shards" in refused.stderr
    assert first.read_bytes() == before


def test_a_part_that_was_changed_is_refused(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path
) -> None:
    first, second = parts["csv"]
    with open(second, "a") as stream:
        csv.writer(stream).writerow([9, "mine"])
    refused = infer_cli("merge", tmp_path / "merged.csv", first, second)
    assert refused.exit_code == 2
    assert f"{second} was finished with 139 bytes, and has 147 now." in refused.stderr


def test_a_part_with_one_byte_changed_is_refused(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path
) -> None:
    for form in ("jsonl", "parquet"):
        first, second = parts[form]
        data = bytearray(second.read_bytes())
        data[len(data) // 2] ^= 1
        second.write_bytes(data)
        refused = infer_cli("merge", tmp_path / f"merged.{form}", first, second)
        assert refused.exit_code == 2
        assert f"{second} was finished with other bytes than it has now." in refused.stderr


@pytest.mark.parametrize("shard", [[1], [1, 2, 3], ["1", 2], [0, 2], "12", {"1": 2}])
def test_a_part_that_does_not_say_which_is_refused(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path, shard: object
) -> None:
    first, second = parts["csv"]
    journal = second.with_name(f"{second.name}.journal")
    begun, rest = journal.read_bytes().split(b"\n", 1)
    entry = json.loads(begun)
    entry["job"]["shard"] = shard
    journal.write_bytes(json.dumps(entry).encode() + b"\n" + rest)
    refused = infer_cli("merge", tmp_path / "merged.csv", first, second)
    assert refused.exit_code == 2
    assert f"The journal of {second} has no valid shard number" in refused.stderr


def test_a_thousand_million_parts_are_not_counted_one_by_one(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path
) -> None:
    for part in parts["csv"]:
        journal = part.with_name(f"{part.name}.journal")
        journal.write_bytes(journal.read_bytes().replace(b", 2]", b", 1000000000]", 1))
    refused = infer_cli("merge", tmp_path / "merged.csv", *parts["csv"])
    assert refused.exit_code == 2
    assert "Shard 3 of 1000000000 is missing" in refused.stderr


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("csv", b"text,label\nx,y\n"),
        ("csv", b""),
        ("csv", b"line,label\none,y\n"),
        ("jsonl", b'{"text": "x"}\n'),
        ("jsonl", b"[1]\n"),
        ("jsonl", b"{\n"),
        ("json", b"[\n" + b"9" * 5_000 + b"\n]\n"),
    ],
    ids=range(7),
)
def test_a_part_without_the_rows_of_a_job_is_refused(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path, form: str, data: bytes
) -> None:
    """Its journal agrees with it: somebody made both."""
    first, second = parts[form]
    second.write_bytes(data)
    with Journal(second) as journal:
        journal.cut(0)
        journal.finish(len(data))
    refused = infer_cli("merge", tmp_path / f"merged.{form}", first, second)
    assert refused.exit_code == 2, refused.output
    assert "is not the output of a job" in refused.stderr


def test_a_merged_file_takes_no_links_place(
    infer_cli: InferCli, parts: dict[str, list[Path]], tmp_path: Path
) -> None:
    link, real = tmp_path / "link.csv", tmp_path / "real.csv"
    link.symlink_to(real)
    assert infer_cli("merge", link, *parts["csv"]).exit_code == 0
    assert link.is_symlink()
    assert real.read_bytes() == (tmp_path / "whole.csv").read_bytes()
