"""The process of one contestant: it loads, and then waits for its turns.

Started as ``python -m benchmarks.classify_parts.worker SPEC`` with a `runner.Spec` as JSON. One
line of JSON comes out when it is ready, and one for each that goes in:
``{"prompts": [...], "warm_up": bool, "call": prompts of a call, or 0}``.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from benchmarks.classify_parts.runner import (
    Runner,
    Spec,
    make_runner,
    together,
)
from benchmarks.line_process import UnavailableError


def main() -> int:
    """Serve until standard input ends."""
    replies = own_stdout()
    try:
        runner = make_runner(Spec(**json.loads(sys.argv[1])))
    except (ImportError, OSError, UnavailableError) as error:
        reply(replies, {"unavailable": f"{error}"})
        return 0
    reply(replies, {"about": runner.about()})
    for line in sys.stdin:
        request = json.loads(line)
        prompts = request["prompts"]
        if request["warm_up"]:
            reply(replies, warm_up(runner, prompts))
        else:
            reply(replies, measure(runner, prompts, request["call"] or len(prompts)))
    return 0


def warm_up(runner: Runner, prompts: Sequence[str]) -> dict[str, Any]:
    """Do the one-time work; the settings may have been chosen meanwhile."""
    runner.warm_up(prompts)
    return {"about": runner.about()}


def measure(runner: Runner, prompts: Sequence[str], call: int) -> dict[str, Any]:
    """Make one timed pass, a call after another, and measure the process's peak memory."""
    calls = [prompts[first : first + call] for first in range(0, len(prompts), call)]
    gc.collect()
    forget_peak()
    started, worked = time.perf_counter(), time.process_time()
    answers = [runner.run(some) for some in calls]
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
    answer = together(answers)
    peak = 0 if answer.device_bytes else peak_bytes()
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak, **asdict(answer)}


def own_stdout() -> TextIO:
    """Standard output for replies alone; what a library prints goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def reply(channel: TextIO, message: dict[str, Any]) -> None:
    """Write one line of JSON."""
    channel.write(json.dumps(message) + "\n")
    channel.flush()


def forget_peak() -> None:
    """Reset VmHWM to the resident memory (proc(5)), if the system allows it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """VmHWM, the peak of this process's resident memory, weights and libraries included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("/proc/self/status has no VmHWM: this benchmark runs on Linux.")


if __name__ == "__main__":
    sys.exit(main())
