"""Checks of the paths that a model is loaded from: any that the system takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import CoreError
from core.models.discovery import described_by
from core.models.files import is_address
from core.protocols import Capability, TextModel
from core_conformance.checking.calls import at
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.said import must_be, says
from core_conformance.checking.scratch import scratch
from core_conformance.checking.subject import Subject

_NAME = "modèle avec blancs 模型 Ω"
_NOT_UTF8 = b"mod\xe8le"


@check(
    "loading.odd-paths",
    "A model MUST load from any path: not ASCII, with blanks, through links, with a trailing slash",
)
def odd_paths(subject: Subject) -> None:
    if is_address(subject.path):
        scheme, rest = subject.path.split("://", 1)
        _must_load(subject, f"{scheme.upper()}://{rest}")
        return
    with _folder(subject) as (folder, path):
        _must_load(subject, path)
        link = folder / "link to it"
        link.symlink_to(folder / _NAME, target_is_directory=True)
        inside = link / os.path.relpath(path, folder / _NAME)
        roundabout = os.path.join(folder, _NAME, os.pardir, os.path.relpath(inside, folder))
        _must_load(subject, os.path.join(roundabout, "") if os.path.isdir(path) else roundabout)


@check(
    "loading.relative-path",
    "A model that was loaded from a relative path MUST work wherever the program goes then",
)
def relative_paths(subject: Subject) -> None:
    with _folder(subject) as (folder, path):
        before = os.getcwd()
        os.chdir(folder)
        try:
            near = path if is_address(path) else os.path.relpath(path, folder)
            model = at(subject, near).load()
            os.chdir(os.path.sep)
            with model:
                _must_answer(subject, model, "a relative path, in another working directory")
        finally:
            os.chdir(before)


@check(
    "loading.path-bytes",
    "A path whose bytes are not UTF-8 MUST load, or raise a CoreError",
)
def paths_of_any_bytes(subject: Subject) -> None:
    with _folder(subject) as (folder, path):
        if is_address(path):
            named = path + os.fsdecode(_NOT_UTF8)
        else:
            odd = Path(os.fsdecode(os.path.join(os.fsencode(folder), _NOT_UTF8)))
            try:
                (folder / _NAME).rename(odd)
            except (OSError, UnicodeError):
                testable(False, "this system allows only Unicode file names: use another system")
            named = str(odd / os.path.relpath(path, folder / _NAME))
        try:
            model = at(subject, named).load()
        except CoreError as error:
            must(bool(str(error)), f"a path of the bytes {_NOT_UTF8!r} raised {error!r}")
            return
        with model:
            _must_answer(subject, model, f"a path of the bytes {_NOT_UTF8!r}")


@check(
    "loading.description-path",
    "`describe_model(path)` MUST describe the model at any path that leads to it, by that path.",
    Capability.MODEL_FINDING,
)
def description_path(subject: Subject) -> None:
    with _folder(subject) as (folder, path):
        link = folder / "link to it"
        link.symlink_to(folder / _NAME, target_is_directory=True)
        inside = str(link / os.path.relpath(path, folder / _NAME))
        for place in [path] if is_address(path) else [path, inside]:
            described, fault = described_by(subject.backend, place)
            must(not fault, fault)
            must(
                described is not None,
                f"describe_model({place!r}) is None, but the path leads to the model",
            )


@contextmanager
def _folder(subject: Subject) -> Iterator[tuple[Path, str]]:
    """Yield a folder, and the model under test linked into an oddly named folder in it.

    For a model at an address, yield an empty folder and the address.
    """
    if is_address(subject.path):
        with scratch() as folder:
            yield folder, subject.path
        return
    source = Path(os.path.abspath(os.path.expanduser(subject.path)))
    testable(
        source.exists(),
        f"{subject.path!r} is not a file: use a model that is a file on this machine",
    )
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    with scratch() as folder:
        odd = folder / _NAME
        odd.mkdir()
        try:
            for file in files:
                (odd / file.name).symlink_to(file, target_is_directory=file.is_dir())
        except OSError:
            testable(False, "this system cannot create symbolic links: use another system")
        yield folder, str(odd if source.is_dir() else odd / source.name)


def _must_load(subject: Subject, path: str) -> None:
    try:
        model = at(subject, path).load()
    except Exception as error:  # noqa: BLE001 - whatever it is, the model was not loaded
        must(False, f"a load from {path!r}, which leads to the model under test, raised {error!r}")
        return
    with model:
        _must_answer(subject, model, repr(path))


def _must_answer(subject: Subject, model: TextModel, what: str) -> None:
    wanted = says(subject, subject.model)
    must_be(subject, wanted, lambda: says(subject, model), f"loaded from {what}")
