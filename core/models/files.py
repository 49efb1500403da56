"""Paths, listings and formats of models, with one typed error for each kind of failure."""

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


def expanded(path: str) -> str:
    """Return the absolute form of a path, with ``~`` expanded if it names a user's home."""
    try:
        return os.path.abspath(os.path.expanduser(path))
    except ValueError:  # a null character, or no Unicode, in a user's name
        return os.path.abspath(path)


def names_in(directory: str) -> list[str]:
    """Return the names in a directory, sorted."""
    try:
        return sorted(os.listdir(directory))
    except (OSError, ValueError):  # ValueError: a path that no file system has
        return []


def files_below(directory: str, depth: int) -> Iterator[str]:
    """Yield the files in a directory, and in those below it as deep as ``depth`` levels."""
    for name in names_in(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            if depth > 1:
                yield from files_below(path, depth - 1)
        else:
            yield path


def stat_of(path: str) -> os.stat_result | None:
    """Return the status of a regular file or a directory; None for anything else."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts if stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode) else None


FORMATS = frozenset({"safetensors", "gguf", "http"})
"""The formats that `core` recognises itself; any other is backend-specific."""

MAX_JSON_BYTES = 64 * 2**20
"""Limit for JSON files: no configuration is near this size; a larger file would fill memory."""

# A path object makes one slash of the two. Other schemes have both, and are not a drive's letter.
_SERVER = re.compile("(https?):/+(?=[^/])", re.IGNORECASE)
_ADDRESS = re.compile("([a-z][a-z0-9+.-]+)://", re.IGNORECASE)

HOW_TO_GET = (
    "List the models on this machine with `infer-cli discover`, or download one with "
    "`hf download ORG/NAME`, `ollama pull NAME` or LM Studio."
)
_MODEL_DIRECTORY = "expected config.json with *.safetensors files, or a *.gguf file"


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether a model is given by an address (``scheme://...``), not by a path."""
    text = os.fsdecode(path)
    return bool(_SERVER.match(text) or _ADDRESS.match(text))


def is_server(path: str | os.PathLike[str]) -> bool:
    """Return whether an address begins with ``http://`` or ``https://``."""
    return _SERVER.match(os.fsdecode(path)) is not None


def resolve_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute form of a path, with ``~`` expanded; an address is kept.

    Raises `ModelNotFoundError` if it is empty, or relative to a deleted working directory, and
    for an address that holds a password, which messages and logs would show.
    """
    text = os.fsdecode(path)
    if server := _SERVER.match(text):
        return f"{server[1].lower()}://{_without_secrets(text[server.end() :])}"
    if address := _ADDRESS.match(text):
        _without_secrets(text[address.end() :])
        return text
    if not text:
        raise ModelNotFoundError("The model's path is empty. Pass a directory or a .gguf file.")
    try:
        return os.path.abspath(os.path.expanduser(text))
    except FileNotFoundError as error:
        raise ModelNotFoundError(
            f"{text!r} is relative to the working directory of this process, which was deleted. "
            "Pass an absolute path, or change to an existing directory."
        ) from error


def _without_secrets(rest: str) -> str:
    _, at, host = re.split("[/?#]", rest, maxsplit=1)[0].rpartition("@")
    if at:
        raise ModelNotFoundError(
            f"The address of {host!r} contains a user or a password, which messages and logs "
            "would show. Pass the key to the backend instead: to 'remote' with "
            "options={'api_key': ...}, or in CORE_REMOTE_API_KEY."
        )
    return rest


@contextlib.contextmanager
def typed_errors(path: str) -> Iterator[None]:
    """Convert operating system errors, and `Refused`, about ``path`` to a `ModelError`."""
    try:
        yield
    except ModelError:  # typed already; some are OSErrors too
        raise
    except Refused as error:
        raise _broken(path, str(error)) from error
    except PermissionError as error:
        raise ModelAccessError(
            f"No permission to read {path!r}. Check the permissions of the file and of its parent "
            "directories."
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelNotFoundError(
            f"Model not found: {path!r} does not exist. {HOW_TO_GET}"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error
        raise ModelNotFoundError(f"{path!r} cannot be read: {reason}. Check the path.") from error


def check_exists(location: str) -> None:
    """Raise `ModelNotFoundError` if a path does not exist; an address is not checked."""
    if not is_address(location):
        with typed_errors(location):
            os.stat(location)


def model_formats(path: str | os.PathLike[str]) -> tuple[ModelFormat, ...]:
    """Return the formats that a model is stored in, the preferred one first.

    The weights are not checked. The formats are the ones that `core` knows: ``safetensors``,
    ``gguf``, and ``http`` for the address of a server, which is not contacted.

    Raises `ModelNotFoundError` (path does not exist, or holds no model in one of these formats),
    `ModelAccessError` (no permission) and `InvalidModelError` (named .gguf but not GGUF, an
    adapter, a publisher's own format).
    """
    location = resolve_path(path)
    if is_server(location):
        return ("http",)
    if is_address(location):
        raise ModelNotFoundError(
            f"Unknown address {location!r}: only http:// and https:// are recognised. Select the "
            "backend that reads it (backend=...); for a file, pass its path only."
        )
    with typed_errors(location):
        mode = os.stat(location).st_mode
        if stat.S_ISDIR(mode):
            return _directory_formats(location, os.listdir(location))
        if not stat.S_ISREG(mode):
            raise ModelNotFoundError(f"{location!r} is not a model: {_MODEL_DIRECTORY}.")
        return _file_formats(location)


def open_model_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; other kinds of files are never opened.

    Raises `ModelNotFoundError`, `ModelAccessError`, and `InvalidModelError` for a pipe or a device.
    """
    location = resolve_path(path)
    with typed_errors(location):
        return open_regular(location)


def read_model_file(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the contents of a regular file of at most ``limit`` bytes.

    Raises like `open_model_file`, and `InvalidModelError` for a larger file, before it is read.
    """
    location = resolve_path(path)
    with typed_errors(location):
        return read_limited(location, limit)


def read_config_json(directory: str | os.PathLike[str]) -> dict[str, object]:
    """Return the ``config.json`` of a model directory; raises like `read_json_object`."""
    return read_json_object(os.path.join(resolve_path(directory), "config.json"))


def read_json_object(path: str | os.PathLike[str]) -> dict[str, object]:
    """Return the object in a JSON file.

    Raises `ModelNotFoundError`, `ModelAccessError`, or `InvalidModelError` for anything else.
    """
    return cast("dict[str, object]", _read_json(path, dict, "an object"))


def read_json_list(path: str | os.PathLike[str]) -> list[object]:
    """Return the list in a JSON file; raises like `read_json_object`."""
    return cast("list[object]", _read_json(path, list, "a list"))


def _read_json(path: str | os.PathLike[str], kind: type, name: str) -> object:
    location = resolve_path(path)
    with typed_errors(location):
        value = json_value(read_limited(location, MAX_JSON_BYTES), unique=False)
    if not isinstance(value, kind):
        raise _broken(location, f"it holds a {type(value).__name__}, not {name}")
    return value


def is_gguf_name(name: str) -> bool:
    """Return whether a file name is that of a GGUF model.

    ``mmproj`` files are image encoders, not models.
    """
    lower = name.lower()
    return lower.endswith(".gguf") and not lower.startswith(("mmproj", "."))


def _directory_formats(location: str, names: list[str]) -> tuple[ModelFormat, ...]:
    has_config = "config.json" in names
    has_gguf = any(is_gguf_name(name) for name in names)
    has_tensors = any(name.endswith(".safetensors") for name in names)
    # Without weights it still is a (broken) safetensors model: its loader reports what is missing.
    if has_config and (has_tensors or not has_gguf):
        return ("safetensors", "gguf") if has_gguf else ("safetensors",)
    if has_gguf:
        return ("gguf",)
    if "adapter_config.json" in names:
        raise InvalidModelError(
            f"{location!r} is a LoRA adapter, not a model. Load its base model with "
            f"adapter_path={location!r}."
        )
    if "params.json" in names:  # next to consolidated.safetensors, or consolidated.00.pth
        raise InvalidModelError(
            f"{location!r} is in the publisher's own format (params.json), which is not supported. "
            "Download the model in transformers' layout (config.json, model*.safetensors), or as "
            "GGUF."
        )
    raise ModelNotFoundError(f"{location!r} is not a model directory: {_MODEL_DIRECTORY}.")


def _file_formats(location: str) -> tuple[ModelFormat, ...]:
    with open_model_file(location) as file:
        if file.read(4) == b"GGUF":  # the name does not matter: Ollama's files have no suffix
            return ("gguf",)
    if location.lower().endswith(".gguf"):
        raise InvalidModelError(
            f"{location!r} is not a GGUF file: it does not start with 'GGUF'. Download it again."
        )
    directory = os.path.dirname(location)
    raise ModelNotFoundError(
        f"{location!r} is not a GGUF file. For a safetensors model, pass the directory: "
        f"{directory!r}."
    )


def _broken(location: str, reason: str) -> InvalidModelError:
    return InvalidModelError(
        f"{location!r} cannot be used: {reason}. Download or convert the model again."
    )
