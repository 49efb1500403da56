"""Hook plugins: what they add, and that a broken one is reported and hurts nothing else."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.tests.conftest import Finished, InferCli

HEADER = "import click, pluggy\nhookimpl = pluggy.HookimplMarker('core')\n"
REGISTER = HEADER + "@hookimpl\ndef core_register_commands(cli):\n    "


@pytest.fixture
def with_plugin(infer_cli: InferCli, tmp_path: Path) -> Callable[..., Finished]:
    """Run ``infer-cli`` beside a hook plugin called "bad" with this source."""

    def run(source: str, *arguments: str | Path, **env: str) -> Finished:
        folder = tmp_path / "plugin"
        info = folder / "bad_plugin-2.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (folder / "bad_plugin.py").write_text(source)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-plugin\nVersion: 2\n")
        (info / "entry_points.txt").write_text("[core.hooks]\nbad = bad_plugin\n")
        return infer_cli.beside(folder).finish(*arguments, env=env)

    return run


def test_a_plugin_adds_a_command(infer_cli: InferCli) -> None:
    assert infer_cli("hello").stdout == "hello from a plugin\n"
    assert "hello" in infer_cli("--help").stdout


def test_a_plugin_can_be_switched_off(infer_cli: InferCli) -> None:
    off = infer_cli.finish("hello", env={"CORE_DISABLE_PLUGINS": "other, fake_hooks"})
    assert off.exit_code == 2
    assert "No such command 'hello'" in off.stderr


@pytest.mark.parametrize(("command", "extra"), [("conformance", "conformance"), ("convert", "mlx")])
def test_a_command_of_another_distribution_is_answered_with_what_it_comes_with(
    infer_cli: InferCli, command: str, extra: str
) -> None:
    none = {"CORE_DISABLE_PLUGINS": "conformance,mlx_native"}
    missing = infer_cli.finish(command, "model.gguf", "out", env=none)
    assert missing.exit_code == 2
    hint = f"pip install -r DIST/{extra}.txt"
    expected = f"Error: {command!r} is not installed. Install it with: {hint}"
    assert missing.stderr.splitlines()[-1].startswith(expected)
    assert "Did you mean" not in missing.stderr


def test_a_plugin_that_brings_the_command_is_asked(with_plugin: Callable[..., Finished]) -> None:
    source = REGISTER + "cli.command('convert')(lambda: click.echo('converted'))"
    done = with_plugin(source, "convert", CORE_DISABLE_PLUGINS="mlx_native")
    assert (done.exit_code, done.stdout) == (0, "converted\n")


def test_plugins_hear_of_loads_and_of_ends(infer_cli: InferCli, fake_model: Path) -> None:
    infer_cli("backends")  # imports the plugin
    diary = importlib.import_module("core_fake_hooks").DIARY
    diary.clear()
    infer_cli("classify", "-m", fake_model, "x", "")
    infer_cli("discover", fake_model / "nothing")
    assert diary == [
        ("loaded", str(fake_model), "fake", True),
        ("finished", "classify", 5),
        ("finished", "discover", 3),
    ]


BROKEN = {
    "raises on import": "raise RuntimeError('boom')",
    "exits on import": "import sys; sys.exit(9)",
    "needs what is missing": "import no_such_module",
    "is no Python": "def (",
    "raises when it registers": REGISTER + "raise RuntimeError('boom')",
    "exits when it registers": REGISTER + "raise SystemExit(9)",
    "asks for an unknown argument": HEADER
    + "@hookimpl\ndef core_command_finished(command, exit_code): print('half alive')\n"
    + "@hookimpl\ndef core_register_commands(cli, nonsense): ...",
    "raises at an event": HEADER
    + "@hookimpl\ndef core_command_finished(command, exit_code): raise SystemExit('boom')",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_plugin_is_reported_in_one_line_and_hurts_nothing(
    with_plugin: Callable[..., Finished], source: str
) -> None:
    done = with_plugin(source, "hello")
    assert (done.exit_code, done.stdout) == (0, "hello from a plugin\n")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("Warning: hook plugin 'bad' failed and was skipped: ")
    assert "CORE_DISABLE_PLUGINS=bad" in done.stderr
    silenced = with_plugin(source, "hello", CORE_DISABLE_PLUGINS="bad")
    assert (silenced.stdout, silenced.stderr) == ("hello from a plugin\n", "")


def test_debug_shows_why_a_plugin_failed(with_plugin: Callable[..., Finished]) -> None:
    done = with_plugin(BROKEN["raises on import"], "hello", INFER_RAISE_ERRORS="1")
    assert "Traceback" in done.stderr
    assert done.stdout == "hello from a plugin\n"


@pytest.mark.parametrize(
    "replacing",
    [
        "cli.add_command(click.Command('backends', callback=lambda: click.echo('mine')))",
        "cli.commands['backends'] = click.Command('backends', callback=lambda: print('mine'))",
        "del cli.commands['backends']",
    ],
)
def test_a_plugin_cannot_replace_a_command_in_silence(
    with_plugin: Callable[..., Finished], replacing: str
) -> None:
    done = with_plugin(REGISTER + replacing, "backends", "--json")
    assert done.exit_code == 0
    assert '"fake"' in done.stdout
    assert "Warning: hook plugin 'bad' tried to replace the command 'backends'" in done.stderr


def test_two_plugins_of_one_name_do_not_hurt_one_another(
    infer_cli: InferCli, tmp_path: Path
) -> None:
    info = tmp_path / "twin-3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twin\nVersion: 3\n")
    (info / "entry_points.txt").write_text("[core.hooks]\nfake_hooks = json\n")
    done = infer_cli.beside(tmp_path).finish("hello")
    assert done.stdout == "hello from a plugin\n"
    assert "twin uses the name of another hook plugin" in done.stderr


def test_unreadable_metadata_is_reported(infer_cli: InferCli, tmp_path: Path) -> None:
    info = tmp_path / "broken_meta-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-meta\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[core.hooks]\n= = =\nnot an entry point\n")
    done = infer_cli.beside(tmp_path).finish("hello")
    assert done.stdout == "hello from a plugin\n"
    assert done.stderr.startswith("Warning: broken-meta has unreadable hooks: ")
    assert done.stderr.count("\n") == 1


WAY = (
    REGISTER
    + """
    @click.command(short_help="Elsewhere.")
    @click.option("--far", is_flag=False, flag_value="", help="Where.")
    @click.option("-m", "--model")
    def far(far, model):
        click.echo(f"far away: {far!r} {model}")

    cli.add_way("classify", "--far", far)
"""
)


def test_a_plugin_gives_a_command_another_way(with_plugin: Callable[..., Finished]) -> None:
    assert with_plugin(WAY, "classify", "-m", "x", "--far=there").stdout == "far away: 'there' x\n"
    assert with_plugin(WAY, "classify", "--far", "-m", "x").stdout == "far away: '' x\n"
    helped = with_plugin(WAY, "classify", "--help").stdout
    assert "Elsewhere." in helped
    assert "--labels" in helped
    assert "Where." in with_plugin(WAY, "classify", "--far", "--help").stdout
    assert "No such option '--far'" in with_plugin(HEADER, "classify", "--far").stderr


def test_a_flag_that_is_taken_is_not_given_to_a_plugin(
    with_plugin: Callable[..., Finished],
) -> None:
    finished = with_plugin(WAY.replace('"--far", far)', '"--labels", far)'), "classify", "--help")
    assert "infer-cli classify already has an option --labels" in finished.stderr
    assert finished.exit_code == 0


def test_a_way_of_another_distribution_is_answered_with_what_it_comes_with(
    infer_cli: InferCli,
) -> None:
    missing = infer_cli.finish("classify", "--ray", env={"CORE_DISABLE_PLUGINS": "ray"})
    assert missing.exit_code == 2
    assert "--ray is not installed. Install it with: pip install -r DIST/ray.txt" in missing.stderr
