"""The requirements files of ``make dist``: pip takes the wheels here, whatever an index offers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import requirement_files

ROOT = Path(__file__).parents[1]
MEMBER, RUNTIME, FRAMES = "infercore-mlx-native", "infercore-runtime", "infercore-frames"
NEEDS = {
    "core": [
        'click; extra == "cli"',
        'core[cli]; extra == "mlx"',
        f'{MEMBER}[cpu]==0.1.0; extra == "mlx"',
        'core[cli]; extra == "frames"',
        f'{FRAMES}==0.1.0; extra == "frames"',
    ],
    MEMBER: [
        "core==0.1.0",
        "infercore.runtime==0.1.0",
        'click; extra == "cpu"',
    ],  # another spelling
    RUNTIME: ["core==0.1.0"],
    FRAMES: ["core[cli]==0.1.0"],
    "click": [],
}
EXTRAS = {"core": ["cli", "frames", "mlx"], MEMBER: ["cpu"]}


def wheel(folder: Path, name: str, version: str = "0.1.0", build: str = "") -> Path:
    """A wheel without code, as pip reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Provides-Extra: {extra}" for extra in EXTRAS.get(name, [])]
    metadata += [f"Requires-Dist: {need}" for need in NEEDS[name]]
    path = folder / f"{stem}{build}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", "\n".join([*metadata, ""]))
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{stem}.dist-info/WHEEL", tags)
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """The wheels of four distributions, in a folder whose name an address has to quote."""
    folder = tmp_path / "a folder #1 ${HOME}"
    for name in ("core", MEMBER, RUNTIME, FRAMES):
        wheel(folder, name)
    return folder


@pytest.fixture
def index(tmp_path: Path) -> str:
    """An index where a stranger registered each name, twice: both ways win over a folder."""
    for name in NEEDS:
        folder = tmp_path / "index" / name
        files = [wheel(folder, name, "0.1.0", build="-9"), wheel(folder, name, "0.1.1")]
        links = [f'<a href="{path.name}">{path.name}</a>' for path in files]
        (folder / "index.html").write_text("".join(links))
    return (tmp_path / "index").as_uri()


def taken(index: str, *wanted: str | Path, cwd: Path) -> dict[str, str]:
    """The address of each distribution that this interpreter's pip would install."""
    report = cwd / "report.json"
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install"]
    options = ["--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
    command = [*pip, *options, "-i", index, *map(str, wanted)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    installed = json.loads(report.read_text())["install"]
    return {each["metadata"]["name"]: each["download_info"]["url"] for each in installed}


@pytest.mark.parametrize(
    ("extras", "members"),
    [
        (["mlx"], {MEMBER, RUNTIME}),
        (["frames"], {FRAMES}),
        (["frames", "mlx"], {MEMBER, RUNTIME, FRAMES}),
    ],
)
def test_an_index_gives_nothing_of_ours(
    dist: Path, index: str, tmp_path: Path, extras: Sequence[str], members: set[str]
) -> None:
    requirement_files.write(dist)
    files = [word for extra in extras for word in ("-r", dist / f"{extra}.txt")]
    found = taken(index, *files, cwd=tmp_path)
    assert found.pop("click").startswith(index)  # the index is read
    assert found == {
        name: (dist / f"{name.replace('-', '_')}-0.1.0-py3-none-any.whl").as_uri()
        for name in {"core", *members}
    }


@pytest.mark.parametrize("wanted", ["core[mlx]", "core[mlx]==0.1.0"])
def test_the_attack_works_on_names(dist: Path, index: str, tmp_path: Path, wanted: str) -> None:
    """Otherwise the test above shows nothing."""
    found = taken(index, "--find-links", dist, wanted, cwd=tmp_path)
    assert found[MEMBER].startswith(index)


def test_each_line_is_an_address(dist: Path) -> None:
    files = requirement_files.write(dist)
    assert [path.name for path in files] == ["cli.txt", "frames.txt", "mlx.txt"]
    written = {path.stem: path.read_text() for path in files}
    places = r" @ file:///\S+/a%20folder%20%231%20%24%7BHOME%7D/(\w+)-0\.1\.0-py3-none-any\.whl\n"
    assert [re.sub(places, r" \1\n", text) for text in written.values()] == [
        "core[cli] core\n",
        "core[cli,frames] core\ninfercore-frames infercore_frames\n",
        "core[cli,mlx] core\ninfercore-mlx-native[cpu] infercore_mlx_native\n"
        "infercore-runtime infercore_runtime\n",
    ]


def test_a_folder_of_no_use_is_refused(
    dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel(dist, MEMBER, build="-9")
    assert requirement_files.main([str(dist)]) == 1
    assert (
        "infercore_mlx_native-0.1.0-9-py3-none-any.whl and infercore_mlx" in capsys.readouterr().err
    )
    assert requirement_files.main([str(tmp_path / "none")]) == 1
    assert "holds no wheel of core: run make dist" in capsys.readouterr().err


def test_every_extra_has_a_file_that_names_its_members(wheels: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {path.stem for path in wheels.glob("*.txt")} == set(project["optional-dependencies"])
    every = (wheels / "all.txt").read_text()
    assert all(path.as_uri() in every for path in wheels.glob("*.whl"))


def test_the_release_page_names_every_distribution() -> None:
    page = (ROOT / "docs" / "development.md").read_text()
    (section,) = re.findall(r"^## A release\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    files = [ROOT / "pyproject.toml"]
    for folder in ("*", "plugins/*"):
        files += ROOT.glob(f"{folder}/pyproject.toml")
    names = {tomllib.loads(path.read_text())["project"]["name"] for path in files}
    first = section.partition("A name that")[0]
    assert set(re.findall(r"`([\w-]+)`", first)) == names
    assert f"the {len(names)} names" in first


def test_no_page_installs_by_name() -> None:
    pages = [*ROOT.glob("*/README.md"), *ROOT.glob("plugins/*/README.md")]
    pages += [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/**/*.py")]
    pages += [*ROOT.glob("core/**/*.py"), *ROOT.glob("*/src/**/*.py")]
    pages += ROOT.glob("plugins/*/src/**/*.py")
    named = re.compile(r"pip install (?:--?\S+ )*(?:\w+ )?['\"]?core(?:-\w+|\[)")
    assert [path.name for path in pages if named.search(path.read_text())] == []
