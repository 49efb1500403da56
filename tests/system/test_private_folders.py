"""The cache folder's place, and which folders are fit for code that will be run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from core.system import outputs
from core.system.outputs import cache_root, private_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("/elsewhere", "/elsewhere/core"),
        ("", "/home/me/.cache/core"),
        ("a/b", "/home/me/.cache/core"),
    ],
)
def test_the_place(monkeypatch: pytest.MonkeyPatch, named: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert cache_root() == Path(expected)


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(FileNotFoundError, match="Set XDG_CACHE_HOME"):
        cache_root()


def test_it_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = private_folder(tmp_path / "code")
    finally:
        os.umask(old)
    assert mode(folder) == 0o700
    assert private_folder(folder) == folder


def test_a_folder_that_others_could_only_read_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    folder.chmod(0o755)
    assert mode(private_folder(folder)) == 0o700


@pytest.mark.parametrize("bits", [0o777, 0o702, 0o775, 0o1777])
def test_a_folder_that_others_could_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    monkeypatch.setattr(outputs, "_is_only_ours", lambda group: False)
    for name in ("code", "above") if bits < 0o1000 else ("code",):
        shared = tmp_path / name
        shared.mkdir()
        shared.chmod(bits)
        place = shared if name == "code" else shared / "code"
        with pytest.raises(PermissionError, match=f"write to {shared}.*chmod go-w"):
            private_folder(place)
        assert mode(shared) == bits


def test_a_group_of_ones_own_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_is_only_ours", lambda group: group == os.getegid())
    (tmp_path / "above").mkdir()
    (tmp_path / "above").chmod(0o775)
    assert mode(private_folder(tmp_path / "above" / "code")) == 0o700


def test_a_sticky_folder_above_is_fine(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    assert mode(private_folder(tmp_path / "tmp" / "code")) == 0o700


def test_a_link_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "code").symlink_to(tmp_path / "target")
    with pytest.raises(PermissionError, match="is a link"):
        private_folder(tmp_path / "code")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(OSError, match="exists"):
        private_folder(tmp_path / "dangling")
    assert not (tmp_path / "nothing").exists()


def test_a_link_above_is_followed_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "_is_only_ours", lambda group: False)
    (tmp_path / "target").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "target")
    assert private_folder(tmp_path / "cache" / "code").is_dir()
    (tmp_path / "target").chmod(0o777)
    with pytest.raises(PermissionError, match=f"write to {tmp_path / 'target'}"):
        private_folder(tmp_path / "cache" / "code")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir(mode=0o700)
    os.chown(tmp_path / "code", 12345, -1)
    with pytest.raises(PermissionError, match=r"belongs to another user \(id 12345\)"):
        private_folder(tmp_path / "code")


def test_where_nothing_can_be_made() -> None:
    with pytest.raises(OSError, match="null"):
        private_folder(Path("/dev/null/core/code"))
