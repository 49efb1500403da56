"""The counts and the table of benchmarks/agreement.py."""

from __future__ import annotations

from benchmarks import agreement
from benchmarks.agreement import Labelled


def test_labels_are_compared_on_all_rows_and_on_clear_ones() -> None:
    wide = [Labelled("a", 0.5, True), Labelled("b", 0.01, False), Labelled("a", 0.3, True)]
    narrow = [Labelled("a", 0.4, True), Labelled("a", 0.02, True), Labelled("b", 0.1, False)]
    assert agreement.compared(wide, narrow) == {
        "rows": 3,
        "equal": 1,
        "clear_rows": 2,
        "clear_equal": 1,
        "accuracy": 2 / 3,
        "accuracy_of_float32": 2 / 3,
    }


def test_the_table_has_a_line_for_each_model_dtype_and_report() -> None:
    row = {
        "model": "m", "dtype": "int8", "rows": 2000, "equal": 1999, "clear_rows": 1000,
        "clear_equal": 1000, "accuracy": 0.5, "accuracy_of_float32": 0.505,
    }  # fmt: skip
    reports = [
        {"machine": {"instructions": instructions}, "results": [row]}
        for instructions in ("AVX512_BF16, AMX, AVX512_VNNI", "AVX512_BF16, AVX512_VNNI")
    ]
    figures = "99.95% of 2,000 | 100.00% of 1,000 | -0.50 points"
    assert agreement.table(reports).splitlines()[2:] == [
        f"| m | int8 | AMX | {figures} |",
        f"| m | int8 | AVX512_BF16, AVX512_VNNI | {figures} |",
    ]
