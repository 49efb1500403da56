"""Questions to the dynamic linker of this process: whose function answers to a name?

A symbol that a library leaves open is looked up in the *global scope* (the program, what it was
linked with or preloaded, then every library opened with ``RTLD_GLOBAL``, oldest first), and only
then in the library's own dependencies. That order is what puts another BLAS in front of MLX's.
Linux only (dlsym, dladdr and dl_iterate_phdr of ``<dlfcn.h>`` and ``<link.h>``).
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
    # The head of struct dl_phdr_info; the fields that follow are not needed.
    _fields_ = (("addr", ctypes.c_void_p), ("name", ctypes.c_char_p))


_PhdrCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_PhdrInfo), ctypes.c_size_t, ctypes.c_void_p
)


def has_symbol(library: ctypes.CDLL, symbol: str) -> bool:
    """True if ``library`` or one of its dependencies defines the function ``symbol``."""
    return hasattr(library, symbol)


def global_owner(symbol: str) -> str:
    """Path of the library whose ``symbol`` the global scope finds first; empty when none does."""
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
    """Paths of the libraries in this process, in the order in which they were loaded."""
    paths: list[str] = []

    def collect(info: ctypes._Pointer[_PhdrInfo], _size: int, _data: int | None) -> int:
        if info.contents.name:  # the program itself has none
            paths.append(os.fsdecode(info.contents.name))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(_PhdrCallback(collect), None)
    return paths


def open_globally(path: str) -> ctypes.CDLL:
    """Load a library, or lift a loaded one, into the global scope. Raises OSError."""
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
