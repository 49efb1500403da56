"""Where a model is and what it is made of, with one typed error for each way that can fail."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO, cast

from core.errors import InvalidModelError, ModelAccessError, ModelError, ModelNotFoundError
from core.system.limited_files import Refused, json_value, open_regular, read_limited
from core.types import ModelFormat

FORMATS = frozenset({"safetensors", "gguf", "http"})
"""The formats that `core` recognises by itself; any other is a backend's own."""

MAX_JSON_BYTES = 64 * 2**20
"""No configuration is near this size; a file that is would only fill the memory."""

# A path object makes one slash of the two. Other schemes have both, and are not a drive's letter.
_SERVER = re.compile("(https?):/+(?=[^/])", re.IGNORECASE)
_ADDRESS = re.compile("([a-z][a-z0-9+.-]+)://", re.IGNORECASE)

HOW_TO_GET = (
    "Models are read from disk, never downloaded: `infer-cli discover` lists those on this "
    "machine; `hf download ORG/NAME`, `ollama pull NAME` or LM Studio get others."
)
_MODEL_DIRECTORY = "A model directory holds config.json and *.safetensors files, or a *.gguf file."


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether a model is not given by a path, but by an address: ``scheme://...``."""
    text = os.fsdecode(path)
    return bool(_SERVER.match(text) or _ADDRESS.match(text))


def is_server(path: str | os.PathLike[str]) -> bool:
    """Return whether an address begins with ``http://`` or ``https://``."""
    return _SERVER.match(os.fsdecode(path)) is not None


def resolve_path(path: str | os.PathLike[str]) -> str:
    """The absolute form of a path, ``~`` expanded; an address stays as it is.

    Raises `ModelNotFoundError` when it is empty, or relative to a directory that was deleted, and
    for an address that holds a password, which messages and logs would show.
    """
    text = os.fsdecode(path)
    if server := _SERVER.match(text):
        return f"{server[1].lower()}://{_without_secrets(text[server.end() :])}"
    if address := _ADDRESS.match(text):
        _without_secrets(text[address.end() :])
        return text
    if not text:
        raise ModelNotFoundError("The model's path is empty. Give a directory or a .gguf file.")
    try:
        return os.path.abspath(os.path.expanduser(text))
    except FileNotFoundError as error:
        raise ModelNotFoundError(
            f"{text!r} is relative to the working directory of this process, which was deleted. "
            "Give an absolute path, or change to a directory that is there."
        ) from error


def _without_secrets(rest: str) -> str:
    _, at, host = re.split("[/?#]", rest, maxsplit=1)[0].rpartition("@")
    if at:
        raise ModelNotFoundError(
            f"The address of {host!r} has a user or a password in it, which messages and logs "
            "would show. Give the key to the backend: to 'remote' as options={'api_key': ...}, or "
            "in CORE_REMOTE_API_KEY."
        )
    return rest


@contextlib.contextmanager
def typed_errors(path: str) -> Iterator[None]:
    """Turn an error of the operating system, and `Refused`, about ``path`` into a `ModelError`."""
    try:
        yield
    except ModelError:  # typed already; some are OSErrors too
        raise
    except Refused as error:
        raise _broken(path, str(error)) from error
    except PermissionError as error:
        raise ModelAccessError(
            f"No permission to read {path!r}. Change its permissions, and those of the "
            "directories above it, or run as a user who may read it."
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelNotFoundError(
            f"There is no model at {path!r}: no such file or directory. {HOW_TO_GET}"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error
        raise ModelNotFoundError(f"{path!r} cannot be read: {reason}. Check the path.") from error


def check_exists(location: str) -> None:
    """Raise `ModelNotFoundError` where nothing is at a path; anything may be at an address."""
    if not is_address(location):
        with typed_errors(location):
            os.stat(location)


def model_formats(path: str | os.PathLike[str]) -> tuple[ModelFormat, ...]:
    """The formats that a model is stored in, the one to prefer first; weights are not checked.

    They are those that `core` knows: ``safetensors``, ``gguf``, and ``http`` for the address of a
    server, which is not asked.

    Raises `ModelNotFoundError` (nothing there, or nothing that is a model in one of them),
    `ModelAccessError` (no permission) and `InvalidModelError` (called .gguf and is not GGUF, an
    adapter, a publisher's own format).
    """
    location = resolve_path(path)
    if is_server(location):
        return ("http",)
    if is_address(location):
        raise ModelNotFoundError(
            f"Nothing here reads the address {location!r}: only http:// and https:// are known. "
            "Name the backend that reads it (backend=...); give a file by its path alone."
        )
    with typed_errors(location):
        mode = os.stat(location).st_mode
        if stat.S_ISDIR(mode):
            return _directory_formats(location, os.listdir(location))
        if not stat.S_ISREG(mode):
            raise ModelNotFoundError(f"{location!r} is not a file. {_MODEL_DIRECTORY}")
        return _file_formats(location)


def open_model_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; nothing else is ever opened and waited for, or read.

    Raises `ModelNotFoundError`, `ModelAccessError`, and `InvalidModelError` for a pipe or a device.
    """
    location = resolve_path(path)
    with typed_errors(location):
        return open_regular(location)


def read_model_file(path: str | os.PathLike[str], limit: int) -> bytes:
    """The whole of a regular file of at most ``limit`` bytes.

    Raises like `open_model_file`, and `InvalidModelError` for a larger file, before it is read.
    """
    location = resolve_path(path)
    with typed_errors(location):
        return read_limited(location, limit)


def read_config_json(directory: str | os.PathLike[str]) -> dict[str, object]:
    """The ``config.json`` of a model directory; raises like `read_json_object`."""
    return read_json_object(os.path.join(resolve_path(directory), "config.json"))


def read_json_object(path: str | os.PathLike[str]) -> dict[str, object]:
    """A JSON file that holds an object.

    Raises `ModelNotFoundError`, `ModelAccessError`, or `InvalidModelError` for anything else.
    """
    location = resolve_path(path)
    with typed_errors(location):
        value = json_value(read_limited(location, MAX_JSON_BYTES), unique=False)
    if not isinstance(value, dict):
        raise _broken(location, f"it holds a {type(value).__name__}, not an object")
    return cast("dict[str, object]", value)


def is_gguf_name(name: str) -> bool:
    """Whether a file name is a GGUF model's; ``mmproj`` files are image encoders, not models."""
    lower = name.lower()
    return lower.endswith(".gguf") and not lower.startswith(("mmproj", "."))


def _directory_formats(location: str, names: list[str]) -> tuple[ModelFormat, ...]:
    has_config = "config.json" in names
    has_gguf = any(is_gguf_name(name) for name in names)
    has_tensors = any(name.endswith(".safetensors") for name in names)
    # Without any weights it still is a (broken) safetensors model: its loader says what is missing.
    if has_config and (has_tensors or not has_gguf):
        return ("safetensors", "gguf") if has_gguf else ("safetensors",)
    if has_gguf:
        return ("gguf",)
    if "adapter_config.json" in names:
        raise InvalidModelError(
            f"{location!r} is a LoRA adapter, not a model. Load the model that it belongs to, with "
            f"adapter_path={location!r}."
        )
    if "params.json" in names:  # beside consolidated.safetensors, or consolidated.00.pth
        raise InvalidModelError(
            f"{location!r} is in the publisher's own format (params.json), which is not read. Get "
            "the model in transformers' layout (config.json, model*.safetensors), or as GGUF."
        )
    raise ModelNotFoundError(f"There is no model in {location!r}. {_MODEL_DIRECTORY}")


def _file_formats(location: str) -> tuple[ModelFormat, ...]:
    with open_model_file(location) as file:
        if file.read(4) == b"GGUF":  # the name does not count: Ollama's files have no suffix
            return ("gguf",)
    if location.lower().endswith(".gguf"):
        raise InvalidModelError(
            f"{location!r} is not a GGUF file: it does not begin with 'GGUF'. Download it again."
        )
    directory = os.path.dirname(location)
    raise ModelNotFoundError(
        f"{location!r} is a file, and not a GGUF file. For a model in safetensors give its "
        f"directory, perhaps {directory!r}."
    )


def _broken(location: str, reason: str) -> InvalidModelError:
    return InvalidModelError(
        f"{location!r} cannot be used: {reason}. Download or convert the model again."
    )
