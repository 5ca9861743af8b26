"""Pass secret settings to Spark's JVM through a file that only this user can read, never on a command line.

PySpark starts the JVM with all settings as arguments, which every user of the machine can list. Settings with a secret are
written to a file of mode 600 instead, which Spark reads when it starts (``--properties-file``) and which is then removed.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext

from pulse.runtime.jobs.secrets import Secret, SecretError, looks_secret

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"
_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})
_SPECIAL = " =:#!"


def secret_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings that must not be on the command line that starts Spark; none if its JVM runs already."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    return {
        name: str(value)
        for name, value in settings.items()
        if isinstance(value, Secret) or (looks_secret(name) and str(value).strip())
    }


@contextmanager
def handed_over(settings: Mapping[str, str]) -> Iterator[None]:
    """Pass settings to the JVM that starts in this block."""
    if not settings:
        yield
        return
    before = os.environ.get(_ARGUMENTS)
    arguments = shlex.split(before or _SHELL)
    if "--properties-file" in arguments:
        raise SecretError(
            f"{_ARGUMENTS}: expected no properties file of its own beside settings with secrets ({', '.join(sorted(settings))}), "
            "got one; put them into that file, or leave it out"
        )
    handle, name = tempfile.mkstemp(prefix="pulse-settings-", suffix=".conf")  # which only this user can read
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
        os.environ[_ARGUMENTS] = shlex.join(["--load-spark-defaults", "--properties-file", name, *arguments])
        yield
    finally:
        Path(name).unlink(missing_ok=True)
        if before is None:
            os.environ.pop(_ARGUMENTS, None)
        else:
            os.environ[_ARGUMENTS] = before


def _escaped(text: str) -> str:
    """Escape a key or a value for a Java properties file."""
    plain = "".join(f"\\{one}" if one in _SPECIAL else one for one in text.translate(_ESCAPED))
    return "".join(one if one.isascii() else _unicode(one) for one in plain)


def _unicode(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
