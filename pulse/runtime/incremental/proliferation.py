"""Report how far revisions spread through a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from pulse.operators.incremental.base import Flow


@dataclass(frozen=True)
class Proliferation:
    """How far revisions spread: input by stream, input and output of each operator, emitted rows."""

    streams: Mapping[str, int]  # revised stretches by stream
    operators: tuple[Flow, ...]  # inputs first
    emitted: int  # rows of changes

    @property
    def absorbed(self) -> int:
        """Return the number of stretches that some operator absorbed."""
        return sum(flow.absorbed for flow in self.operators)

    def __str__(self) -> str:
        lines = [f"{stream}: {count} revised" for stream, count in self.streams.items()]
        for flow in self.operators:
            modes = ", ".join(f"{count} {mode}" for mode, count in flow.modes.items())
            back = f", {flow.fell_back} could not be patched" if flow.fell_back else ""
            lines.append(
                f"{flow.operator}: {flow.revised} in ({flow.rows_in} rows), {flow.out} out ({flow.rows_out} rows), "
                f"{flow.absorbed} absorbed; {modes or 'nothing to do'}{back}"
            )
        return "\n".join([*lines, f"{self.emitted} rows of changes"])


def sum_reports(reports: Sequence[Proliferation]) -> Proliferation | None:
    """Add up the reports of several pieces of one query."""
    if not reports:
        return None
    flows = tuple(map(_sum_flows, zip(*(one.operators for one in reports), strict=True)))
    streams: Counter[str] = Counter()
    for one in reports:
        streams.update(one.streams)
    return Proliferation(dict(streams), flows, sum(one.emitted for one in reports))


def _sum_flows(flows: Sequence[Flow]) -> Flow:
    made = Flow(flows[0].operator)
    for field in fields(Flow):
        if field.type == "int":
            setattr(made, field.name, sum(getattr(one, field.name) for one in flows))
    for one in flows:
        made.modes = dict(Counter(made.modes) + Counter(one.modes))
    return made
