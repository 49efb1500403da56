"""Secrets among load options: masked wherever they are seen, and checked where they come in."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import traceback
from typing import Any

import click
import pytest

import core
from core import api
from core.errors import InvalidOptionError
from core.secret import Secret, header_key, hidden, is_secret, refuse_secrets
from core.testing import FakeModel
from core_cli import suggestions
from core_cli.flags import LoadFlags, parse_pairs
from core_cli.jobs import identity

KEY = "sk-MARKED-71"


def test_a_secret_is_masked_however_it_is_looked_at() -> None:
    secret = Secret(KEY)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r}", repr([secret]), format(secret)]
    assert KEY not in "".join(shown)
    assert secret.reveal() == KEY
    assert Secret(secret) == secret == Secret(KEY) != Secret("other")
    assert {secret: 1}[Secret(KEY)] == 1
    assert secret != KEY  # a text is not one
    assert (bool(secret), bool(Secret(""))) == (True, False)
    assert copy.copy(secret) is copy.deepcopy(secret) is secret
    with pytest.raises(TypeError, match="CORE_REMOTE_API_KEY"):
        pickle.dumps(secret)


def test_a_config_has_its_keys_masked_and_keeps_their_values() -> None:
    config = core.LoadConfig(options={"api_key": f"{KEY}\r\n", "env": {"HF_TOKEN": KEY}, "a": 1})
    as_dict = dataclasses.asdict(config)
    assert KEY not in repr(config) + repr(as_dict) + json.dumps(as_dict, default=str)
    assert config.options["api_key"] == Secret(KEY)  # without the line end of a file
    assert config.options["env"]["HF_TOKEN"].reveal() == KEY  # type: ignore[index]
    assert dataclasses.replace(config, parallel_slots=2).options == config.options
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(config)


@pytest.mark.parametrize(
    "key",
    [KEY.encode(), 7182818284, True, None, [KEY], f"{KEY}\u00e9", f"{KEY} {KEY}", f"{KEY}\n{KEY}"],
)
def test_what_no_header_can_hold_is_refused_and_not_shown(key: object) -> None:
    for name in ("api_key", "my_API_KEY"):
        with pytest.raises(InvalidOptionError, match=rf"{name}=.*visible ASCII") as raised:
            core.load_model("http://127.0.0.1:1", options={name: key})
        error = raised.value
        shown = str(error) + repr(vars(error)) + repr(pickle.loads(pickle.dumps(error)))
        assert KEY not in shown
        assert "7182818284" not in shown


def test_options_that_are_not_a_mapping_are_not_shown() -> None:
    for odd in (f'{{"api_key": "{KEY}"}}', [("api_key", KEY)]):
        with pytest.raises(InvalidOptionError, match="a mapping") as raised:
            core.LoadConfig(options=odd)  # type: ignore[arg-type]
        assert KEY not in str(raised.value)


def test_a_traceback_with_locals_does_not_show_the_key_of_a_sound_call() -> None:
    options: Any = {"api_key": KEY}
    try:
        core.load_model("/nowhere", options=options)
    except core.ModelNotFoundError as error:
        frames = traceback.TracebackException.from_exception(error, capture_locals=True).stack
    inside = [frame for frame in frames if frame.filename != __file__]
    assert any("api_key" in repr(frame.locals) for frame in inside)  # they are looked at
    assert KEY not in repr([frame.locals for frame in inside])


def test_names_that_are_secret() -> None:
    assert all(map(is_secret, ("api_key", "x_api_key", "OPENAI_API_KEY", "password", "env")))
    assert all(map(is_secret, ("token", "hf_token", "apikey", "passphrase", "Authorization")))
    assert not any(
        map(is_secret, ("bos_token", "connections", "key", "api_key_file", "environment"))
    )


def test_options_without_an_open_secret_stay_the_same_object() -> None:
    plain = {"options": {"connections": 2}}
    assert hidden(plain) is plain
    masked = hidden({"options": {"api_key": KEY}, "backend": "remote"})
    assert masked["options"]["api_key"].reveal() == KEY  # type: ignore[index]
    assert hidden(masked) is masked
    assert hidden(None) is None


def test_what_is_stored_or_sent_takes_no_key() -> None:
    refuse_secrets({"options": {"connections": 2, "api_key": ""}}, "the nodes")
    with pytest.raises(InvalidOptionError, match="environment of the nodes") as raised:
        refuse_secrets({"options": {"api_key": KEY}}, "the nodes")
    assert KEY not in str(raised.value)


def test_two_keys_are_two_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """One who has another key gets no model of the first one's."""
    loads: list[Any] = []

    def load(model: object, **options: Any) -> Any:
        loads.append(options)
        return FakeModel("x")

    monkeypatch.setattr(api, "load_model", load)
    api.close_shared_models()
    first, other = ({"options": {"api_key": key}} for key in (KEY, "another-key"))
    one = api.shared_model("m", "remote", first)
    assert api.shared_model("m", "remote", dict(first)) is one
    assert api.shared_model("m", "remote", hidden(first)) is one
    assert api.shared_model("m", "remote", other) is not one
    assert KEY not in repr(api._LOADED) + repr(loads)
    api.close_shared_models()


# --------------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["-O", f"api_key={KEY}"], []),
        ([f"-Oapi_key={KEY}"], []),
        (["--option", f"api_key={KEY}"], []),
        ([f"--option=api_key={KEY}"], []),
        (["-vO", f"api_key={KEY}"], ["-v"]),
        ([f"-vOapi_key={KEY}"], ["-v"]),
    ],
)
def test_a_shown_command_has_the_variable_in_place_of_the_key(
    arguments: list[str], shown: list[str]
) -> None:
    found: Any = None

    def run(**flags: Any) -> None:
        nonlocal found
        found = suggestions.public_arguments(["a", *arguments, "-O", "connections=2", "b"])

    command = click.Command("c", callback=run, params=[_PAIRS, _VERBOSE, _TEXTS])
    command.main(["a", *arguments, "-O", "connections=2", "b"], standalone_mode=False)
    assert found == (
        ["a", *shown, "-O", "connections=2", "b"],
        'CORE_REMOTE_API_KEY="$CORE_REMOTE_API_KEY" ',
    )


_PAIRS = click.Option(["-O", "--option", "pairs"], multiple=True)
_VERBOSE = click.Option(["-v"], is_flag=True)
_TEXTS = click.Argument(["texts"], nargs=-1)


def test_another_secret_is_left_for_the_user_to_fill_in() -> None:
    found: list[Any] = []
    arguments = ["-O", f"password={KEY}", f"password={KEY}"]
    command = click.Command(
        "c",
        callback=lambda **flags: found.append(suggestions.public_arguments(arguments)),
        params=[_PAIRS, _TEXTS],
    )
    command.main(arguments, standalone_mode=False)
    [(shown, before)] = found
    assert KEY not in " ".join(shown)
    assert shown[:2] == ["-O", "password=..."]
    assert before == ""


@pytest.mark.parametrize(
    "pair",
    [
        f"hf_token={KEY}",
        f"token={KEY}",
        f"passphrase={KEY}",
        f'extra={{"api_key": "{KEY}"}}',
        f'headers={{"a": 1, "Authorization": "Bearer {KEY}"}}',
        f'servers=[{{"url": "x"}}, {{"password": "{KEY}"}}]',
    ],
)
def test_no_pair_with_a_secret_anywhere_is_stored(pair: str) -> None:
    assert suggestions.public_pairs(["connections=2", pair]) == ["connections=2"]
    assert KEY not in repr(core.LoadConfig(options=parse_pairs([pair])))


def test_a_key_is_not_part_of_what_a_job_is() -> None:
    pairs = [f"api_key={KEY}", "connections=2", f'env={{"HF_TOKEN": "{KEY}"}}']
    assert suggestions.public_pairs(pairs) == ["connections=2"]
    now = {"load options": {"option": ["connections=2"]}}
    identity.check({"load options": {"option": pairs}}, now, "out")  # of an older journal
    with pytest.raises(click.UsageError, match="load options") as raised:
        identity.check({"load options": {"option": [*pairs, "x=1"]}}, now, "out")
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("text", [f"api_key:{KEY}", f"={KEY}", KEY, "MARKED71", f"api_key {KEY}"])
def test_a_malformed_pair_is_not_shown(text: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        parse_pairs(["a=1", text])
    assert "expected NAME=VALUE for option 2" in str(raised.value)
    assert "MARKED" not in str(raised.value)
    with pytest.raises(click.UsageError) as refused:
        LoadFlags().with_side(f"api_key={KEY}", ["backend"])
    assert KEY not in str(refused.value)


def test_an_empty_key_is_none() -> None:
    assert not header_key("api_key", Secret(""))
