"""A marked key goes through every surface, and is looked for in all that they leave or show."""

from __future__ import annotations

import dataclasses
import json
import logging
import pickle
import shlex
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import core
from core.errors import CoreError, InvalidOptionError, ModelAccessError
from core.testing import FakeModel
from core_cli import app
from core_wires.contract import VERSION, Description
from core_wires.plain import plain

KEY = "sk-MARKED-4711"
VARIABLE = "CORE_REMOTE_API_KEY"
_HEAD = "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
_ROW = {"token": {"id": 1, "text": "x"}, "label": "x", "probabilities": {"x": 0.6, "y": 0.4}}


class Echo:
    """A server of core's wire that may refuse, and repeats the key that it gets when it does."""

    def __init__(self, wild: Any) -> None:
        self._wild, self.status, self.body = wild, "200 OK", b""
        self.rows: dict[str, Any] = _ROW
        wild.answer = self.answer

    def answer(self, head: str, connection: socket.socket) -> None:
        request = self._wild.requests[-1]
        if "/describe" in head:
            told = Description("m", VERSION, "m", FakeModel("x").info, ("classify", "labels"))
            lines = [{"value": plain(told)}]
            status = "200 OK"
        elif self.status != "200 OK":
            header = next(each for each in head.split("\r\n") if "uthorization" in each)
            lines, status = [{"error": {"message": f"wrong key: {header}\x1b[2J"}}], self.status
        else:
            call = json.loads(request.partition("\r\n\r\n")[2])
            rows = len(call["arguments"]["prompts"])
            lines, status = [*({"result": self.rows} for _ in range(rows)), {"end": {}}], "200 OK"
        body = self.body or b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        connection.sendall(_HEAD.format(status=status).encode() + body)


@pytest.fixture
def echo(wild: Any) -> Echo:
    return Echo(wild)


def _shown(error: BaseException) -> str:
    """All that a program shows of an error, and what it keeps of it."""
    attributes = repr(vars(error)) + repr(error) + repr(pickle.loads(pickle.dumps(error)))
    return str(error) + "".join(traceback.format_exception(error)) + attributes


def test_the_header_alone_has_the_key(
    wild: Any, echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        core.load_model(wild.url, options={"api_key": f"{KEY}\n"}) as loaded,
    ):
        model: Any = loaded
        assert model.classify(["a"], labels=("x", "y"))[0].label == "x"
        parts = [model, model._connection, model._connection.settings, model._connection.address]
        held = repr([*parts, vars(model), vars(model._connection), *model.choices(), model.info])
        settings = dataclasses.asdict(model._connection.settings)
        held += repr(settings) + json.dumps(settings, default=str)
    assert f"Bearer {KEY}\r\n" in wild.requests[0]
    assert KEY not in held + caplog.text


@pytest.mark.parametrize("status", ["400 Bad Request", "401 No", "429 Busy", "500 Broken"])
def test_a_server_that_repeats_the_key_has_it_in_no_error(
    status: str, wild: Any, echo: Echo, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its control sequences are escapes as well: errors are printed as they are."""
    with core.load_model(wild.url, options={"api_key": KEY}) as model:
        echo.status = status
        with pytest.raises(CoreError, match=r"Bearer .*x1b") as raised:
            model.classify(["a"], labels=("x", "y"))
    shown = _shown(raised.value)
    assert KEY not in shown + "".join(capfd.readouterr())
    assert "\x1b" not in str(raised.value)


def test_errors_in_an_answer_repeat_neither_key_nor_control_sequences(
    wild: Any, echo: Echo
) -> None:
    words = {"type": "RequestError", "message": f"no {KEY} \x1b[2J", "attributes": {"a": KEY}}
    with core.load_model(wild.url, options={"api_key": KEY}) as model:
        echo.rows = {"error": words}
        error = model.classify(["a"], labels=("x", "y"))[0].error
        assert isinstance(error, CoreError)
        for body in ({"error": words}, {f"{KEY}\x1b": 1}, {"result": {"label": f"{KEY}\x1b"}}):
            echo.body = json.dumps(body).encode() + b"\n"
            with pytest.raises(CoreError) as raised:
                model.classify(["a"], labels=("x", "y"))
            assert KEY not in _shown(raised.value)
            assert "\x1b" not in str(raised.value)
    assert KEY not in _shown(error)
    assert str(error) == "no ... \\x1b[2J"


@pytest.mark.parametrize("key", [KEY.encode(), 4711, f"{KEY}\u00c9", f"{KEY}\nX: y", f"{KEY} a"])
def test_a_key_that_no_header_holds_is_refused_where_it_is_given(
    key: Any, wild: Any, echo: Echo, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidOptionError, match=r"api_key=.*visible ASCII") as raised:
        core.load_model(wild.url, options={"api_key": key})
    assert "4711" not in str(raised.value) + "".join(traceback.format_exception(raised.value))
    assert wild.requests == []
    assert "".join(capfd.readouterr()) == ""


def test_a_key_of_the_environment_is_checked_as_well(
    wild: Any, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"{KEY}\u00c9")
    with pytest.raises(InvalidOptionError, match=f"{VARIABLE}=") as raised:
        core.load_model(wild.url)
    assert KEY not in _shown(raised.value)
    monkeypatch.setenv(VARIABLE, f"{KEY}\n")
    core.load_model(wild.url).close()
    assert f"Bearer {KEY}\r\n" in wild.requests[-1]
    core.load_model(wild.url, options={"api_key": ""}).close()  # none, whatever the environment
    assert "uthorization" not in wild.requests[-1]


# --------------------------------------------------------------------------- the command line


class Program:
    """Runs ``infer-cli`` in a folder, and keeps all that it has written there and shown."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self.output = folder, ""
        self._patch, self._capture = patch, capture
        patch.chdir(folder)

    def run(self, *arguments: str, key: str | None = None) -> tuple[int, str]:
        """The exit code, and what was said on stderr."""
        self._patch.setattr(sys, "argv", ["infer-cli", *arguments])
        self._patch.delenv(VARIABLE, raising=False)
        if key is not None:
            self._patch.setenv(VARIABLE, key)
        with pytest.raises(SystemExit) as ended:
            app.build()()
        shown = self._capture.readouterr()
        self.output += shown.out + shown.err
        return int(ended.value.code or 0), shown.err

    def leaks(self, key: str) -> list[str]:
        """The places in which the key is."""
        files = [each for each in self.folder.rglob("*") if each.is_file()]
        found = [str(each) for each in files if key.encode() in each.read_bytes()]
        return found + ["output"] * (key in self.output)


@pytest.fixture
def program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Program:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    return Program(tmp_path, monkeypatch, capfd)


def test_a_job_leaves_no_key_and_goes_on_with_another(
    program: Program, wild: Any, echo: Echo
) -> None:
    job = ["classify", "-m", wild.url, "--backend", "remote", "-i", "in.txt", "-o", "out.jsonl"]
    job += ["--labels", "x,y", "--template", "{text} is", "--report", "report.json"]
    echo.status = "500 Broken"
    code, said = program.run("--debug", *job, f"-Oapi_key={KEY}", "-O", "silence_timeout=60")
    assert code == 1, said
    shown = said[said.index("Resume with:") :].splitlines()[1]
    assert shown.startswith(f'{VARIABLE}="${VARIABLE}" infer-cli --debug classify -m ')

    echo.status = "200 OK"
    rotated = f"{KEY}-ROTATED"
    after = shlex.split(shown.partition("infer-cli ")[2])
    assert program.run(*after, key=rotated)[0] == 0
    assert f"Bearer {rotated}\r\n" in wild.requests[-1]
    lines = (program.folder / "out.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["label"] for row in rows] == ["x", "x"]
    third = ["-O", "silence_timeout=60", "-O", "api_key=sk-THIRD", "--resume"]
    assert program.run(*job, *third)[0] == 0
    assert (program.folder / "out.jsonl.journal").exists()
    assert (program.folder / "report.json").exists()
    assert program.leaks(KEY) + program.leaks("sk-THIRD") == []


@pytest.mark.parametrize(
    "option",
    [
        *("api_key=47114711", "api_key=true", f"api_key={KEY} x", f"api_key={KEY}\u00c9"),
        *(f"api_key:{KEY}", f'api_key=["{KEY}"]', f'env={{"A": "{KEY}"}}', f"conections={KEY}"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_does_not_show_it(
    option: str, program: Program, wild: Any, echo: Echo
) -> None:
    code, said = program.run("--debug", "generate", "-m", wild.url, "-O", option, "hello")
    assert code == 2, said
    assert program.leaks(KEY) + program.leaks("47114711") == []


def test_no_command_shows_the_key_that_it_is_given(program: Program, wild: Any, echo: Echo) -> None:
    given = ["-m", wild.url, "-O", f"api_key={KEY}"]
    gold = program.folder / "gold.jsonl"
    gold.write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n')
    for arguments in (
        ["info", *given, "--load", "--json"],
        ["classify", *given, "--labels", "x,y", "--verbose", "in.txt"],
        ["tune", *given, "-i", "gold.jsonl", "--labels", "x,y"],
        ["calibrate", *given, "-i", "gold.jsonl", "--labels", "x,y", "-o", "calibration.json"],
        ["bench", *given, "--compare", f"api_key={KEY}"],
    ):
        program.run("--debug", *arguments)
    assert program.leaks(KEY) == []


def test_a_refused_key_is_refused_by_name_on_the_command_line(
    program: Program, wild: Any, echo: Echo
) -> None:
    echo.status = "401 Unauthorized"
    arguments = ["classify", "-m", wild.url, "--labels", "x,y", "-O", f"api_key={KEY}", "in.txt"]
    assert VARIABLE in program.run(*arguments)[1]
    assert program.leaks(KEY) == []
    with (
        core.load_model(wild.url, options={"api_key": KEY}) as model,
        pytest.raises(ModelAccessError),
    ):
        model.classify(["a"], labels=("x",))
