"""Ray for these tests: small, without a dashboard, and gone behind them."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.registry import REGISTRY
from core.testing import write_model

FRAGILE = Path(__file__).parent / "fragile_backend"
STORE = 80 * 2**20  # bytes of the object store, the least that Ray takes is 75 MB


@pytest.fixture(scope="module", autouse=True)
def fragile() -> Iterator[None]:
    """The backend "fragile", here and in the processes of Ray, and of no test elsewhere."""
    path = os.pathsep.join(filter(None, (str(FRAGILE), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # On a busy machine a worker that is slow to start is no reason to start others, or to kill
        # it.
        patch.setenv("RAY_worker_register_timeout_seconds", "600")
        patch.setenv("RAY_prestart_worker_first_driver", "0")
        patch.syspath_prepend(str(FRAGILE))
        backend = importlib.import_module("core_fragile").BACKEND
        patch.setattr(REGISTRY, "_registered", {**REGISTRY._registered, "fragile": backend})
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a model that the backend "fragile" loads."""
    return str(write_model(tmp_path_factory.mktemp("model") / "fragile"))


@pytest.fixture(scope="module")
def local_ray(fragile: None) -> Iterator[None]:
    """Ray on this machine, with three CPUs in its books."""
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            num_cpus=3, include_dashboard=False, object_store_memory=STORE, log_to_driver=False
        )
        quiet()
        yield
        ray.shutdown()


def quiet() -> None:
    """Nothing of Ray Data's on the terminal."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
