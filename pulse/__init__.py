"""Answer stream queries on certified piecewise-polynomial models of the data.

Names are loaded when they are first used (PEP 562): a Spark worker that imports one kernel loads neither
Spark's driver side nor a parser.

>>> import pulse
>>> print(pulse.ErrorBound.parse("0.05% or 0.001"))
0.05% or 0.001
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse._version import VERSION as __version__
from pulse.core.lazy_exports import on_demand

if TYPE_CHECKING:
    from pulse.core.bounds import ErrorBound as ErrorBound
    from pulse.core.errors import PulseError as PulseError
    from pulse.core.errors import SessionError as SessionError
    from pulse.core.schema import StreamSchema as StreamSchema
    from pulse.core.segment.batch import SegmentBatch as SegmentBatch
    from pulse.datasets.generators.generate import generate as generate
    from pulse.operators.output.apply_changes import apply_changes as apply_changes
    from pulse.plan.explain import Explanation as Explanation
    from pulse.runtime.accents.query_units import QueryAbortedError as QueryAbortedError
    from pulse.runtime.jobs.run import JobBatch as JobBatch
    from pulse.runtime.jobs.run import JobRun as JobRun
    from pulse.runtime.results.answer import Answer as Answer
    from pulse.runtime.results.answer_diff import RevisedAnswer as RevisedAnswer
    from pulse.runtime.sweep.driver import Sweep as Sweep
    from pulse.session import Session as Session
    from pulse.store.model import Model as Model

_HOMES = {
    "Answer": "pulse.runtime.results.answer",
    "ErrorBound": "pulse.core.bounds",
    "Explanation": "pulse.plan.explain",
    "JobBatch": "pulse.runtime.jobs.run",
    "JobRun": "pulse.runtime.jobs.run",
    "Model": "pulse.store.model",
    "PulseError": "pulse.core.errors",
    "QueryAbortedError": "pulse.runtime.accents.query_units",
    "RevisedAnswer": "pulse.runtime.results.answer_diff",
    "SegmentBatch": "pulse.core.segment.batch",
    "Session": "pulse.session",
    "SessionError": "pulse.core.errors",
    "StreamSchema": "pulse.core.schema",
    "Sweep": "pulse.runtime.sweep.driver",
    "apply_changes": "pulse.operators.output.apply_changes",
    "generate": "pulse.datasets.generators.generate",
}

__all__ = ["__version__", *_HOMES]
__getattr__ = on_demand(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
