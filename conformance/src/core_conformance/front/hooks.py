"""The hook that adds the command ``conformance`` to ``infer-cli``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

LOAD_OPTION = "Set a load option, such as context_len=512 or a backend-specific one. Repeatable."
ONLY = "Run only this check, area (stop) or pattern (*.seed*). Repeatable."

SEED = "Seed for generated inputs. [default: 0; random with --deep and --selftest]"
DEEP = "Run everything and generate inputs for S seconds (inf: until stopped)."
CERTIFY = "Fail unless every check, or with -k every selected one, ran and passed."
BADGE = "Write a badge: SVG if FILE ends in .svg, else JSON for shields.io."
COMPARE = "Compare two JSON reports. Exit with 1 if B fails a check that A passed."
SELFTEST = "Verify for 20 s that the checks, in random order, detect faulty backends."
ALL = "With --selftest: all checks and all faulty backends, in about ten minutes."

EXAMPLES = """\b
Examples:
  infer-cli conformance mybackend -m MODEL
  infer-cli conformance mybackend -m MODEL -k stop --report report.json"""

hookimpl = pluggy.HookimplMarker("core")


@hookimpl
def core_register_commands(cli: click.Group) -> None:
    """Add ``infer-cli conformance``."""
    import click

    from core.system.outputs import output_type

    file, output = click.Path(dir_okay=False), output_type(click.Path(dir_okay=False))

    @cli.command(epilog=EXAMPLES)
    @click.argument("name", required=False, metavar="[BACKEND]")
    @click.option("-m", "--model", metavar="PATH", help="Model to test with. [env: INFER_MODEL]")
    @click.option("-O", "--option", "pairs", multiple=True, metavar="K=V", help=LOAD_OPTION)
    @click.option(
        "--known",
        metavar="FILE",
        type=file,
        help='TOML file of known failures: check id = "reason, link".',
    )
    @click.option("-k", "--check", "only", multiple=True, metavar="ID", help=ONLY)
    @click.option(
        "--timeout",
        type=float,
        metavar="S",
        help="Time limit per check, in seconds. [default: 120, more for slow models]",
    )
    @click.option(
        "--isolate",
        is_flag=True,
        default=None,
        help="Run each check in its own process. [default: only after one hangs]",
    )
    @click.option("--seed", type=click.IntRange(0), metavar="N", help=SEED)
    @click.option("--deep", type=float, metavar="S", help=DEEP)
    @click.option("--certify", is_flag=True, help=CERTIFY)
    @click.option("--report", metavar="FILE", type=output, help="Write a JSON report.")
    @click.option("--badge", metavar="FILE", type=output, help=BADGE)
    @click.option("--html", metavar="FILE", type=output, help="Write an HTML report.")
    @click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
    @click.option(
        "-q", "--quiet", is_flag=True, help="Show only checks that did not pass, and the verdict."
    )
    @click.option("--compare", nargs=2, type=file, metavar="A B", help=COMPARE)
    @click.option("--selftest", is_flag=True, help=SELFTEST)
    @click.option("--all", "everything", is_flag=True, help=ALL)
    def conformance(**flags: Any) -> None:
        """Test a backend against the contract.

        Missing options are read from [tool.core-conformance] in pyproject.toml, and the model
        from INFER_MODEL. The exit code is 0 for a conformant backend, and 1 otherwise.
        """
        from core_conformance.front.command import run_command

        run_command(flags)
