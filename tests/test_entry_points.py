"""Reading a group of entry points from metadata."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.plugins import read_group

PLUGINS = Path(__file__).parent / "data" / "plugins"
Use = Callable[..., None]


def test_reads_one_group_sorted_and_imports_nothing(use_plugins: Use) -> None:
    use_plugins("sound")
    sys.modules.pop("fake_sound", None)
    records, failures = read_group("core.backends")
    assert [record.name for record in records] == ["fake_factory", "fake_instance", "fake_sound"]
    assert {(record.distribution, record.version) for record in records} == {("fake-sound", "1.0")}
    assert records[2].value == "fake_sound:Backend"
    assert failures == ()
    assert "fake_sound" not in sys.modules


def test_groups_are_apart(use_plugins: Use) -> None:
    use_plugins("sound")
    assert [record.name for record in read_group("core.hooks")[0]] == ["fake_hooks"]
    assert read_group("core") == ((), ())


def test_load_imports_the_object(use_plugins: Use) -> None:
    use_plugins("sound")
    loaded = read_group("core.backends")[0][2].load()
    assert getattr(loaded, "name", None) == "fake_sound"


@pytest.mark.parametrize("order", [("malformed", "sound"), ("sound", "malformed")])
def test_a_malformed_file_hides_only_its_own_distribution(
    use_plugins: Use, order: tuple[str, str]
) -> None:
    use_plugins(*order)
    records, failures = read_group("core.backends")
    assert {record.distribution for record in records} == {"fake-sound"}
    assert [failure.distribution for failure in failures] == ["fake-malformed"]
    assert isinstance(failures[0].error, Exception)


def test_bytes_that_are_no_text_hide_only_their_own_distribution(
    use_plugins: Use, tmp_path: Path
) -> None:
    shutil.copytree(PLUGINS / "malformed", tmp_path, dirs_exist_ok=True)
    points = tmp_path / "fake_malformed-1.0.dist-info" / "entry_points.txt"
    points.write_bytes(b"[core.backends]\nx = \xff\xfe\n")
    use_plugins(tmp_path, "sound")
    records, failures = read_group("core.backends")
    assert len(records) == 3
    assert [failure.distribution for failure in failures] == ["fake-malformed"]


def test_a_distribution_without_a_name_is_a_failure(use_plugins: Use, tmp_path: Path) -> None:
    shutil.copytree(PLUGINS / "sound", tmp_path, dirs_exist_ok=True)
    (tmp_path / "fake_sound-1.0.dist-info" / "METADATA").write_text("Version: 1.0\n")
    use_plugins(tmp_path)
    records, failures = read_group("core.backends")
    assert records == ()
    assert str(tmp_path) in failures[0].distribution


def test_of_two_copies_the_first_on_the_path_counts(use_plugins: Use, tmp_path: Path) -> None:
    old = tmp_path / "Fake.Sound-0.9.dist-info"  # another spelling of the same name
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: Fake.Sound\nVersion: 0.9\n")
    (old / "entry_points.txt").write_text("[core.backends]\nfake_old = fake_sound:Backend\n")
    use_plugins(tmp_path, "sound")
    assert [record.name for record in read_group("core.backends")[0]] == ["fake_old"]
    use_plugins("sound", tmp_path)
    assert "fake_old" not in {record.name for record in read_group("core.backends")[0]}


def test_a_first_copy_without_the_group_hides_the_second(use_plugins: Use, tmp_path: Path) -> None:
    newer = tmp_path / "fake_sound-2.0.dist-info"
    newer.mkdir()
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-sound\nVersion: 2.0\n")
    use_plugins(tmp_path, "sound")
    assert read_group("core.backends") == ((), ())


def test_doubles_are_all_listed(use_plugins: Use) -> None:
    use_plugins("twin_b", "twin_a")
    records, _ = read_group("core.backends")
    assert [record.distribution for record in records] == ["fake-twin-a", "fake-twin-b"]
    assert {record.name for record in records} == {"fake_twin"}
