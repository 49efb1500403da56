"""One model and its KV cache: batches of tokens of many sequences become states and logits.

The graph takes all tokens side by side; `BlockTables` say where each sequence's keys and values
are. The LM head is a graph of its own, so that only the requested rows run through it, and none
for hidden states.

Shapes: T tokens of a batch, R rows that are read, D head size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from core_openvino import graph
from core_openvino.angles import Angles
from core_openvino.batch import PagedBatch, places_of
from core_openvino.blocks import BlockTables
from core_openvino.cache import KVCache
from core_openvino.capped import BLOCKS, WIDTH, Reach
from core_openvino.library import lacks_memory, reason_of
from core_openvino.nodes import cosines_name, sines_name
from core_openvino.settings import SessionSettings
from core_openvino.stored import StoredMatrices
from core_runtime.checkpoint.config import ModelConfig
from core_runtime.sequences.session import (
    END,
    DecodeError,
    InterruptedPassError,
    Logits,
    ScarceMemoryError,
    State,
)

_SIZE = np.dtype(np.int64)
_SETTLING = -1
"""The sequence of a pass that settles the graph; callers count theirs from 0."""


@dataclass(slots=True)
class _Body:
    """A request of a compiled body.

    ``broken``: rows of tensors that a broken pass may have left in it; ``whole``: those of its last
    whole pass.
    """

    request: ov.InferRequest
    broken: set[int] = field(default_factory=set)
    whole: set[int] = field(default_factory=set)


class PagedSession:
    """A compiled model with its cache; see `core_runtime.sequences.session.Session`."""

    def __init__(
        self,
        config: ModelConfig,
        body: ov.CompiledModel,
        head: ov.CompiledModel,
        compile_inner: Callable[[], ov.CompiledModel],
        settings: SessionSettings,
        stored: StoredMatrices | None = None,
    ) -> None:
        self.settings, self.config = settings, config
        self._stored = stored  # the graphs' constants, which live as long as it does
        self._has_packed = False
        self._plain = self._body = _Body(body.create_infer_request())
        self._head = head.create_infer_request()
        self._compile_inner: Callable[[], ov.CompiledModel] | None = compile_inner
        self._inner: _Body | None = None  # compiled when inner layers are first read
        self._angles = [Angles(rope) for rope in graph.ropes(config)]
        self._capped = config.attention_cap is not None
        self._computes = self._interrupted = False
        self._turn = threading.Lock()  # between two passes: an interrupt ends the one that it saw

        # Whole blocks for all cells, one to settle the graph, and for each sequence one that it
        # does not fill and one that it copies.
        shape = body.input(graph.keys_name(0)).get_partial_shape()
        block = [shape[axis].get_length() for axis in range(1, 4)]
        width = block[1]
        blocks = -(-settings.cells // width) + 1 + 2 * settings.n_seq_max
        self._cache = KVCache(config.num_layers, blocks, block, settings.precision)
        self._cache.set_on(self._plain.request)
        self._tables = BlockTables(blocks, width, self._cache.copy)

        self._rows: dict[int, int] = {}  # place of a read token among the rows
        self._states: Logits | None = None
        self._logits: Logits | None = None
        self._hidden: Logits | None = None

    @property
    def cells(self) -> int:
        """The number of positions of the cache."""
        return self.settings.cells

    @property
    def n_seq_max(self) -> int:
        """The number of sequences at once."""
        return self.settings.n_seq_max

    @property
    def n_batch(self) -> int:
        """The most tokens of one pass."""
        return self.settings.n_batch

    @property
    def n_ubatch(self) -> int:
        """The same: a pass is not divided."""
        return self.settings.n_batch

    @property
    def n_outputs_max(self) -> int:
        """The most rows of one batch that may be read."""
        return self.settings.n_seq_max

    @property
    def caches_lone_rows_only(self) -> bool:
        """False: blocks of one sequence are copied alike, whatever ran beside it."""
        return False

    @property
    def cache_bytes(self) -> int:
        """The bytes of the KV cache, of which untouched blocks take no memory."""
        return sum(int(array.nbytes) for array in self._cache.arrays.values())

    def new_batch(self) -> PagedBatch:
        """Return an empty batch."""
        return PagedBatch()

    def decode(self, batch: PagedBatch) -> None:
        """Compute the states of the batch's read tokens, and store all keys and values.

        Raises `InterruptedPassError`, `ScarceMemoryError`, or `DecodeError` for another failure.
        """
        self._logits = self._states = self._hidden = None
        if self._body.broken:
            self._settle()
        states = self._reserved(batch.with_pairs())
        for sequence, tokens in batch.spans:
            self._tables.grow(sequence, tokens)
            self._tables.cut(sequence, self._tables.end(sequence))  # without a pair's second place
        self._rows = {token: row for row, token in enumerate(batch.rows)}
        self._states = states

    @property
    def hidden_layers(self) -> Sequence[int]:
        """All layers."""
        return range(self.config.num_layers + 1)

    def decode_hidden(self, batch: PagedBatch, layers: Sequence[int]) -> None:
        """Decode for `hidden`. Inner layers are outputs of a graph of its own."""
        last = self.config.num_layers
        inner = any(layer != last for layer in layers)
        self._body = self._with_inner() if inner else self._plain
        try:
            self.decode(batch)
            states = [self._states] * len(layers)
            if inner:
                all_inner = self._body.request.get_tensor(graph.INNER).data
                states = [self._states if n == last else all_inner[:, n] for n in layers]
            self._hidden = np.concatenate([part for part in states if part is not None], axis=-1)
        except MemoryError as error:
            raise _failure(error) from error
        finally:
            self._body = self._plain

    def interrupt(self) -> None:
        """End the running pass; from any thread."""
        with self._turn:
            if self._computes:
                self._interrupted = True
                self._body.request.cancel()

    def logits(self, index: int) -> Logits:
        """Return the logits [vocab_size] after the batch's token ``index``."""
        if self._logits is None and self._states is not None:
            try:
                _set(self._head, {graph.HIDDEN: self._states})
                self._head.infer()
            except (MemoryError, RuntimeError) as error:
                raise _failure(error) from error
            self._logits = self._head.get_tensor(graph.LOGITS).data  # until the next pass
            self._forget_constants()
        return self._row(self._logits, index)

    def hidden(self, index: int) -> Logits:
        """Return the states after the batch's token ``index``, the last layer's after its norm.

        [layers * hidden_size], in the order of the layers of `decode_hidden`.
        """
        return self._row(self._hidden, index)

    def copy(self, source: int, target: int) -> None:
        """Let an empty sequence begin with all tokens of another one, sharing its blocks."""
        self._tables.share(source, target)

    def drop(self, sequence: int, start: int = END, end: int = END) -> None:
        """Forget the positions from ``start`` to the end."""
        if end != END:
            raise ValueError("positions inside a sequence cannot be dropped")
        self._tables.cut(sequence, max(start, 0))

    def end(self, sequence: int) -> int:
        """Return the position after the last one that a sequence holds."""
        return self._tables.end(sequence)

    def exceeds_window(self, tokens: int) -> bool:
        """Return False: layers with a window keep all keys, too."""
        return False

    def state_bytes(self, sequence: int) -> int:
        """Return the size of `state`."""
        blocks = len(self._tables.table(sequence).blocks)
        return _SIZE.itemsize + blocks * self._cache.block_bytes

    def state(self, sequence: int) -> State:
        """Return a copy of a sequence's blocks, after its size."""
        table = self._tables.table(sequence)
        size = np.array([table.size], _SIZE).view(np.uint8)
        return np.concatenate([size, self._cache.read(table.blocks)])

    def restore(self, state: State, sequence: int) -> bool:
        """Restore a `state` into an empty sequence; False without free blocks."""
        size = int(state[: _SIZE.itemsize].view(_SIZE)[0])
        try:
            self._tables.reserve(sequence, size)
        except MemoryError:
            self._tables.cut(sequence, 0)
            return False
        self._cache.write(self._tables.table(sequence).blocks, state[_SIZE.itemsize :])
        self._tables.grow(sequence, size)
        return True

    def close(self) -> None:
        """Free everything. May be called twice."""
        self._plain.request = self._body.request = self._head = self._inner = None
        self._states = self._logits = self._hidden = self._compile_inner = None
        self._cache.arrays, self._angles = {}, []
        self._stored = None

    # ------------------------------------------------------------ one pass

    def _reserved(self, batch: PagedBatch) -> Logits:
        """Run a batch in blocks reserved for it, which are given back if it fails."""
        sizes = {sequence: self._tables.end(sequence) for sequence, _ in batch.spans}
        self._interrupted = False  # it may come after the last pass was computed
        try:
            for sequence, tokens in batch.spans:
                self._tables.reserve(sequence, tokens)
            return self._run(batch)
        except BaseException as error:
            for sequence, size in sizes.items():
                self._tables.cut(sequence, size)
            if isinstance(error, (MemoryError, RuntimeError)):
                raise self._failure(error) from error
            raise

    def _settle(self) -> None:
        """Run a pass of a size that no node of the graph has seen since the last whole pass.

        OpenVINO keeps the shape of a node's output while its inputs have those of its last run.
        After a pass that broke off, some outputs would keep the shape of that pass.
        """
        broken, batch = self._body.broken, PagedBatch()
        size = next(n for n in count(2) if n not in broken)
        batch.add([0] * size, 0, _SETTLING, size)
        # Capped attention has tensors of as many rows as it reads blocks, and keys.
        fresh = (n for n in count(WIDTH) if broken.isdisjoint((n, n * WIDTH + size)))
        batch.unread = next(fresh)
        try:
            self._reserved(batch)
        finally:
            self._tables.cut(_SETTLING, 0)

    def _run(self, batch: PagedBatch) -> Logits:
        """Run the body on a batch whose blocks are reserved; return the states [R, H]."""
        inputs, body = self._inputs(batch), self._body
        sizes = {len(batch.ids), max(1, len(batch.rows))}
        if self._capped:
            blocks = len(inputs[BLOCKS])
            sizes |= {blocks, blocks * WIDTH + len(batch.ids)}
        body.broken |= body.whole | sizes
        try:
            _set(body.request, inputs)
            with self._turn:
                self._computes = True
                body.request.start_async()
            body.request.wait()
            states: Logits = body.request.get_tensor(graph.HIDDEN).data.copy()
        finally:
            with self._turn:
                self._computes = False
        body.broken, body.whole = set(), sizes
        if self._capped:
            self._store(batch)
        return states

    def _inputs(self, batch: PagedBatch) -> dict[str, npt.NDArray[Any]]:
        """Return all inputs but the caches, which stay set."""
        integers: dict[str, Any] = {
            graph.TOKENS: batch.ids,
            # Every graph reads a row; one that nobody asked for is ignored.
            graph.ROWS: batch.rows or [0],
        }
        inputs: dict[str, npt.NDArray[Any]] = {}
        if self._capped:
            reach = Reach(self._tables, batch.spans, batch.unread)
            integers[BLOCKS] = reach.blocks
            inputs |= reach.masks(kind.window for kind in self.config.layers)
        else:
            integers |= places_of(batch, self._tables)
        inputs |= {name: np.array(values, np.int32) for name, values in integers.items()}

        positions = np.array(batch.positions, np.int64)
        for place, angles in enumerate(self._angles):
            cosines, sines = angles.at(positions)
            inputs |= {cosines_name(place): cosines, sines_name(place): sines}
        return inputs

    def _store(self, batch: PagedBatch) -> None:
        """Write the new keys and values into their blocks, which paged attention does itself."""
        blocks, places = Reach(self._tables, batch.spans).cells()
        for name, cache in self._cache.arrays.items():
            new = self._body.request.get_tensor(graph.new_name(name)).data
            cache[blocks, :, places] = new.view(cache.dtype)

    def _forget_constants(self) -> None:
        """Take stored constants out of memory, once: all products have packed theirs."""
        if self._stored is not None and not self._has_packed:
            self._stored.forget_pages()
        self._has_packed = True

    def _failure(self, error: BaseException) -> DecodeError:
        if self._interrupted:
            return InterruptedPassError("the pass was interrupted")
        return _failure(error)

    def _row(self, rows: Logits | None, index: int) -> Logits:
        if rows is None or index not in self._rows:
            raise DecodeError(f"nothing was computed for the batch's token {index}")
        row: Logits = rows[self._rows[index]]
        return row

    def _with_inner(self) -> _Body:
        """Return the body that also returns the states of all layers; raises `DecodeError`."""
        if self._inner is None:
            assert self._compile_inner is not None  # not closed
            try:
                inner = _Body(self._compile_inner().create_infer_request())
                self._cache.set_on(inner.request)
            except (MemoryError, RuntimeError) as error:
                raise _failure(error) from error
            self._inner = inner
        return self._inner


def _failure(error: BaseException) -> DecodeError:
    return ScarceMemoryError(reason_of(error)) if lacks_memory(error) else DecodeError(str(error))


def _set(request: ov.InferRequest, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
    """Set inputs without a copy; the arrays have to stay as long as the request runs."""
    for name, values in inputs.items():
        request.set_tensor(name, ov.Tensor(values, shared_memory=True))
