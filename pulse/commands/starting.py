"""What a command loads, and what it leaves out, before it does anything: most of what a small command costs is loading."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.session import Session

_PROGRAM = ("pulse", "pulse.exe", "cli.py")


def session(master: str, engine: str) -> Session:
    """A session for a command."""
    if engine == "local":
        leave_pandas_out()
    from pulse.session import Session

    return Session(master, engine=engine)


def leave_pandas_out() -> None:
    """Make Arrow's first array while pandas seems not to be there.

    Arrow loads pandas with its first array, to know a column of pandas' when it is handed one; that takes longer than a small
    query does. A command hands it none. Arrow looks only once, and still finds pandas when it is asked for a frame. In a process
    that is more than this program nothing is done: others may hand it columns of pandas'.
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
    """Finds no pandas, and leaves everything else to others."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """As finders are asked."""
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=fullname)


def _is_the_program() -> bool:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return main is not None and Path(main).name in _PROGRAM
