"""``infer-cli discover`` and ``info`` with a model that only a third party's backend knows."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def cli(infer_cli: InferCli, tmp_path: Path) -> InferCli:
    """The command with the example's distribution installed, and the template's."""
    for name in ("markov", "template"):
        folder = tmp_path / "site" / f"{name}-1.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(
            f"[core.backends]\n{name} = {name}_backend:{name.title()}\n"
        )
    return infer_cli.beside(tmp_path / "site", EXAMPLES)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of the example, with a text beside it."""
    spec = importlib.util.spec_from_file_location("markov_example", EXAMPLES / "markov_backend.py")
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    path = tmp_path / "models" / "tales.markov"
    path.parent.mkdir()
    example.make_model("Once upon a time.", path)
    (path.parent / "notes.txt").write_text("nothing")
    return path


def test_discover_and_info_show_it_and_who_loads_it(cli: InferCli, model: Path) -> None:
    done = cli.finish("discover", model.parent, "--json")
    (record,) = json.loads(done.stdout)
    assert (record["path"], record["format"], record["model_type"], record["backends"]) == (
        *(str(model), "markov", "markov"),
        ["markov"],
    )
    done = cli.finish("info", model, "--json")
    facts = json.loads(done.stdout)
    assert done.exit_code == 0
    same = ("path", "format", "model_type", "size_bytes", "modified", "backend", "backends")
    assert {key: facts[key] for key in same} == {key: record[key] for key in same}
    assert "that reads markov, can run on this machine" in facts["reason"]
    said = cli.finish("generate", "-m", model, "-n", "5", "Once")
    assert (said.exit_code, said.stdout) == (0, " upon\n")


def test_info_of_a_damaged_one_has_the_exit_code_of_any_other(cli: InferCli, model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-1])
    done = cli.finish("info", model, "--json")
    facts = json.loads(done.stdout)
    assert (done.exit_code, facts["backend"], facts["format"]) == (4, None, "markov")
    assert facts["problem"].startswith("truncated (")
    (record,) = json.loads(cli.finish("discover", model.parent, "--json").stdout)
    assert (record["problem"], record["reason"]) == (facts["problem"], facts["reason"])


def test_info_of_what_is_not_a_model_to_anybody(cli: InferCli, model: Path) -> None:
    notes = model.parent / "notes.txt"
    done = cli.finish("info", notes)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "is not a GGUF file" in done.stderr
    # A backend that is named may load what it does not describe.
    named = cli.finish("info", notes, "--backend", "template", "--json")
    facts = json.loads(named.stdout)
    assert (named.exit_code, facts["format"], facts["backend"]) == (0, None, "template")
    loaded = cli.finish("info", notes, "--backend", "template", "--load")
    assert loaded.exit_code == 3
    assert cli.finish("info", model.parent / "nothing", "--backend", "template").exit_code == 3


def test_info_of_config_json_alone_agrees_with_the_load(cli: InferCli, tmp_path: Path) -> None:
    directory = tmp_path / "template"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "template"}')
    done = cli.finish("info", directory, "--backend", "template", "--load", "--json")
    facts = json.loads(done.stdout)
    assert (done.exit_code, facts["backend"], facts["problem"]) == (0, "template", None)
    assert facts["loaded"]["info"]["vocab_size"] == 256
    found = json.loads(cli.finish("info", directory, "--json").stdout)
    assert "template" in found["backends"]


def test_it_has_a_name_behind_tab_and_in_a_store(
    cli: InferCli, model: Path, tmp_path: Path
) -> None:
    store = tmp_path / ".cache" / "core" / "models"
    store.mkdir(parents=True)
    model.rename(store / "mine.markov")
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    script = "from core_cli.completion import _names; print(*_names())"
    assert cli.finish(script=script, env=home).stdout == "mine.markov\n"
    said = cli.finish("generate", "-m", "mine.markov", "-n", "5", "Once", env=home)
    assert (said.exit_code, said.stdout) == (0, " upon\n")
