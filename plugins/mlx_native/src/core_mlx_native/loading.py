"""Starting a model's owner thread and loading the model on it. Imports MLX.

Streams of owner threads are reused by later models: MLX gives each requesting thread a separate CPU
stream, with a worker thread that never ends, not even by ``mx.clear_streams``, so a process that
loads and closes models would run out of threads. (Models on a GPU have one as well: files are read
on the CPU.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import mlx.core as mx

from core.options import LoadConfig
from core.system.limited_files import hold
from core.types import Choice
from core_mlx_native import memory
from core_mlx_native.failures import scarce
from core_mlx_native.loaded import load
from core_mlx_native.model import MlxModel
from core_mlx_native.turns import default_device
from core_runtime.owner import FirstProcess, OwnerThread
from core_runtime.request import forget_frames

_free: list[mx.Stream] = []  # of the CPU, with nothing queued; append and pop are atomic
_first_process = FirstProcess("MLX")


@contextmanager
def own_stream() -> Iterator[None]:
    """Use an exclusive CPU stream until this thread ends.

    The stream is then reused, once all of its work is done. A fork has none of the workers and
    never gets here, because `open_model` refuses to load there. Each job selects its device itself
    (`turns`).
    """
    try:
        stream = _free.pop()
    except IndexError:
        stream = mx.new_thread_unsafe_stream(mx.Device(mx.cpu))

    # Not by `with mx.stream(stream)`: to restore the thread's default it would first create one.
    mx.set_default_stream(stream)
    yield

    # After the thread's work: the stream goes to the next model once it is empty.
    try:
        mx.synchronize(stream)
    except RuntimeError:  # its errors do not concern the next model
        return
    _free.append(stream)


def _turn(device: mx.Device) -> AbstractContextManager[object]:
    """Return the context in which a job holds its device.

    It is empty if MLX has only one device.
    """
    return default_device.at(device) if mx.is_available(mx.gpu) else nullcontext()


def _synchronize(device: mx.Device) -> None:
    """Wait for this thread's queued work on the device, whatever the default device is."""
    mx.synchronize(mx.default_stream(device))


def open_model(
    backend: str, directory: Path, config: LoadConfig, on_gpu: bool, chosen: Sequence[Choice]
) -> MlxModel:
    """Load on a separate thread for the model; if that fails, end the thread."""
    _first_process.check(backend)
    _first_process.mark()

    device = mx.Device(mx.gpu if on_gpu else mx.cpu)
    if not on_gpu:
        memory.keep_freed_memory()
    memory.get_active_memory()  # imports what a stream that ends with the interpreter cannot

    owners: list[OwnerThread] = []
    try:
        settle = partial(_synchronize, device)
        hold(owners, partial(OwnerThread, directory.name, own_stream, settle, _turn(device)))
        owner = owners[0]
        loaded = owner.run(lambda: load(directory, config, on_gpu))
        whole = replace(loaded, choices=(*chosen, *loaded.choices))
        return MlxModel(backend, whole, owner)
    except BaseException as error:
        forget_frames(error)  # else a reference to the error keeps the loaded parts alive
        for owner in owners:
            with suppress(RuntimeError):  # without a thread, MLX cannot clear anything
                owner.close(memory.clear_cache)

        shortage = scarce(error, directory)
        if shortage is not None:
            raise shortage from error
        raise
