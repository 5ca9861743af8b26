"""Resolve a job's secrets: the file names them as ``${NAME}``, values come from the environment at use and are never stored.

::

    [streams.S.options]
    "kafka.security.protocol" = "SASL_SSL"
    "kafka.sasl.jaas.config" = 'org….PlainLoginModule required username="pulse" password="${KAFKA_PASSWORD}";'

A job holds its options as written. Values are substituted when Spark receives them, so that neither a checkpoint, a plan, a
pickled job nor a message contains them; errors raised by Spark and its connectors have the values removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pulse.core.errors import PulseError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET = re.compile(r"(?i)passw(or)?d|secret|token|credential|access[._]?key|private[._]?key")
_PLAIN = re.compile(
    r"(?i)(url|uri|endpoint|class|path|file|location|type|provider|algorithm|enabled|seconds|ms)$"
)
_WITHIN = re.compile(
    r"""(?i)(?:passw(?:or)?d|secret|token|credential)\w*\s*=\s*(?!\s*["']?\$\{[A-Za-z_])["']?[^\s"';]"""
)

_JAVA_OPTIONS = re.compile(r"JavaOptions$")

REDACTED = "(?i)secret|password|passwd|token|credential|jaas|access[._]?key|private[._]?key"
REDACTION = {
    "spark.redaction.regex": REDACTED,
    "spark.sql.redaction.options.regex": f"{REDACTED}|url",
}
"""Spark's settings for what its plans and pages must redact; its defaults do not cover JAAS."""


class Secret(str):
    """A value that contains a secret from the environment; its receiver must not expose it."""

    __slots__ = ()


class SecretError(PulseError, ValueError):
    """A secret written into the job itself, or missing from the environment."""


class ConcealedError(PulseError, RuntimeError):
    """An error of another library, with the secrets in its message removed."""


def check_secrets(options: Mapping[str, str], where: str) -> None:
    """Check that no secret is written out, and that the environment has all that are named.

    >>> check_secrets({"kafka.ssl.key.location": "keys.p12"}, "job.toml, [sink]")
    """
    for name, value in options.items():
        named = _REFERENCE.findall(value)
        if missing := [one for one in named if not os.environ.get(one)]:
            raise SecretError(
                f"{where}: '{name}' needs {missing[0]}, which is not set in the environment; export {missing[0]}=… first"
            )
        if named and _JAVA_OPTIONS.search(name):
            raise SecretError(
                f"{where}: '{name}' would put a secret on the command line of a JVM, where every user of the machine reads it; "
                "expected it in a file that the option names, such as -Djavax.net.ssl.trustStore=FILE"
            )
        alone = looks_secret(name) and not named and value.strip()
        if alone or _WITHIN.search(value):
            raise SecretError(
                f"{where}: '{name}' is a secret; expected it in the environment, such as "
                f"'{name}' = \"${{PULSE_SECRET}}\", got it written out"
            )


def looks_secret(name: str) -> bool:
    """Return whether an option of this name holds a secret.

    >>> looks_secret("kafka.ssl.key.password"), looks_secret("kafka.sasl.oauthbearer.token.endpoint.url")
    (True, False)
    """
    return bool(_SECRET.search(name)) and not _PLAIN.search(name)


def resolved(options: Mapping[str, str]) -> dict[str, str]:
    """Substitute the environment's values for the names in options, as :class:`Secret`; for immediate use, never to be stored."""
    return {
        name: Secret(_REFERENCE.sub(_of_environment, value)) if _REFERENCE.search(value) else value
        for name, value in options.items()
    }


def _of_environment(match: re.Match[str]) -> str:
    found = os.environ.get(match[1])
    if not found:
        raise SecretError(f"expected {match[1]} in the environment, got none; export {match[1]}=… first")
    return found


def concealed(text: str, *tables: Mapping[str, str]) -> str:
    """Replace values of secrets in a text by their names.

    >>> os.environ["PULSE_EXAMPLE"] = "hunter2"
    >>> concealed("no login with hunter2", {"kafka.sasl.jaas.config": 'password="${PULSE_EXAMPLE}"'})
    'no login with ${PULSE_EXAMPLE}'
    """
    names = {one for options in tables for value in options.values() for one in _REFERENCE.findall(value)}
    values = {os.environ[name]: name for name in names if os.environ.get(name)}
    for value in sorted(values, key=len, reverse=True):  # one may be part of another
        text = text.replace(value, f"${{{values[value]}}}")
    return text


@contextmanager
def concealing(*tables: Mapping[str, str]) -> Iterator[None]:
    """Remove the values of secrets that these options name from errors raised in the block."""
    try:
        yield
    except Exception as e:
        message, shown = str(e), concealed(str(e), *tables)
        if message == shown:
            raise
        kind = type(e) if isinstance(e, PulseError) else ConcealedError
        # The cause has the same message, so it is not shown either.
        raise kind(shown) from None
