"""One owner thread per model: MLX streams belong to the thread that made them.

Calls from any thread are queued and run one after another, in order of arrival.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import mlx.core as mx

from core.errors import ModelClosedError

T = TypeVar("T")

AFTER_FORK = (
    "MLX was used in the process that this one was forked from, and does not work in a fork. "
    "Start processes with multiprocessing.get_context('spawn'), and load the model in each."
)


class OwnerThread:
    """Runs functions on its own thread, with MLX work going to one device."""

    def __init__(self, device: mx.Device, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._closed = False
        self._device = device
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name=f"core-{name}", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], T]) -> T:
        """Run ``job`` there and return what it returns, or raise what it raises.

        Raises `ModelClosedError` once closed. An interrupt of the waiting caller withdraws a job
        that has not begun.
        """
        if os.getpid() != self._process:  # a fork copies no threads: waiting would be for ever
            raise ModelClosedError(AFTER_FORK)
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise ModelClosedError
            self._jobs.put((future, job))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def post(self, job: Callable[[], None]) -> bool:
        """Queue ``job`` and do not wait; it must not raise. False once closed."""
        if os.getpid() != self._process:
            raise ModelClosedError(AFTER_FORK)
        with self._lock:
            if not self._closed:
                self._jobs.put((Future(), job))
            return not self._closed

    def close(self, last: Callable[[], None]) -> None:
        """Run ``last`` behind all queued jobs, then end the thread. Twice is fine."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            future: Future[None] = Future()
            self._jobs.put((future, last))
            self._jobs.put(None)
        future.result()
        self._thread.join()

    def stop(self) -> None:
        """End the thread without waiting: for models that were dropped, not closed."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)

    def _serve(self) -> None:
        with mx.stream(self._device):
            while (item := self._jobs.get()) is not None:
                future, job = item
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001 - carried to the caller
                    future.set_exception(error)
                del item, future, job  # no reference kept to results while waiting
