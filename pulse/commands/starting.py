"""Start commands fast by not loading what they do not need: a small command spends most of its time on imports."""

from __future__ import annotations

import sys
import warnings
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.session import Session

_PROGRAM = ("pulse", "pulse.exe", "cli.py")


def session(master: str, engine: str) -> Session:
    """Create a session for a command, which prints the notes on an answer itself, warnings of units among them."""
    from pulse.core.errors import UnitsWarning

    warnings.simplefilter("ignore", UnitsWarning)
    if engine == "local":
        leave_pandas_out()
    from pulse.session import Session

    return Session(master, engine=engine)


def leave_pandas_out() -> None:
    """Create Arrow's first array while pandas is hidden.

    Arrow imports pandas with its first array, to recognize pandas columns; that takes longer than a small query. Commands pass it
    no such columns. Arrow looks only once, and still finds pandas when a frame is requested. In a process that is more than this
    program nothing is done: other code may pass pandas columns.
    """
    if "pandas" in sys.modules or not _is_the_program():
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas())
    try:
        pa.array([0])
    finally:
        sys.meta_path.pop(0)


class _NoPandas(MetaPathFinder):
    """An import finder that hides pandas, and leaves everything else to the other finders."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=fullname)


def _is_the_program() -> bool:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return main is not None and Path(main).name in _PROGRAM
