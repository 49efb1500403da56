"""Further names of models, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from core.testing import FakeModel, write_model
from core_cli.app import build
from core_server import Served, Settings, create_app

BODY = {"prompt": "a", "max_tokens": 1}


def names(*models: str, aliases: Mapping[str, str]) -> TestClient:
    served = [Served(name, FakeModel("x")) for name in models]
    return TestClient(create_app(served, Settings(aliases=aliases)))


def test_an_alias_is_a_name_of_its_model() -> None:
    with names("one", "two", aliases={"gpt-4o-mini": "two", "jev-latest": "two"}) as client:
        for name, own in (("gpt-4o-mini", "two"), ("jev-latest", "two"), ("one", "one")):
            reply = client.post("/v1/completions", json=BODY | {"model": name})
            assert reply.json()["model"] == own
        listed = client.get("/v1/models").json()
        assert [model["id"] for model in listed["data"]] == [
            *("one", "two", "gpt-4o-mini", "jev-latest")
        ]
        assert listed["data"][2]["root"] == "two"
        refused = client.post("/v1/completions", json=BODY | {"model": "x"}).json()["error"]
        assert refused["code"] == "model_not_found"
        assert refused["message"].endswith("Served: 'one', 'two', 'gpt-4o-mini', 'jev-latest'.")


@pytest.mark.parametrize(
    ("aliases", "message"),
    [({"one": "one"}, "is the name of a model"), ({"x": "tow"}, "is for 'tow', but served are:")],
)
def test_an_alias_that_cannot_be_one(aliases: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        names("one", aliases=aliases)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alias", "mine"], "is the name of a model"),
        (["--alias", "x=other"], "served are: 'mine'"),
    ],
)
def test_the_command_checks_aliases_before_it_loads(
    words: Sequence[str], message: str, tmp_path: Path
) -> None:
    write_model(tmp_path / "mine")
    result = CliRunner().invoke(build(), ["serve", str(tmp_path / "mine"), *words])
    assert result.exit_code == 2
    assert message in result.output
