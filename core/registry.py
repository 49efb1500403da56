"""Backends by name.

Names come from the metadata of the entry-point group ``core.backends``; nothing is imported to
list them. An entry point names a `Backend`: an instance, a class, or a factory without arguments.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from core.choosing import (
    BackendChoice,
    Verdict,
    choose,
    judge,
    own_options,
    unavailability,
)
from core.errors import (
    ANYTHING,
    AmbiguousBackendError,
    BackendError,
    BackendImportError,
    BackendUnavailableError,
    ProtocolMismatchError,
    UnknownBackendError,
    UnsupportedModelError,
    described,
)
from core.extensions import DeviceReporting
from core.models.discovery import Describer, describe_with, described_by, describer, describes
from core.models.files import resolve_path
from core.models.locating import recognised
from core.plugins import (
    EntryPointFailure,
    EntryPointRecord,
    how_to_read,
    rank,
    read_group,
    unknown_backend,
)
from core.protocols import PROTOCOL_VERSION, Backend, Capability
from core.types import BackendStatus, Device, DiscoveredModel

GROUP = "core.backends"
_Group: TypeAlias = tuple[tuple[EntryPointRecord, ...], tuple[EntryPointFailure, ...]]
_MEMBERS = (
    "name",
    "protocol",
    "capabilities",
    "formats",
    "available",
    "unavailable_reason",
    "load_model",
)


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """A registered backend. ``distribution`` and ``version`` are empty after ``register()``."""

    name: str
    distribution: str
    version: str
    value: str


class Registry:
    """All backends of this process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held while a plugin runs: it may call us again
        self._registered: dict[str, Backend] = {}
        self._loaded: dict[EntryPointRecord, Backend] = {}

    def entries(self) -> tuple[BackendEntry, ...]:
        """Return all registered backends, in order of preference.

        A name that two distributions register occurs twice.
        """
        with self._lock:
            registered = dict(self._registered)
        entries = [BackendEntry(name, "", "", _origin(b)) for name, b in registered.items()]
        entries += [
            BackendEntry(record.name, record.distribution, record.version, record.value)
            for record in _distinct(read_group(GROUP)[0])
            if record.name not in registered
        ]
        return tuple(sorted(entries, key=lambda entry: rank(entry.name)))

    def names(self) -> tuple[str, ...]:
        """Return each name once, in order of preference."""
        return tuple(dict.fromkeys(entry.name for entry in self.entries()))

    def failures(self) -> tuple[EntryPointFailure, ...]:
        """Return the distributions that seem to register backends in unreadable metadata."""
        return read_group(GROUP)[1]

    def register(self, backend: Backend) -> None:
        """Add a backend under its own name; it replaces any other with that name.

        Raises `BackendError` for an object that is not a backend.
        """
        if missing := _missing(backend):
            raise BackendError(
                f"{_origin(backend)} is not a backend: it lacks {', '.join(missing)} "
                "(see core.Backend)."
            )
        with self._lock:
            self._registered[backend.name] = backend

    def get(self, name: str) -> Backend:
        """Return the backend of this name, whether or not it can run here.

        Raises `UnknownBackendError`, `AmbiguousBackendError`, `BackendImportError`,
        `ProtocolMismatchError`.
        """
        return self._get(name, functools.partial(read_group, GROUP))

    def _getter(self) -> Callable[[str], Backend]:
        """Return a `get` for many names in a row: it reads the metadata once."""
        read = functools.cache(functools.partial(read_group, GROUP))
        return lambda name: self._get(name, read)

    def _get(self, name: str, read: Callable[[], _Group]) -> Backend:
        with self._lock:
            registered = self._registered.get(name)
        if registered is not None:
            _check_protocol(registered.protocol, f"Backend {name!r}")
            return registered

        record = self._record(name, *read())
        with self._lock:
            loaded = self._loaded.get(record)
        if loaded is not None:
            return loaded

        backend = _load(record)
        with self._lock:  # of two threads that loaded it at once, both get the first one's
            return self._loaded.setdefault(record, backend)

    def status(self, name: str) -> BackendStatus:
        """Return a backend's status without loading a model. Never raises."""
        entries = [entry for entry in self.entries() if entry.name == name]
        distribution = ", ".join(entry.distribution for entry in entries)
        version = ", ".join(entry.version for entry in entries)

        # Any exception from a plugin becomes the reason.
        try:
            backend = self.get(name)
            reason = unavailability(backend)
            formats = tuple(sorted(backend.formats))
            capabilities = tuple(sorted(str(item) for item in backend.capabilities))
            options = own_options(backend)
        except ANYTHING as error:
            return BackendStatus(name, distribution, version, False, described(error))

        devices = _devices(backend)
        known = (formats, capabilities, devices, options)
        return BackendStatus(name, distribution, version, reason is None, reason, *known)

    def offering(
        self, capability: Capability, formats: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Return the backends that run here, read one of these formats and declare this."""
        sound = self._running(self.names())
        return tuple(
            name
            for name, b in sound
            if capability in b.capabilities and (formats is None or set(formats) & set(b.formats))
        )

    def reading(self, formats: Collection[str]) -> tuple[str, ...]:
        """Return the names of the backends that run here and read one of these formats."""
        sound = self._running(self.names())
        return tuple(name for name, b in sound if set(formats) & set(b.formats))

    def choose(self, path: str | os.PathLike[str], *needed: Capability) -> BackendChoice:
        """Return the best backend for a model, with reasons; raises like `core.choosing.choose`."""
        return choose(self.names(), self._getter(), path, *needed)

    def judge(self, models: Iterable[DiscoveredModel]) -> Iterator[Verdict]:
        """Yield which backends load each of these models, or why none does.

        Each backend is imported once, and its availability is checked once.
        """
        names, known = self.names(), dict[str, str | None]()
        get = functools.cache(self._getter())

        def unavailable(backend: Backend) -> str | None:
            if backend.name not in known:
                known[backend.name] = unavailability(backend)
            return known[backend.name]

        for model in models:
            yield judge(names, get, model.path, model, unavailable)

    def verdict(self, path: str | os.PathLike[str], model: DiscoveredModel | None) -> Verdict:
        """Return which backends load a model, or why none does; see `core.choosing.judge`."""
        return judge(self.names(), self._getter(), path, model)

    def suited(self, name: str, path: str | os.PathLike[str]) -> Backend:
        """Return the backend of this name if it runs here and may load the model at a path.

        A model in a format of other backends is rejected, unless this one describes it as its own.
        Raises like `get`, `BackendUnavailableError`, `UnsupportedModelError`,
        `ModelNotFoundError` if the path does not exist, and `ModelAccessError`.
        """
        location = resolve_path(path)
        formats = recognised(location)
        backend = self.get(name)
        if reason := unavailability(backend):
            raise BackendUnavailableError(name, reason)
        if formats and set(formats).isdisjoint(backend.formats):
            model, fault = described_by(backend, location)
            if model is None:
                raise UnsupportedModelError(self._wrong_format(name, location, formats, fault))
        return backend

    def _running(self, names: Iterable[str]) -> Iterator[tuple[str, Backend]]:
        """Yield the backends of these names that run here; broken plugins are skipped."""
        get = self._getter()
        for name in names:
            with contextlib.suppress(BackendError):
                backend = get(name)
                if unavailability(backend) is None:
                    yield name, backend

    def describers(self) -> tuple[Describer, ...]:
        """Return the describers of the backends that recognise models (`core.ModelFinding`).

        Backends that cannot run here are included. All installed ones are imported to check for
        `core.ModelFinding`: their modules are light, and a load without ``backend=`` imports them
        as well.
        """
        describers: list[Describer] = []
        get = self._getter()
        for name in self.names():
            with contextlib.suppress(BackendError):  # a broken plugin hides no other
                backend = get(name)
                if describes(backend):
                    describers.append(describer(backend))
        return tuple(describers)

    def _wrong_format(self, name: str, location: str, formats: Collection[str], fault: str) -> str:
        reads = ", ".join(sorted(self.get(name).formats)) or "no format"
        what = f"Backend {name!r} only loads {reads}; {location!r} is {' or '.join(formats)}."
        if fault:
            what += f" Its check whether the model is its own failed: {fault}."
        if others := self.verdict(location, None).backends or self.reading(formats):
            return f"{what} Use backend {others[0]!r} instead."
        return f"{what} {how_to_read(formats, self.names())}".rstrip()

    def _record(
        self,
        name: str,
        records: Sequence[EntryPointRecord],
        failures: Sequence[EntryPointFailure],
    ) -> EntryPointRecord:
        claims = _distinct(record for record in records if record.name == name)
        if not claims:
            raise UnknownBackendError(unknown_backend(name, self.names(), failures))
        if len(claims) > 1:
            both = " and by ".join(_claim(record) for record in claims)
            raise AmbiguousBackendError(
                f"Backend {name!r} is registered by {both}. Uninstall all but one of them."
            )
        return claims[0]


REGISTRY = Registry()
"""The registry that the functions of `core` use."""

describe_with(lambda: REGISTRY.describers())


def _distinct(records: Iterable[EntryPointRecord]) -> list[EntryPointRecord]:
    # One object under one name is one backend, however many distributions register it.
    return list({(record.name, record.value): record for record in records}.values())


def _load(record: EntryPointRecord) -> Backend:
    who = f"Backend {record.name!r} from {_claim(record)}"
    try:
        target = _instance(record.load())
        protocol, missing = _protocol(target), _missing(target)
    except ANYTHING as error:
        raise BackendImportError(
            f"{who} could not be imported: {described(error)}. "
            f"Repair or uninstall {record.distribution}."
        ) from error

    # The version first: another version may have other members.
    _check_protocol(protocol, who)
    if missing:
        raise BackendImportError(
            f"{who} is not a backend: it lacks {', '.join(missing)} (see core.Backend). "
            f"Upgrade {record.distribution}, or report this to its authors."
        )
    return cast("Backend", target)


def _instance(target: object) -> object:
    # A class has all members as well, so it is checked first.
    if isinstance(target, type) or (callable(target) and _missing(target)):
        return target()
    return target


def _protocol(target: object) -> object:
    return getattr(target, "protocol", PROTOCOL_VERSION)  # without one it lacks a member


def _check_protocol(protocol: object, who: str) -> None:
    if type(protocol) is int and protocol == PROTOCOL_VERSION:
        return
    newer = isinstance(protocol, int) and protocol > PROTOCOL_VERSION
    raise ProtocolMismatchError(
        f"{who} was written for version {protocol} of the backend contract; this core implements "
        f"version {PROTOCOL_VERSION}. Upgrade {'core' if newer else 'the backend'}."
    )


def _missing(target: object) -> list[str]:
    return [member for member in _MEMBERS if not hasattr(target, member)]


def _claim(record: EntryPointRecord) -> str:
    return f"{record.distribution} {record.version} ({record.value})"


def _origin(backend: object) -> str:
    return f"{type(backend).__module__}:{type(backend).__qualname__}"


def _devices(backend: Backend) -> tuple[Device, ...]:
    if not isinstance(backend, DeviceReporting):
        return ()
    try:
        return tuple(backend.devices())
    except ANYTHING:  # it must not raise; the rest of its status is still valid
        return ()
