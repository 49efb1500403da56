"""The process of one contestant: it loads, then answers one request after another.

Started as ``python -m benchmarks.encoder_parts.worker SPEC`` with a `subject.Spec` as JSON. One
line of JSON comes out when it is ready, and one for each that goes in: ``{"texts": [...]}`` asks
for vectors, with ``labels`` and ``question`` for rows of label scores and their time.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import Any

from benchmarks.classify_parts.worker import own_stdout, reply
from benchmarks.encoder_parts.subject import Spec, Subject, load
from benchmarks.line_process import UnavailableError


def main() -> int:
    """Serve until standard input ends."""
    replies = own_stdout()
    try:
        subject = load(Spec(**json.loads(sys.argv[1])))
    except (ImportError, OSError, UnavailableError) as error:
        reply(replies, {"unavailable": f"{error}"})
        return 0
    reply(replies, {"about": subject.about()})
    for line in sys.stdin:
        reply(replies, answer(subject, **json.loads(line)))
    return 0


def answer(
    subject: Subject, texts: list[str], labels: list[str] | None = None, question: str = ""
) -> dict[str, Any]:
    """Answer one request."""
    if labels is None:
        return {"vectors": subject.embed(texts)}
    gc.collect()
    started, worked = time.perf_counter(), time.process_time()
    rows = subject.label(texts, labels, question)
    cpu_seconds, seconds = time.process_time() - worked, time.perf_counter() - started
    return {"rows": rows, "seconds": seconds, "cpu_seconds": cpu_seconds}


if __name__ == "__main__":
    sys.exit(main())
