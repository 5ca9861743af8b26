"""State that was pickled, read back as data: a pickle may name any function of any module, and most of them are not called here.

State of jobs is made of Pulse's own classes, of numpy's and Arrow's arrays, and of what the standard library has for values. Who
can write to a checkpoint can still change what a job has seen; he cannot have the job run what he likes.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from pulse.core.errors import PulseError

_PACKAGES = tuple(
    f"pulse.{name}." for name in ("core", "stream", "plan", "operators", "validation", "runtime")
)
_VALUES = {
    "builtins": "bool bytearray complex dict float frozenset int list range set slice str tuple",
    "collections": "Counter OrderedDict defaultdict deque",
    "datetime": "date datetime time timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "numpy": "dtype ndarray",
    "numpy._core.multiarray": "_reconstruct scalar",
    "numpy._core.numeric": "_frombuffer",
    "numpy.ma": "MaskedArray",
    "numpy.ma.core": "MaskedArray _mareconstruct",
    "pyarrow.lib": "_restore_array _reconstruct_record_batch _reconstruct_table chunked_array py_buffer scalar schema field "
    "type_for_alias timestamp duration time32 time64 decimal128 decimal256 binary list_ large_list struct dictionary map_",
}
# Values, and functions that arrays are rebuilt by. None of them opens a file, imports or runs anything.
_KNOWN = {module: frozenset(names.split()) for module, names in _VALUES.items()}


class UntrustedStateError(PulseError, ValueError):
    """State that names what no state holds."""


class _Reader(pickle.Unpickler):
    """Finds values, and classes that are defined in the packages whose objects are kept. Not what those packages import."""

    def find_class(self, module: str, name: str) -> Any:
        """Pickle's call for every name that is not one of its own."""
        if name in _KNOWN.get(module, ()):
            return super().find_class(module, name)
        if module.startswith(_PACKAGES) and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise UntrustedStateError(
            f"state: expected what jobs keep, got a reference to {module}.{name}, which is not run; was the checkpoint written "
            "by somebody else? Start the job on a new one"
        )


def unpickled(data: bytes) -> Any:
    """What was pickled; ``pickle.UnpicklingError`` and whatever else unpickling raises of bytes that are no pickle.

    >>> unpickled(pickle.dumps({"seen": [1, 2]}))
    {'seen': [1, 2]}
    """
    return _Reader(io.BytesIO(data)).load()
