"""How many frames and files a call passes before it computes: no more than it did."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "way.py"
# Frames and files; what becomes less is written down here. Of the files, three (four where tokens
# are drawn) look at what earlier calls have left, which spares whole passes; one is what streams of
# all backends share. The product is the first one of a short pass, in numpy.
MOST = {
    "classify": (15, 34),
    "score": (15, 32),
    "generate": (20, 39),
}


def test_no_call_goes_further_than_it_did(checkpoint: Callable[..., Path]) -> None:
    """See the tool for what is counted."""
    command = [sys.executable, str(TOOL), str(checkpoint())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table = [line.split() for line in done.stdout.split("\n\n")[0].splitlines()[1:]]
    found = {operation: (int(frames), int(files)) for _, operation, frames, files in table}
    assert found.keys() == MOST.keys()
    for operation, (frames, files) in MOST.items():
        assert 0 < found[operation][0] <= frames, done.stdout
        assert 0 < found[operation][1] <= files, done.stdout
