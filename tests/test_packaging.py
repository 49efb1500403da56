"""The distributions: what they ask for, what they hold, and that they install in one command."""

from __future__ import annotations

import ast
import email.message
import email.parser
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import core

ROOT = Path(__file__).parents[1]
MEMBERS = sorted(
    path for folder in ("*", "plugins/*") for path in ROOT.glob(f"{folder}/pyproject.toml")
)
FROM_CHECKOUT = (  # as in docs/install.md
    *(".[mlx]", "./cli", "./tasks", "./wires", "./runtime", "./plugins/mlx_native"),
)
CLI = {"click", "msgspec", "pluggy", "prompt-toolkit", "rich"}
OPTIONAL = {("infercore-conformance", "infercore-tasks")}  # a member, and one it does without
BACKEND = "metal" if sys.platform == "darwin" else "mlx_cpu"
# Nothing of the checkout, of this interpreter or of make may reach what is installed.
OURS = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MLX_DISABLE_COMPILE"}
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if k not in OURS},
    "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "NO_COLOR": "1",
}


def project(path: Path) -> dict[str, Any]:
    """The table [project] of a pyproject.toml."""
    table: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    return table


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def names(wheel: Path) -> set[str]:
    """The files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def read(wheel: Path, name: str) -> str:
    """A text file of a wheel's .dist-info."""
    with zipfile.ZipFile(wheel) as archive:
        (found,) = (each for each in archive.namelist() if each.endswith(f".dist-info/{name}"))
        return archive.read(found).decode()


def the_wheel(wheels: Path, distribution: str) -> Path:
    (wheel,) = wheels.glob(f"{distribution.replace('-', '_')}-*.whl")
    return wheel


@pytest.fixture(scope="module")
def metadata(wheels: Path) -> email.message.Message:
    """METADATA of the wheel of ``core``."""
    return email.parser.Parser().parsestr(read(the_wheel(wheels, "core"), "METADATA"))


def requirements(metadata: email.message.Message, extra: str) -> list[Requirement]:
    """What one extra of ``core`` asks for on Linux and on macOS, ``core[...]`` followed."""
    asked: list[Requirement] = []
    for text in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(text)
        if requirement.marker and requirement.marker.evaluate({"extra": extra}):
            asked.append(requirement)
            if requirement.name == "core":
                asked += (r for each in requirement.extras for r in requirements(metadata, each))
    return asked


# --------------------------------------------------------------------------- metadata


def test_core_asks_for_nothing(metadata: email.message.Message) -> None:
    asked = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    assert asked
    assert all("extra ==" in str(requirement.marker) for requirement in asked)
    assert not any(r.marker and r.marker.evaluate({"extra": ""}) for r in asked)


def test_the_extras(metadata: email.message.Message) -> None:
    assert set(metadata.get_all("Provides-Extra", [])) == {
        *(
            "cli",
            "tasks",
            "wires",
            "parquet",
            "xlsx",
            "mlx",
            "mlx-cuda",
            "mlx-cuda12",
            "mlx-cuda13",
        ),
        *(
            "mlx-lm",
            "llama-cpp",
            "openvino",
            "learn",
            "sklearn",
            "lm-eval",
            "remote",
            "server",
            "conformance",
        ),
        *("ray", "daft", "frames", "langchain", "llm", "mcp", "all"),
    }
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"


@pytest.mark.parametrize(
    ("extra", "member"),
    [
        ("mlx", "infercore-mlx-native[cpu]==0.1.0"),
        ("mlx-cuda", "infercore-mlx-native[cuda]==0.1.0"),
        ("mlx-cuda12", "infercore-mlx-native[cuda12]==0.1.0"),
        ("mlx-cuda13", "infercore-mlx-native[cuda13]==0.1.0"),
        ("mlx-lm", "infercore-mlx-lm-bridge[cpu]==0.1.0"),
        ("llama-cpp", "infercore-llama-cpp==0.1.0"),
        ("openvino", "infercore-openvino==0.1.0"),
        ("learn", "infercore-learn==0.1.0"),
        ("sklearn", "infercore-sklearn==0.1.0"),
        ("lm-eval", "infercore-lm-eval==0.1.0"),
        ("remote", "infercore-remote==0.1.0"),
        ("server", "infercore-server==0.1.0"),
        ("frames", "infercore-frames==0.1.0"),
        ("langchain", "infercore-langchain==0.1.0"),
        ("llm", "infercore-llm==0.1.0"),
        ("mcp", "infercore-mcp==0.1.0"),
        ("ray", "infercore-ray==0.1.0"),
        ("daft", "infercore-daft==0.1.0"),
        ("conformance", "infercore-conformance==0.1.0"),
    ],
)
def test_each_extra_brings_its_member_and_the_cli(
    metadata: email.message.Message, extra: str, member: str
) -> None:
    asked = requirements(metadata, extra)
    assert "infercore-cli" in {r.name for r in asked}
    wanted = Requirement(member)
    assert [(r.name, r.extras, r.specifier) for r in asked if r.name == wanted.name] == [
        (wanted.name, wanted.extras, wanted.specifier)
    ]


def test_all_brings_every_member_and_one_mlx(metadata: email.message.Message) -> None:
    asked = requirements(metadata, "all")
    members = {project(path)["name"] for path in MEMBERS}
    # What members share comes with the first of them.
    shared = {f"infercore-{name}" for name in ("runtime", "tasks", "wires")}
    assert {r.name for r in asked} >= members - shared
    assert [r.extras for r in asked if r.name == "infercore-mlx-native"] == [{"cpu"}]


def test_one_version_everywhere_and_exact_pins() -> None:
    root = project(ROOT / "pyproject.toml")
    members = {project(path)["name"]: project(path) for path in MEMBERS}
    assert {m["version"] for m in members.values()} == {root["version"]} == {core.__version__}
    extras = [each for extra in root["optional-dependencies"].values() for each in extra]
    pins = [Requirement(each) for each in extras if Requirement(each).name in members]
    own = [Requirement(each) for m in members.values() for each in m["dependencies"]]
    pins += [requirement for requirement in own if requirement.name in {"core", *members}]
    assert {pin.name for pin in pins} == {"core", *members}
    assert {str(pin.specifier) for pin in pins} == {f"=={core.__version__}"}


def package_of(distribution: str) -> str:
    """Return the package of a member: the distribution is infercore-NAME, the package core_NAME."""
    return distribution.removeprefix("infer").replace("-", "_")


def test_each_member_asks_for_core_and_the_members_that_it_imports() -> None:
    names = [project(path)["name"] for path in MEMBERS]
    assert all(name.startswith("infercore-") for name in names)
    distributions = {"core": "core"} | {package_of(name): name for name in names}
    for path in MEMBERS:
        table = project(path)
        declared = {Requirement(each).name for each in table["dependencies"]} | {table["name"]}
        files = path.parent.glob("src/**/*.py")
        packages = {name.split(".")[0] for file in files for name in imported(file)}
        asked = {distributions[each] for each in packages & distributions.keys()}
        asked -= {other for name, other in OPTIONAL if name == table["name"]}
        assert asked | {"core"} <= declared, path


def test_the_command_line_is_a_member_with_five_packages() -> None:
    table = project(ROOT / "cli" / "pyproject.toml")
    asked = {Requirement(each).name.replace("_", "-") for each in table["dependencies"]}
    assert asked == {"core", "infercore-tasks", "infercore-wires", *CLI}


def test_the_metadata_shows_a_readme_and_the_python_versions(wheels: Path) -> None:
    for path in (ROOT / "pyproject.toml", *MEMBERS):
        name = project(path)["name"]
        facts = email.parser.Parser().parsestr(read(the_wheel(wheels, name), "METADATA"))
        assert facts["Description-Content-Type"] == "text/markdown"
        assert str(facts.get_payload()).startswith(f"# {name}\n")
        assert facts["Author"]
        versions = [
            each.rpartition(" ")[2]
            for each in facts.get_all("Classifier", [])
            if each.startswith("Programming Language :: Python :: 3.")
        ]
        assert versions == ["3.11", "3.12", "3.13", "3.14"], name
        assert "Tag: py3-none-" in read(the_wheel(wheels, name), "WHEEL")


# --------------------------------------------------------------------------- contents


def test_the_wheel_of_core_holds_core_alone(wheels: Path) -> None:
    held = names(the_wheel(wheels, "core"))
    info = f"core-{core.__version__}.dist-info"
    assert {name.split("/")[0] for name in held} == {"core", "core_hidden.py", "infer_cli.py", info}
    assert {
        "core/py.typed",
        "core/__init__.py",
        "core/__init__.pyi",
        "core/__main__.py",
    } <= held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)
    own = {name for name in held if not name.startswith("core/testing/")}  # for users' tests
    assert not any("test" in name for name in own)
    assert {f"core/testing/{p.name}" for p in (ROOT / "core/testing").glob("*.py")} == held - own


def test_every_member_is_typed_and_holds_its_package_alone(wheels: Path) -> None:
    for path in MEMBERS:
        name = project(path)["name"]
        held = names(the_wheel(wheels, name))
        package = package_of(name)
        info = f"{name.replace('-', '_')}-{core.__version__}.dist-info"
        assert {each.split("/")[0] for each in held} == {package, info}
        assert f"{package}/py.typed" in held


def test_mlx_native_ships_its_shims_and_entry_points(wheels: Path) -> None:
    wheel = the_wheel(wheels, "infercore-mlx-native")
    shims = {f"core_mlx_native/cpu/shim/{m}/libcore_cblas_shim.so" for m in ("x86_64", "aarch64")}
    assert shims <= names(wheel)
    entry_points = ConfigParser()
    entry_points.read_string(read(wheel, "entry_points.txt"))
    assert set(entry_points["core.backends"]) == {"metal", "mlx_cuda", "mlx_cpu"}
    assert dict(entry_points["core.hooks"]) == {"mlx_native": "core_mlx_native.hooks"}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def test_core_imports_the_standard_library_alone() -> None:
    files = list(ROOT.glob("core/**/*.py"))
    assert len(files) > 10
    allowed = sys.stdlib_module_names | {"core"}
    names = {(p.name, name) for p in files for name in imported(p)}
    foreign = {(file, name) for file, name in names if name.split(".")[0] not in allowed}
    assert foreign == {("__main__.py", "core_cli")}  # where that is installed


def test_constraints_are_plain_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 20
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", pin)] == []


# --------------------------------------------------------------------------- installing


@pytest.fixture
def empty_venv(tmp_path: Path) -> Path:
    """The folder of the commands of a new virtual environment."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    return tmp_path / "venv" / "bin"


def install(venv: Path, *wanted: str | Path, cwd: Path) -> None:
    """Install with the pip of this interpreter; what is never imported is not compiled."""
    pip: tuple[str | Path, ...] = (sys.executable, "-m", "pip", "--python", venv / "python")
    run(*pip, "install", "-q", "--no-compile", *wanted, cwd=cwd)


CLASSIFY = """
import json, sys
import core
model = core.load_model(sys.argv[1], backend=sys.argv[2])
(result,) = model.classify(["hello"])
print(json.dumps({"home": core.__file__, "token": result.token.id, "error": str(result.error)}))
"""


@pytest.mark.dist
def test_from_wheels_in_an_empty_environment(
    wheels: Path, empty_venv: Path, tmp_path: Path, smollm2_dir: Path
) -> None:
    install(empty_venv, "-r", wheels / "mlx.txt", cwd=tmp_path)
    said = run(empty_venv / "python", "-c", CLASSIFY, smollm2_dir, BACKEND, cwd=tmp_path)
    facts = json.loads(said)
    assert Path(facts["home"]).is_relative_to(tmp_path)
    assert facts["error"] == "None"
    assert facts["token"] >= 0
    listed = json.loads(run(empty_venv / "infer-cli", "backends", "--json", cwd=tmp_path))
    (backend,) = (each for each in listed if each["name"] == BACKEND)
    assert backend["available"]
    if sys.platform == "linux":
        assert backend["devices"][0]["detail"].startswith("OpenBLAS")
    # A command of the plugin's, found through core.hooks.
    assert "OUT_DIR" in run(empty_venv / "infer-cli", "convert", "--help", cwd=tmp_path)


@pytest.mark.dist
@pytest.mark.slow
def test_from_a_checkout_in_one_command(empty_venv: Path, tmp_path: Path) -> None:
    install(empty_venv, *FROM_CHECKOUT, cwd=ROOT)
    assert core.__version__ in run(empty_venv / "infer-cli", "--version", cwd=tmp_path)
    where = "import core, core_mlx_native.backend; print(core.__file__)"
    assert str(tmp_path) in run(empty_venv / "python", "-c", where, cwd=tmp_path)
