"""The registry: lazy, guarded, and choosing with reasons."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from core.errors import (
    AmbiguousBackendError,
    BackendError,
    BackendImportError,
    ProtocolMismatchError,
    UnknownBackendError,
)
from core.plugins import read_group
from core.protocols import Capability
from core.registry import BackendEntry, Registry

Use = Callable[..., None]
ALL = ("sound", "broken", "exits", "twin_a", "twin_b", "unavailable", "malformed", "future")


@pytest.fixture
def registry() -> Registry:
    return Registry()


# --------------------------------------------------------------------------- names


def test_listing_imports_no_plugin(registry: Registry, use_plugins: Use) -> None:
    use_plugins(*ALL)
    for name in list(sys.modules):
        if name.startswith("fake_"):
            del sys.modules[name]
    names = registry.names()
    assert set(names) >= {"fake_sound", "fake_broken", "fake_twin", "fake_unavailable"}
    assert [failure.distribution for failure in registry.failures()] == ["fake-malformed"]
    assert not [name for name in sys.modules if name.startswith("fake_")]


def test_entries_say_where_a_name_comes_from(registry: Registry, use_plugins: Use) -> None:
    use_plugins("broken")
    assert registry.entries() == (
        BackendEntry("fake_broken", "fake-broken", "1.0", "fake_broken:Backend"),
    )


def test_names_come_in_order_of_preference(
    registry: Registry, use_plugins: Use, local_backend: Any
) -> None:
    use_plugins("broken")
    for name in ("zz", "mlx_cpu", "llama_cpp", "metal", "aa", "openvino"):
        registry.register(local_backend(name))
    known = ("metal", "openvino", "llama_cpp", "mlx_cpu")
    assert registry.names() == (*known, "aa", "fake_broken", "zz")


# --------------------------------------------------------------------------- get


@pytest.mark.parametrize("name", ["fake_sound", "fake_factory", "fake_instance"])
def test_a_class_a_factory_or_an_instance(registry: Registry, use_plugins: Use, name: str) -> None:
    use_plugins("sound")
    backend = registry.get(name)
    assert backend.name == "fake_sound"
    assert backend.available()
    assert registry.get(name) is backend


def test_a_plugin_that_raises_on_import(registry: Registry, use_plugins: Use) -> None:
    use_plugins("broken", "sound")
    with pytest.raises(BackendImportError) as caught:
        registry.get("fake_broken")
    for part in ("fake-broken 1.0", "fake_broken:Backend", "libfake.so was built for another"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert registry.get("fake_sound").available()


def test_a_plugin_that_exits_on_import(registry: Registry, use_plugins: Use) -> None:
    use_plugins("exits")
    with pytest.raises(BackendImportError, match="usage: fake_exits"):
        registry.get("fake_exits")


def test_an_entry_point_to_nothing(registry: Registry, use_plugins: Use) -> None:
    use_plugins("partial")
    with pytest.raises(BackendImportError, match="Nowhere"):
        registry.get("fake_nowhere")


def test_an_object_that_is_no_backend(registry: Registry, use_plugins: Use) -> None:
    use_plugins("partial")
    with pytest.raises(BackendImportError) as caught:
        registry.get("fake_partial")
    assert "lacks capabilities, formats, unavailable_reason, load_model" in str(caught.value)


def test_another_version_of_the_contract(registry: Registry, use_plugins: Use) -> None:
    use_plugins("future")
    with pytest.raises(
        ProtocolMismatchError, match=r"version 99 .* core implements version 2"
    ) as caught:
        registry.get("fake_future")
    assert "fake-future" in str(caught.value)
    assert "Upgrade core." in str(caught.value)


def test_two_plugins_with_one_name(registry: Registry, use_plugins: Use) -> None:
    use_plugins("twin_a", "twin_b", "sound")
    assert len([entry for entry in registry.entries() if entry.name == "fake_twin"]) == 2
    assert registry.names().count("fake_twin") == 1
    with pytest.raises(AmbiguousBackendError) as caught:
        registry.get("fake_twin")
    assert "fake-twin-a 1.0" in str(caught.value)
    assert "fake-twin-b 1.0" in str(caught.value)
    assert registry.get("fake_sound").available()


def test_one_object_from_two_distributions_is_one(registry: Registry, use_plugins: Use) -> None:
    use_plugins("sound", "same_a")
    assert len([entry for entry in registry.entries() if entry.name == "fake_sound"]) == 1
    assert registry.get("fake_sound").available()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("fake_soond", ["Did you mean 'fake_sound'?", "Installed backends: "]),
        ("mlx_cpu", ["pip install -r DIST/mlx.txt"]),
        ("mlx_lm", ["-r DIST/mlx-lm.txt"]),
        ("llama_cpp", ["-r DIST/llama-cpp.txt"]),
        ("rocm", ["-r DIST/llama-cpp.txt"]),
        ("lama_cpp", ["Did you mean 'llama_cpp'?", "-r DIST/llama-cpp.txt"]),
        ("qqqq", ["'qqqq'", "fake_factory, fake_instance, fake_sound"]),
        ("fake_malformed", ["Cannot read fake-malformed"]),
    ],
)
def test_an_unknown_name(registry: Registry, use_plugins: Use, name: str, parts: list[str]) -> None:
    use_plugins("sound", "malformed")
    with pytest.raises(UnknownBackendError) as caught:
        registry.get(name)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize(
    ("system", "name", "said", "not_said"),
    [
        ("linux", "metal", "'metal' requires a Mac with Apple silicon", "pip install"),
        ("darwin", "metal", "-r DIST/mlx.txt", "needs"),
        ("linux", "mlx_cuda", "in an environment without core[mlx])", "needs"),
        ("darwin", "mlx_cuda", "'mlx_cuda' requires Linux with an NVIDIA GPU", "pip install"),
        ("linux", "mlx", "Did you mean 'mlx_cpu' or 'mlx_cuda'?", "metal"),
        ("darwin", "mlx", "Did you mean 'mlx_cpu' or 'metal'?", "mlx_cuda"),
    ],
)
def test_nothing_is_recommended_that_cannot_run_here(
    registry: Registry,
    use_plugins: Use,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    name: str,
    said: str,
    not_said: str,
) -> None:
    use_plugins("sound")
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(UnknownBackendError) as caught:
        registry.get(name)
    assert said in str(caught.value)
    assert not_said not in str(caught.value)


def test_no_backend_at_all(registry: Registry, use_plugins: Use) -> None:
    use_plugins()
    with pytest.raises(UnknownBackendError, match=r"Installed backends: none.*-r DIST/mlx\.txt"):
        registry.get("qqqq")


# --------------------------------------------------------------------------- register


def test_register_replaces_in_silence(
    registry: Registry, use_plugins: Use, local_backend: Any
) -> None:
    use_plugins("sound", "twin_a", "twin_b")
    for name in ("fake_sound", "fake_twin", "fake_local"):
        registry.register(local_backend(name))
        second = local_backend(name)
        registry.register(second)
        assert registry.get(name) is second
        assert registry.names().count(name) == 1
    assert registry.entries()[-1].distribution == ""


def test_register_refuses_what_is_no_backend(registry: Registry) -> None:
    wrong: Any = object()
    with pytest.raises(BackendError, match="lacks name, protocol"):
        registry.register(wrong)


@pytest.mark.parametrize("protocol", [0, 1, "2", 2.0, True, None])
def test_a_registered_backend_keeps_the_protocol_too(
    registry: Registry, local_backend: Any, protocol: object
) -> None:
    backend = local_backend("fake_old")
    backend.protocol = protocol
    registry.register(backend)
    with pytest.raises(ProtocolMismatchError, match="Upgrade the backend"):
        registry.get("fake_old")


def test_a_search_through_all_backends_reads_the_metadata_twice(
    registry: Registry, use_plugins: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plugins("sound", "broken", "picky")
    read: list[str] = []

    def counted(group: str) -> Any:
        read.append(group)
        return read_group(group)

    monkeypatch.setattr("core.registry.read_group", counted)
    assert registry.describers() == ()
    assert len(registry.names()) > 4
    assert len(read) == 3  # the names, all that stands for them, and the names once more here


def test_all_threads_get_the_same_backend(registry: Registry, use_plugins: Use) -> None:
    use_plugins("sound")
    start = threading.Barrier(8)
    got: list[int] = []

    def ask() -> None:
        start.wait()
        got.append(id(registry.get("fake_factory")))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len(set(got)) == 1


# --------------------------------------------------------------------------- status, offering


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fake_broken", "libfake.so"),
        ("fake_exits", "usage"),
        ("fake_twin", "fake-twin-a"),
        ("fake_unavailable", "needs a GPU"),
        ("fake_future", "99"),
        ("fake_asking_raises", "OSError: no driver"),
        ("fake_partial", "lacks"),
        ("nobody", "Unknown backend"),
    ],
)
def test_status_gives_the_reason_and_never_raises(
    registry: Registry, use_plugins: Use, name: str, reason: str
) -> None:
    use_plugins(*ALL, "picky", "partial")
    status = registry.status(name)
    assert not status.available
    assert status.reason is not None
    assert reason in status.reason


def test_status_of_a_sound_backend(registry: Registry, use_plugins: Use) -> None:
    use_plugins("sound")
    status = registry.status("fake_sound")
    assert status.available
    assert status.reason is None
    assert (status.distribution, status.version) == ("fake-sound", "1.0")
    assert status.formats == ("gguf", "safetensors")
    assert status.capabilities == ("classify", "generate")
    assert [device.name for device in status.devices] == ["a fake processor"]


def test_an_unavailable_backend_without_a_reason(registry: Registry, local_backend: Any) -> None:
    backend = local_backend("fake_local")
    backend.available = lambda: False
    registry.register(backend)
    assert registry.status("fake_local").reason == "it gives no reason"


def test_devices_that_raise_do_not_spoil_the_status(registry: Registry, local_backend: Any) -> None:
    def devices() -> Any:
        raise OSError("no driver")

    backend = local_backend("fake_local")
    backend.devices = devices
    registry.register(backend)
    status = registry.status("fake_local")
    assert (status.available, status.devices) == (True, ())


def test_offering_leaves_the_broken_out(
    registry: Registry, use_plugins: Use, local_backend: Any
) -> None:
    use_plugins("sound", "broken", "twin_a", "twin_b")
    registry.register(local_backend("fake_local"))
    assert registry.offering(Capability.SCORING) == ("fake_local",)
    assert "fake_sound" in registry.offering(Capability.CLASSIFY)
    assert registry.reading(["gguf"]) == ("fake_factory", "fake_instance", "fake_sound")
