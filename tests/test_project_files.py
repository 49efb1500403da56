"""The files that a contributor meets: workflows, templates, hooks, and the first patch."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from core import plugins

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML = [*WORKFLOWS, *(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")]
YAML += [ROOT / ".pre-commit-config.yaml"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PATCHED = (ROOT / "core" / "plugins.py", ROOT / "tests" / "test_registry.py")
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")


def jobs(workflow: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load(workflow.read_text())["jobs"].values()


@pytest.mark.parametrize("file", YAML, ids=lambda file: str(file.name))
def test_it_is_yaml_that_names_no_host(file: Path) -> None:
    assert isinstance(yaml.safe_load(file.read_text()), dict)
    assert "://" not in file.read_text()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: str(file.name))
def test_a_workflow_calls_make_targets_that_exist(workflow: Path) -> None:
    lines = [step.get("run", "") for job in jobs(workflow) for step in job["steps"]]
    called = {match for line in lines for match in re.findall(r"make ([a-z-]+)", line)}
    assert called
    assert called <= TARGETS
    assert all("timeout-minutes" in job for job in jobs(workflow))


def test_the_workflows_run_each_python_that_the_metadata_names() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    (workflow,) = (file for file in WORKFLOWS if file.name == "test.yml")
    matrices = [job["strategy"]["matrix"]["python"] for job in jobs(workflow)]
    assert matrices == [named] * 2
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_only_the_job_that_publishes_gets_a_token() -> None:
    for workflow in WORKFLOWS:
        text = yaml.safe_load(workflow.read_text())
        assert text["permissions"] == {"contents": "read"}
        for name, job in text["jobs"].items():
            assert ("permissions" in job) == (name == "publish")
        assert "secrets." not in workflow.read_text()


def test_the_pages_link_to_files_that_exist() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text()):
            assert (ROOT / link).exists(), (page, link)


def test_the_changelog_knows_the_version() -> None:
    assert f"\n{PROJECT['version']}," in (ROOT / "CHANGELOG.md").read_text()


def test_the_first_patch_works(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    test, code = (
        [line for line in block.splitlines() if line]
        for block in re.findall(r"```diff\n(.*?)```", text, flags=re.DOTALL)
    )
    for line in (*test, *code):  # what is there today
        if line[0] in "- ":
            assert f"\n{line[1:]}\n" in "".join(map(Path.read_text, PATCHED)), line
    ((name, parts),) = ast.literal_eval("".join(["[", *added(test), "]"]))
    assert parts[0] not in plugins.unknown_backend(name, ["mlx_cpu"], [])
    families = ast.literal_eval("\n".join(added(code)).partition(" = ")[2])
    monkeypatch.setattr(plugins, "_FAMILIES", families)
    message = plugins.unknown_backend(name, ["mlx_cpu"], [])
    assert all(part in message for part in parts)


def added(lines: list[str]) -> list[str]:
    """The lines that a patch adds."""
    return [line[1:] for line in lines if line.startswith("+")]
