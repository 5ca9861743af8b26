"""Exchange the names of two folders in one step, where the system can: neither name is ever missing."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from pathlib import Path
from typing import Any

_HERE = -100  # AT_FDCWD: names are relative to the working folder
_EXCHANGE = 2  # RENAME_EXCHANGE
_UNABLE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders of one file system; return False, doing nothing, where that is not supported."""
    call = _renameat2()
    if call is None:
        return False
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNABLE:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


@cache
def _renameat2() -> Any:
    """Return Linux's system call of this name from the C library."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
        call.restype = ctypes.c_int
    return call
