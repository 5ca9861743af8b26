"""Restore the errors of workers: Spark reports a Python exception as text inside its own."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pulse.core.errors import PulseError

# The last line of a traceback: the error's full name, then its message, up to the next line that is not part of it.
_RAISED = re.compile(
    r"^\s*(pulse\.[\w.]+\.\w+): (.*?)(?=\n\s*(?:at |\n|Driver stacktrace|\t)|\Z)", re.MULTILINE | re.DOTALL
)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")


@contextmanager
def translated() -> Iterator[None]:
    """Raise a worker's :class:`PulseError` as itself."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        text = str(e)
        for name, message in _RAISED.findall(text):
            error = _error_class(name)
            if error is not None:
                raise error(message.strip()) from e
        if _NO_SPACE.search(text):
            raise OSError(28, "No space left on device") from e
        raise


def _error_class(name: str) -> type[PulseError] | None:
    module, _, leaf = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), leaf, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, PulseError) else None
