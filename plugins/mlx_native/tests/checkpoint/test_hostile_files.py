"""Model directories made to hang a load, to fill the memory, or to be named badly.

What could end or stop the process runs in a child.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native.backend import Cpu
from core_runtime.tokenizer.tokenizer_json import check_charsmaps

Checkpoint = Callable[..., Path]

FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"),
    *("chat_template.jinja", "model.safetensors", "model.safetensors.index.json"),
)
LOAD = """
import sys
import core
try:
    core.load_model(sys.argv[1], backend="mlx_cpu").close()
    print("loaded")
except core.CoreError as error:
    print(type(error).__name__, error)
"""


def child(directory: Path, code: str = LOAD, limit: str = "", timeout: float = 120) -> str:
    """What a process prints that loads the model and must not hang, nor end by a signal."""
    command = [sys.executable, "-c", code, str(directory)]
    if limit:
        command = ["sh", "-c", f'{limit}; exec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def load(directory: Path) -> core.TextModel:
    return Cpu().load_model(directory, core.LoadConfig())


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_is_not_waited_for(checkpoint: Checkpoint, name: str) -> None:
    directory = checkpoint()
    replace(directory / name, os.mkfifo)
    printed = child(directory)
    assert printed.startswith(("InvalidModelError", "TokenizerError"))
    assert name in printed
    assert "a pipe or a device" in printed


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja", "config.json"])
def test_an_endless_file_is_not_read(checkpoint: Checkpoint, name: str) -> None:
    directory = checkpoint()
    replace(directory / name, lambda path: path.symlink_to("/dev/zero"))
    with pytest.raises(core.ModelError, match="a pipe or a device"):
        load(directory)
    replace(directory / name, lambda path: path.touch())
    os.truncate(directory / name, 2**40)  # sparse
    with pytest.raises(core.ModelError, match="larger than"):
        load(directory)


def with_normalizer(directory: Path, text: str) -> None:
    path = directory / "tokenizer.json"
    found = json.loads(path.read_text())
    found["normalizer"] = "HERE"
    path.write_text(json.dumps(found).replace('"HERE"', text))


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "Precompiled", "precompiled_charsmap": "/////w=="}',
        '{"type": "Precompiled", "precompiled_charsma\\u0070": "/////w=="}',
        '{"type": "Sequence", "normalizers": '
        '[{"type": "Precompiled", "precompiled_charsmap": "/////w=="}]}',
        '{"type": "Precompiled", "precompiled_charsmap": "/////w==", '
        '"precompiled_charsmap": "AAAAAA=="}',
    ],
)
def test_a_small_file_cannot_ask_for_gigabytes(checkpoint: Checkpoint, text: str) -> None:
    directory = checkpoint()
    with_normalizer(directory, text)
    printed = child(directory, limit="ulimit -v 6000000")
    assert printed.startswith("TokenizerError")
    assert "4294967295 bytes" in printed


def test_a_sound_map_of_characters_is_left_to_the_library() -> None:
    sound = base64.b64encode((8).to_bytes(4, "little") + b"12345678abc").decode()
    check_charsmaps(json.dumps({"precompiled_charsmap": sound}).encode())
    check_charsmaps(b'{"precompiled_charsmap": "no base64", "charsmap')
    check_charsmaps(b'{"precompiled_charsmap": null}')


@pytest.mark.parametrize("token", ["bos_token", "eos_token", "unk_token", "pad_token"])
@pytest.mark.parametrize("as_object", [False, True])
def test_a_special_token_that_is_no_text(
    checkpoint: Checkpoint, token: str, as_object: bool
) -> None:
    directory = checkpoint()
    text = "a\udc80"
    settings: dict[str, Any] = {token: {"content": text} if as_object else text}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(core.TokenizerError, match=f"{token} is .*udc80.*lone surrogate"):
        load(directory)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_directory_whose_name_is_not_utf8(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    odd = directory.rename(directory.with_name("model-\udce9"))
    with load(directory=odd) as model:
        named = model.classify(["ab no"], return_logits=True)[0].logits
    with load(odd.rename(directory)) as model:
        assert model.classify(["ab no"], return_logits=True)[0].logits == named


def test_a_relative_path_in_a_working_directory_that_was_deleted(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    code = (
        "import os, sys\nos.makedirs(sys.argv[1] + '/gone'); os.chdir(sys.argv[1] + '/gone')\n"
        "os.rmdir(os.getcwd()); path, sys.argv[1] = sys.argv[1], 'model'\n"
    )
    directory = checkpoint()
    printed = child(directory, code + LOAD)
    assert printed.startswith("ModelNotFoundError")
    assert "was deleted" in printed
    assert child(directory, code + "sys.argv[1] = path\n" + LOAD) == "loaded\n"


def test_a_panic_of_the_tokenizer_is_a_typed_error(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    class Panicking:
        def encode_batch_fast(self, *_: object, **__: object) -> None:
            raise PanicException("no thread pool")

    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
        monkeypatch.setattr(model._loaded.tokenizer, "library", Panicking())
        with pytest.raises(core.TokenizerError, match="no thread pool"):
            model.encode("ab")
        with pytest.raises(core.TokenizerError, match="no thread pool"):
            model.classify(["ab"])
        monkeypatch.undo()
        assert model.classify(["ab"])[0].error is None


def test_a_load_without_a_thread_for_it(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    directory = checkpoint()
    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(core.OutOfMemoryError, match="cannot start another thread") as caught:
        load(directory)
    assert "dtype" not in str(caught.value)
    monkeypatch.undo()
    load(directory).close()


def test_a_load_for_which_mlx_gets_no_thread(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("Resource temporarily unavailable")

    directory = checkpoint()
    monkeypatch.setattr("core_mlx_native.loading.load", refuse)
    with pytest.raises(core.OutOfMemoryError, match="cannot start another thread"):
        load(directory)


@pytest.mark.skipif(sys.platform != "linux", reason="sets a limit of Linux")
def test_a_limit_of_addresses_is_named_where_it_is_the_cause(checkpoint: Checkpoint) -> None:
    code = """
import sys
import core, resource
core.load_model(sys.argv[1], backend="mlx_cpu").close()
import core_mlx_native.loading as loading
def fail(*_):
    raise MemoryError
loading.load = fail
for limit in (resource.RLIM_INFINITY, 2**36):
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        core.load_model(sys.argv[1], backend="mlx_cpu")
    except core.OutOfMemoryError as error:
        print("dtype" in str(error), "ulimit -v" in str(error))
"""
    assert child(checkpoint(), code).split() == ["True", "False", "False", "True"]


@pytest.mark.parametrize("call", ["classify_iter(['ab'] * 9)", "batch_stream(list('abcdefghi'))"])
@pytest.mark.parametrize("begun", [True, False])
def test_an_open_iterator_at_the_interpreters_end_is_silent(
    checkpoint: Checkpoint, call: str, begun: bool
) -> None:
    code = (
        "import builtins, sys, core\nmodel = core.load_model(sys.argv[1], backend='mlx_cpu')\n"
        f"rows = builtins.rows = model.{call}\n" + "next(rows)\n" * begun  # it goes last
    )
    assert child(checkpoint(), code) == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(checkpoint: Checkpoint, closed: str, tmp_path: Path) -> None:
    code = (
        "import os, sys, core\nmodel = core.load_model(sys.argv[1], backend='mlx_cpu')\n"
        "model.classify(['ab'])\nlist(model.generate('ab', max_tokens=2))\nmodel.close()\n"
        "open(sys.argv[1] + '/done', 'w').close()"
    )
    directory = checkpoint()
    command = [sys.executable, "-c", code, str(directory)]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command], timeout=120, check=False
    )
    assert done.returncode == 0
    assert (directory / "done").exists()


def test_a_machine_on_which_nothing_can_be_written(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/proc/nothing")
    code = (
        "import resource, sys, core\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"  # no file may grow
        "with core.load_model(sys.argv[1], backend='mlx_cpu') as model:\n"
        "    assert model.classify(['ab'], labels=['ab', 'no'])[0].error is None\n"
        "    assert len(list(model.generate('ab', max_tokens=2))) == 2\n"
    )
    assert child(checkpoint(), code) == ""


def test_a_chat_template_that_is_no_text(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    settings = {"chat_template": "{{ messages[0].content }}\udc80"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    message = core.Message("user", "ab")
    with load(directory) as model:
        with pytest.raises(core.RequestError, match="lone surrogate"):
            list(model.chat([message]))
        assert model.classify(["ab"])[0].error is None


def test_surrogates_in_a_call(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    settings = {"chat_template": "{{ messages[0].content }}"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    with load(directory) as model:
        for stream in (
            model.chat([core.Message("user", "a\udc80")]),
            model.generate("a\udc80"),
        ):
            with pytest.raises(core.RequestError, match="lone surrogate"):
                next(stream)
        tokens = list(model.generate("ab", stop=("\udc80",), max_tokens=2))  # which no text has
        assert len(tokens) == 2
        assert model.classify(["ab"])[0].error is None
