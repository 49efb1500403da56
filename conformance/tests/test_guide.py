"""The guide for authors: its template is the example's, and its commands run, in this order."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.load  # a busy machine can make it fail

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "write_a_backend.md").read_text("utf-8")
TEMPLATE = ROOT / "examples" / "template_backend.py"
COMMANDS = re.findall(r"```sh\n(.*?)```", GUIDE, flags=re.DOTALL)
SELFTEST = "infer-cli conformance --selftest\n"
WITHOUT_SELFTEST = [command for command in COMMANDS if command != SELFTEST]
FILES = dict(re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", GUIDE, flags=re.DOTALL))


def test_the_template_is_the_one_in_examples_and_short() -> None:
    assert FILES["template_backend.py"] == TEMPLATE.read_text("utf-8")
    assert len(TEMPLATE.read_text("utf-8").splitlines()) <= 60


def test_every_shown_file_and_command_is_found() -> None:
    assert set(FILES) == {"template_backend.py", "pyproject.toml", "test_conformance.py"}
    assert len(COMMANDS) + len(FILES) == GUIDE.count("```") // 2
    assert COMMANDS.count(SELFTEST) == 1


@pytest.mark.dist
@pytest.mark.parametrize(
    "commands",
    [
        # test_teeth.py, among the soaks too, asks every saboteur what the self-test asks, and more.
        pytest.param(WITHOUT_SELFTEST, marks=pytest.mark.slow, id="without the self-test"),
        pytest.param(COMMANDS, marks=pytest.mark.long, id="whole"),
    ],
)
def test_from_an_empty_folder_to_a_certified_wheel(
    commands: list[str], wheels: Path, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "dist").mkdir()
    for requirements in wheels.glob("*.txt"):
        shutil.copy(requirements, tmp_path / "dist")
    python = Path(sys.executable).parent
    own = ("PYTHONPATH", "VIRTUAL_ENV", "INFER_MODEL", "PYTEST_CURRENT_TEST")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {
        "CORE": str(tmp_path),  # the reader's checkout, as far as the page uses it
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PATH": f"{python}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["sh", "-e", "-x"],
        input="".join(commands),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["verdict"] == "conformant"
    badge = json.loads((tmp_path / "badge.json").read_text("utf-8"))
    refused = sum(bool(check["refused"]) for check in report["checks"])
    assert badge["message"] == f"{len(report['checks']) - refused} checked, {refused} refused"
    assert len(list((tmp_path / "dist").glob("core_template-*.whl"))) == 1
