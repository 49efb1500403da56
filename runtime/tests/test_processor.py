"""The processor's name on made-up machines."""

from __future__ import annotations

import platform
from pathlib import Path

from core_runtime.processor import processor_name


def test_the_name_of_the_first_processor(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: A: 1\n\nprocessor\t: 1\nmodel name\t: B\n")
    assert processor_name(file) == "A: 1"


def test_without_a_name_it_is_the_kind(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    kind = platform.processor() or platform.machine()
    assert processor_name(file) == kind
    file.write_text("Features\t: fp asimd\n")
    assert processor_name(file) == kind
