"""Models by name: what ``discover`` shows is taken wherever a path to a model is asked for."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from core.errors import InvalidOptionError, ModelNotFoundError, UnsupportedModelError
from core.models.files import HOW_TO_GET, is_address, resolve_path
from core.models.ollama import TENSOR
from core.models.stores import discover_stores, snapshots_of
from core.options import LoadConfig
from core.types import DiscoveredModel

_PARTS = re.compile(r"[-_:/]*[^-_:/]+")  # of a name, at which its beginnings end
_MOST_PARTS = 4  # org/name/folder/file.gguf; what has more is a path


@dataclass(frozen=True, slots=True)
class Located:
    """The absolute path of a model, and the discovered model where it was given by a name."""

    path: str
    model: DiscoveredModel | None = None

    def described(self, found: DiscoveredModel | None) -> DiscoveredModel | None:
        """Return a description of what is at the path, with all that the name stands for."""
        if self.model is None or found is None:
            return found or self.model
        return replace(
            found,
            names=self.model.names,
            problem=found.problem or self.model.problem,
            parts=self.model.parts,
            adapters=self.model.adapters,
        )

    def adapted(self, config: LoadConfig) -> LoadConfig:
        """Return the options of a load with the adapter that the model's name stands for.

        Raises `InvalidOptionError` where another adapter is asked for, and `UnsupportedModelError`
        where the name stands for several, or for what no backend reads.
        """
        if self.model is None:
            return config
        _refuse_tensors(self.model)
        if not self.model.adapters:
            return config
        if len(self.model.adapters) > 1:
            raise UnsupportedModelError(_parted(self.model, "several adapters, and one is loaded"))
        if config.adapter_path is not None:
            what = f"None, as {self.model.name!r} has an adapter of its own in Ollama's store"
            raise InvalidOptionError("adapter_path", config.adapter_path, what)
        return replace(config, adapter_path=self.model.adapters[0])


def locate(model: str | os.PathLike[str]) -> str:
    """Return the absolute path of a model, which is given by its path or by its name.

    For what needs one file or directory: raises `UnsupportedModelError` for a name of Ollama's
    store that stands for a model and an adapter, or for single tensors, and what `located` raises.
    """
    place = located(model)
    if place.model is not None:
        _refuse_tensors(place.model)
        if place.model.adapters:
            what = "an adapter, and a path alone is needed"
            raise UnsupportedModelError(_parted(place.model, what))
    return place.path


def located(model: str | os.PathLike[str]) -> Located:
    """Return where a model is, which is given by its path or by its name.

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
        return Located(location)
    if isinstance(model, str) and not _is_path(model) and _is_nowhere(location):
        named = _called(model, location)
        return Located(named.path, named)
    return Located(_snapshot(location))


def _refuse_tensors(model: DiscoveredModel) -> None:
    if TENSOR in model.parts:
        raise UnsupportedModelError(
            f"{model.name!r} of Ollama's store cannot be loaded: {model.problem}. Get it in "
            "safetensors, or as a GGUF file."
        )


def _parted(model: DiscoveredModel, what: str) -> str:
    adapters = "".join(f"\n  adapter_path: {path}" for path in model.adapters)
    return (
        f"{model.name!r} of Ollama's store is a model with {what}. Give its parts by their paths:"
        f"\n  model: {model.path}{adapters}"
    )


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


def _called(name: str, location: str) -> DiscoveredModel:
    """The one model of this name; of those that a name fits equally, the whole one."""
    models = discover_stores(examine=False)
    whole = [model for model in models if not model.problem]
    for tests in _tests(name):
        for among in (whole, models):
            for fits in tests:
                found = [model for model in among if fits(model)]
                if len(found) == 1:
                    return found[0]
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
