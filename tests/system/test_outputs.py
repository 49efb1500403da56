"""The guard of files that are written: what is replaced, what is not, and who may read it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import OutputError
from core.system import outputs

KIND = outputs.Kind("a list", re.compile(rb"# list\n"))
PUBLIC = outputs.Kind("a list", re.compile(rb"# list\n"), private=False)
OURS, MINE = "# list\n1\n", "years of work\n"


@pytest.fixture(autouse=True)
def usual_mask() -> None:
    os.umask(0o022)


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def test_a_new_file_is_its_owners_alone_unless_its_kind_is_public(tmp_path: Path) -> None:
    private, public, grown = (tmp_path / name for name in ("private", "public", "grown"))
    outputs.write(private, OURS, KIND)
    outputs.write(public, OURS, PUBLIC)
    os.close(outputs.opened(grown))
    assert [mode(file) for file in (private, public, grown)] == [0o600, 0o644, 0o600]
    assert private.read_text() == OURS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grown", "private", "public"]


def test_a_file_of_its_kind_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text(OURS)
    file.chmod(0o640)
    link.symlink_to("file")
    outputs.write(link, "# list\n2\n", KIND)
    assert file.read_text() == "# list\n2\n"
    assert mode(file) == 0o640
    assert link.is_symlink()
    with pytest.raises(OutputError, match=r"link exists\. Replace it \(--overwrite"):
        outputs.write(link, OURS, KIND, overwrite=False)
    file.write_bytes(b"")  # nothing to lose
    outputs.write(file, OURS, KIND, overwrite=False)
    assert file.read_text() == OURS


@pytest.mark.parametrize("content", [MINE, "# lis", "#", "x" + OURS])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_of_anything_else_stays(tmp_path: Path, content: str, overwrite: bool) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text(content)
    link.symlink_to("file")
    for place in (file, link):
        for act in (outputs.check, lambda *a, **b: outputs.write(a[0], OURS, *a[1:], **b)):
            with pytest.raises(OutputError, match="is not a list written by this program"):
                act(place, KIND, overwrite=overwrite)
    outputs.remove(file, KIND)
    outputs.remove(link, KIND)
    assert file.read_text() == content
    assert link.is_symlink()


def fill(file: Path, text: str, then: Callable[[], object]) -> None:
    with outputs.draft(file, KIND) as draft:
        draft.write_text(text)
        then()


def test_what_came_while_a_draft_was_filled_stays(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with pytest.raises(OutputError):
        fill(file, OURS, lambda: file.write_text(MINE))
    assert file.read_text() == MINE
    assert os.listdir(tmp_path) == ["file"]


def test_a_draft_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(OURS)
    with pytest.raises(ZeroDivisionError):
        fill(file, "# list\nhalf", lambda: 1 / 0)
    assert file.read_text() == OURS
    assert os.listdir(tmp_path) == ["file"]


def linked(file: Path) -> None:
    file.symlink_to(file.with_name("other"))


def doubled(file: Path) -> None:
    file.with_name("other").write_text(MINE)
    file.hardlink_to(file.with_name("other"))


@pytest.mark.parametrize("make", [linked, doubled, Path.mkdir, os.mkfifo])
def test_what_grows_in_place_is_a_plain_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    make(file)
    with pytest.raises(OutputError):
        outputs.opened(file)
    assert not other.exists() or other.read_text() == MINE


@pytest.mark.parametrize("name", ["none/file", "."])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match=re.escape(str(tmp_path))):
        outputs.check(tmp_path / name, KIND)


SCRIPT = """
import re, sys
from core.system import outputs, terminal
terminal.take()
kind = outputs.Kind("a list", re.compile(b"# list"))
print("noise")
for place in sys.argv[1:]:
    outputs.check(place, kind)
    outputs.write(place, "# list\\n", kind)
    try:
        with outputs.draft(place, kind):
            raise AssertionError
    except outputs.OutputError:
        pass
"""


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="there are no names for descriptors")
@pytest.mark.parametrize("before", [MINE, ""])
def test_a_descriptor_is_written_to_and_never_replaced(tmp_path: Path, before: str) -> None:
    """Also where it leads to a regular file, and where the program has moved stdout."""
    file, log, link = tmp_path / "file", tmp_path / "log", tmp_path / "link"
    link.symlink_to("/dev/stdout")
    places = ["/dev/stdout", "/dev/fd/1", str(link), "/dev/stderr", "/dev/fd/2", "/dev/null"]
    file.write_text(before)
    number = file.stat().st_ino
    with open(file, "a") as out, open(log, "w") as err:
        command = [sys.executable, "-c", SCRIPT, *places]
        subprocess.run(command, stdout=out, stderr=err, check=True)
    assert file.read_text() == before + "# list\n" * 3
    assert file.stat().st_ino == number
    assert log.read_text().count("# list\n") == 2
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "log"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        outputs.write(pipe, OURS, KIND)
        assert reader.communicate()[0] == OURS.encode()
    assert pipe.is_fifo()
