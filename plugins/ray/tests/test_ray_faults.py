"""A cluster of two nodes, of which processes, nodes and drivers are killed: every row once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import core_ray
from core.testing import write_model

pytestmark = [
    pytest.mark.load,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The minimum number of concurrent actors"),
]

LABELS = ("good", "bad")
LIMIT = 600  # seconds, against hangs
NODE = {"object_store_memory": 80 * 2**20, "memory": 4 * 2**30, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster(fragile: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head with three CPUs in its books; tests add the node that they need."""
    from ray.cluster_utils import Cluster

    os.environ["FRAGILE_FOLDER"] = str(tmp_path_factory.mktemp("fragile"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Cluster(True, connect=True, head_node_args={"num_cpus": 3, **NODE})
        import ray.data

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        yield made
        import ray

        ray.shutdown()
        made.shutdown()
    del os.environ["FRAGILE_FOLDER"]


@pytest.fixture
def second(cluster: Any) -> Iterator[Any]:
    """A second node, with two CPUs."""
    node = cluster.add_node(num_cpus=2, **NODE)
    cluster.wait_for_nodes()
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node)


@pytest.fixture
def folder(cluster: Any) -> Path:
    """Where texts say that they wait, empty."""
    found = Path(os.environ["FRAGILE_FOLDER"])
    for file in found.iterdir():
        file.unlink()
    return found


def texts(count: int, **special: str) -> list[dict[str, Any]]:
    """Rows; ``at_17="KILL"`` has that in row 17."""
    return [
        {"id": n, "text": f"{n} {LABELS[n % 2]} {special.get(f'at_{n}', '')}"} for n in range(count)
    ]


def answers(rows: list[dict[str, Any]], model: str, **running: Any) -> list[dict[str, Any]]:
    import ray.data

    given = ray.data.from_items(rows, override_num_blocks=len(rows) // 20)
    made = core_ray.classify(
        given,
        model=model,
        backend="fragile",
        labels=LABELS,
        **{"concurrency": 2, "num_cpus": 1, "batch_size": 20, **running},
    )
    return sorted(made.take_all(), key=lambda row: row["id"])


def meanwhile(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Callable[[], Any]:
    """Call a function in a thread; what comes back waits for it and gives what it gave."""
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(function(*arguments, **keywords)), daemon=True
    )
    thread.start()

    def wait() -> Any:
        thread.join(LIMIT)
        assert found, "it has not ended, or not well"
        return found[0]

    return wait


def until(found: Callable[[], Any]) -> Any:
    limit = time.monotonic() + LIMIT
    while not (value := found()):
        assert time.monotonic() < limit
        time.sleep(0.05)
    return value


def complete(made: list[dict[str, Any]], count: int) -> bool:
    """Whether each row is there once, with its label."""
    assert [row["id"] for row in made] == [*range(count)]
    assert [row["label"] for row in made] == [LABELS[n % 2] for n in range(count)]
    return all(row["error"] is None for row in made)


def test_an_actor_that_is_killed_in_mid_batch(second: Any, folder: Path, model: str) -> None:
    result = meanwhile(answers, texts(200, at_57="WAIT"), model)
    [waiting] = until(lambda: [*folder.glob("waits-*")])
    os.kill(int(waiting.name.split("-")[1]), signal.SIGKILL)
    (folder / "go").touch()
    assert complete(result(), 200)


def test_a_node_that_is_killed(cluster: Any, second: Any, folder: Path, model: str) -> None:
    special = {f"at_{n}": "WAIT" for n in range(0, 200, 10)}
    result = meanwhile(answers, texts(200, **special), model)
    until(lambda: [*folder.glob(f"waits-*-{second.node_id}")])
    cluster.remove_node(second, allow_graceful=False)
    (folder / "go").touch()
    assert complete(result(), 200)


def test_a_row_that_kills_its_process(second: Any, folder: Path, model: str) -> None:
    made = answers(texts(100, at_33="KILL"), model)
    [left_out] = [row for row in made if row["error"]]
    assert left_out["id"] == 33
    assert left_out["label"] is None
    assert left_out["error"] == (
        "PoisonedRowError: Row skipped: 3 processes died while computing it."
    )
    rest = [row for row in made if row["id"] != 33]
    assert [row["id"] for row in rest] == [n for n in range(100) if n != 33]
    assert [row["label"] for row in rest] == [LABELS[n % 2] for n in range(100) if n != 33]


def test_a_load_that_kills_its_process(second: Any, tmp_path: Path) -> None:
    deadly = write_model(tmp_path / "deadly")
    (deadly / "deadly").touch()
    with pytest.raises(Exception, match="3 processes died while loading it"):
        answers(texts(40), str(deadly))


def test_unequal_nodes_take_unequal_shares(second: Any, folder: Path, model: str) -> None:
    special = {f"at_{n}": "UNEQUAL" for n in range(400)}
    assert complete(answers(texts(400, **special), model), 400)
    assert (folder / "go").exists()  # one process waited until the other had answered 100


def test_a_driver_that_is_killed_and_started_again(
    cluster: Any, second: Any, folder: Path, model: str, tmp_path: Path
) -> None:
    news, out = tmp_path / "news", tmp_path / "out"
    news.mkdir()
    for part in range(6):
        rows = texts(240, at_239="WAIT")[40 * part : 40 * part + 40]
        pq.write_table(pa.Table.from_pylist(rows), news / f"{part}.parquet")
    given = ["-m", model, "--backend", "fragile", "--labels", "good,bad", "--num-cpus", "1"]
    flags = ["--ray", cluster.address, *given, "-i", str(news), "-o", str(out)]
    code = "from core_cli import main; main()"
    command = [sys.executable, "-c", code, "classify", *flags, "--batch-size", "20"]
    command += ["--rows-per-file", "40", "--concurrency", "2"]

    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as driver:
        try:
            until(lambda: driver.poll() is not None or [*folder.glob("waits-*")])
            until(lambda: driver.poll() is not None or [*out.glob("*.parquet")])
            assert driver.poll() is None
        finally:
            driver.kill()
    (folder / "go").touch()

    before = {file: file.read_bytes() for file in out.glob("*.parquet")}
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"{out}: 240 rows, 0 failed"
    made = [row for file in out.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert complete(sorted(made, key=lambda row: row["id"]), 240)
    kept = [file for file, data in before.items() if file.exists() and file.read_bytes() == data]
    assert kept  # and was not asked again
