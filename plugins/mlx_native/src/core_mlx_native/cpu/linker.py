"""Queries to the dynamic linker of this process: which library defines a symbol?

A symbol that a library leaves open is looked up in the *global scope* (the program, what it was
linked with or preloaded, then every library opened with ``RTLD_GLOBAL``, oldest first), and only
then in the library's own dependencies. Because of that order another BLAS can replace MLX's. Linux
only (dlsym, dladdr and dl_iterate_phdr of ``<dlfcn.h>`` and ``<link.h>``).
"""

from __future__ import annotations

import ctypes
import os


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("fname", ctypes.c_char_p),
        ("fbase", ctypes.c_void_p),
        ("sname", ctypes.c_char_p),
        ("saddr", ctypes.c_void_p),
    )


class _PhdrInfo(ctypes.Structure):
    # The head of struct dl_phdr_info; the other fields are not needed.
    _fields_ = (("addr", ctypes.c_void_p), ("name", ctypes.c_char_p))


_PhdrCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_PhdrInfo), ctypes.c_size_t, ctypes.c_void_p
)


def has_symbol(library: ctypes.CDLL, symbol: str) -> bool:
    """Return True if ``library`` or one of its dependencies defines the function ``symbol``."""
    return hasattr(library, symbol)


def global_owner(symbol: str) -> str:
    """Return the path of the library that defines ``symbol`` globally; empty if none does."""
    scope = ctypes.CDLL(None)
    if not has_symbol(scope, symbol):
        return ""
    info = _DlInfo()
    scope.dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(_DlInfo))
    address = ctypes.cast(getattr(scope, symbol), ctypes.c_void_p)
    if not scope.dladdr(address, ctypes.byref(info)):
        return ""
    return os.fsdecode(info.fname or b"")


def load_order() -> list[str]:
    """Return the paths of the libraries in this process, in load order."""
    paths: list[str] = []

    def collect(info: ctypes._Pointer[_PhdrInfo], _size: int, _data: int | None) -> int:
        if info.contents.name:  # the program itself has none
            paths.append(os.fsdecode(info.contents.name))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(_PhdrCallback(collect), None)
    return paths


def open_globally(path: str) -> ctypes.CDLL:
    """Load a library, or promote a loaded one, into the global scope. Raises OSError."""
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
