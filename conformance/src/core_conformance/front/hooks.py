"""The hook that adds the command ``conformance`` to ``infer-cli``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

LOAD_OPTION = "A load option: context_len=512, or one of the backend's own."
ONLY = "Only this check, area (stop) or pattern (*.seed*); may be given again."

DEEP = "Leave nothing out, and generate inputs for so many seconds; inf: until stopped."

hookimpl = pluggy.HookimplMarker("core")


@hookimpl
def core_register_commands(cli: click.Group) -> None:
    """Add ``infer-cli conformance``."""
    import click

    from core.system.outputs import output_type

    file, output = click.Path(dir_okay=False), output_type(click.Path(dir_okay=False))

    @cli.command()
    @click.argument("name", required=False, metavar="[BACKEND]")
    @click.option("-m", "--model", metavar="PATH", help="A model that the backend loads.")
    @click.option("-O", "--option", "pairs", multiple=True, metavar="K=V", help=LOAD_OPTION)
    @click.option("--known", metavar="FILE", type=file, help='TOML: check id = "reason, link".')
    @click.option("-k", "--check", "only", multiple=True, metavar="ID", help=ONLY)
    @click.option("--timeout", type=float, metavar="S", help="Seconds for each check.")
    @click.option("--isolate", is_flag=True, default=None, help="A process for each check.")
    @click.option("--seed", type=click.IntRange(0), metavar="N", help="Of generated inputs.")
    @click.option("--deep", type=float, metavar="S", help=DEEP)
    @click.option("--certify", is_flag=True, help="Fail unless every check ran and passed.")
    @click.option("--report", metavar="FILE", type=output, help="Write a JSON report.")
    @click.option("--badge", metavar="FILE", type=output, help="Write a badge for shields.io.")
    @click.option("--html", metavar="FILE", type=output, help="Write the report as a page.")
    @click.option("--json", "as_json", is_flag=True, help="The report on stdout.")
    @click.option("-q", "--quiet", is_flag=True, help="Only what did not pass, and the verdict.")
    @click.option("--selftest", is_flag=True, help="Prove that each check finds its violation.")
    def conformance(**flags: Any) -> None:
        """Check whether a backend keeps the contract.

        What is not given comes from [tool.core-conformance] in pyproject.toml, and the model
        from INFER_MODEL. The exit code is 0 for a conformant backend, and 1 otherwise.
        """
        from core_conformance.front.command import run_command

        run_command(flags)
