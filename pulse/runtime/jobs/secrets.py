"""Secrets of a job: named in its file as ``${NAME}``, taken from the environment where they are used, and kept nowhere.

::

    [streams.S.options]
    "kafka.security.protocol" = "SASL_SSL"
    "kafka.sasl.jaas.config" = 'org….PlainLoginModule required username="pulse" password="${KAFKA_PASSWORD}";'

A job holds its options as they are written. What they stand for is put in when Spark is given them, so that neither a checkpoint,
a plan, a pickled job nor a message has it; of errors that Spark and its connectors raise the values are taken out again.
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
"""Spark's settings for what its own plans and pages must not show; its defaults know nothing of JAAS."""


class Secret(str):
    """A value that holds a secret of the environment's: whoever gets it sees to it that nobody else reads it."""

    __slots__ = ()


class SecretError(PulseError, ValueError):
    """A secret that stands in the job itself, or that the environment does not have."""


class ConcealedError(PulseError, RuntimeError):
    """What something else raised, with the secrets in its message taken out."""


def check_secrets(options: Mapping[str, str], where: str) -> None:
    """That no secret is written out, and that the environment has all that are named.

    >>> check_secrets({"kafka.ssl.key.location": "keys.p12"}, "job.toml, [sink]")
    """
    for name, value in options.items():
        named = _REFERENCE.findall(value)
        if missing := [one for one in named if not os.environ.get(one)]:
            raise SecretError(
                f"{where}: '{name}' needs {missing[0]}, which the environment does not have; export {missing[0]}=… first"
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
    """Whether an option of this name holds a secret.

    >>> looks_secret("kafka.ssl.key.password"), looks_secret("kafka.sasl.oauthbearer.token.endpoint.url")
    (True, False)
    """
    return bool(_SECRET.search(name)) and not _PLAIN.search(name)


def resolved(options: Mapping[str, str]) -> dict[str, str]:
    """The options with what the environment has in place of names, as a :class:`Secret`, for whoever uses them, and not to be
    kept."""
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
    """A text with the names of secrets in place of their values.

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
    """Raise what is raised without the values of secrets that these options name."""
    try:
        yield
    except Exception as e:
        said, shown = str(e), concealed(str(e), *tables)
        if said == shown:
            raise
        kind = type(e) if isinstance(e, PulseError) else ConcealedError
        # What it came of says the same, and is not shown either.
        raise kind(shown) from None
