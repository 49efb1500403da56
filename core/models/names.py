"""Models by name: what ``discover`` shows is taken wherever a path to a model is asked for."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from core.errors import ModelNotFoundError
from core.models.files import HOW_TO_GET, is_address, resolve_path
from core.models.stores import discover_stores, snapshots_of
from core.types import DiscoveredModel

_PARTS = re.compile(r"[-_:/]*[^-_:/]+")  # of a name, at which its beginnings end
_MOST_PARTS = 4  # org/name/folder/file.gguf; what has more is a path


def locate(model: str | os.PathLike[str]) -> str:
    """The absolute path of a model, which is given by its path or by its name.

    What exists is a path, and so is what looks like one. A name is first compared exactly, the
    one that `discover` shows before others, then without regard to case and to ``.gguf``, and may
    then be the beginning of one model's name.
    A repository of the Hugging Face cache stands for its snapshot. The address of a server
    (``http://host:port#model``) is taken as it is.

    Raises `ModelNotFoundError` for a name that no model has, or several have, and for a path that
    `core.models.files.resolve_path` refuses. Whether anything is at a path, it does not say.
    """
    location = resolve_path(model)
    if is_address(location):
        return location
    if isinstance(model, str) and not _is_path(model) and _is_nowhere(location):
        return _called(model, location)
    return _snapshot(location)


def _is_path(text: str) -> bool:
    return (
        text.startswith((".", "~"))
        or text.endswith(os.sep)
        or os.path.isabs(text)
        or len(text.split("/")) > _MOST_PARTS
    )


def _is_nowhere(location: str) -> bool:
    """Whether a path leads nowhere for certain; of one that cannot be looked at, others tell."""
    try:
        os.lstat(location)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):  # no permission, too long, a null character
        return False
    return False


def _snapshot(location: str) -> str:
    if not os.path.basename(location).startswith("models--"):
        return location
    snapshots = snapshots_of(location)
    return snapshots[0] if len(snapshots) == 1 else location


def _called(name: str, location: str) -> str:
    """The path of the one model of this name; of those that a name fits equally, of the whole."""
    models = discover_stores(examine=False)
    whole = [model for model in models if not model.problem]
    for tests in _tests(name):
        for among in (whole, models):
            for fits in tests:
                found = [model for model in among if fits(model)]
                if len(found) == 1:
                    return found[0].path
                if found:
                    raise ModelNotFoundError(_ambiguous(name, found))
    raise ModelNotFoundError(_unknown(name, location, models))


def _tests(name: str) -> Sequence[Sequence[Callable[[DiscoveredModel], bool]]]:
    """Whether a model is meant by a name, from the strictest tests to the loosest."""
    plain = _plain(name)
    exactly = (lambda model: model.name == name, lambda model: name in model.names)
    loosely = (lambda model: plain in map(_plain, model.names),)
    as_beginning = (lambda model: any(_plain(other).startswith(plain) for other in model.names),)
    return exactly, loosely, as_beginning


def _plain(name: str) -> str:
    return name.casefold().removesuffix(".gguf")


def _ambiguous(name: str, found: Iterable[DiscoveredModel]) -> str:
    lines = "".join(f"\n  {model.name}: {model.path}" for model in found)
    return f"{name!r} may be any of these models. Give more of its name, or its path:{lines}"


def _unknown(name: str, location: str, models: Iterable[DiscoveredModel]) -> str:
    # A beginning is enough for a name, so one that is misspelt is near to a name's beginning.
    known = {
        beginning: other
        for model in models
        for other in model.names
        for beginning in accumulate(_PARTS.findall(_plain(other)))
    }
    near = difflib.get_close_matches(_plain(name), known, n=3)
    meant = dict.fromkeys(known[each] for each in near)
    hint = f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""
    return (
        f"There is no model at {location!r}, and none on this machine is called {name!r}.{hint} "
        f"{HOW_TO_GET}"
    )
