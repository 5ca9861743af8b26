"""Specify a query on future tuples (semantics 6): what is predicted, how tuples become models, and within which bounds.

The specification holds no state of the stream; that is a :class:`pulse.runtime.predict.engine.Prediction`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pulse.core.bounds import ErrorBound
from pulse.core.columns import Columns
from pulse.core.errors import PulseError
from pulse.core.expression import Column, Expression, transform
from pulse.core.schema import StreamSchema
from pulse.operators.fit.predictive_spec import PredictSpec
from pulse.operators.node import Node
from pulse.operators.node import walk as nodes
from pulse.operators.relational.scan import Scan, change_scans, scans
from pulse.plan.query import Query
from pulse.runtime.accents.stream_options import AccentOptions
from pulse.runtime.incremental.continuous_query import ContinuousQuery
from pulse.runtime.predict.tuple_history import resolved
from pulse.stream.propagation.state import Mode
from pulse.validation.revisions.history import Retention

DEFAULT_SPLIT = "restless"

FIRST_SHARE = 0.25
"""Share of the query's own bound for an input before models exist to invert it through."""


class PredictorError(PulseError, ValueError):
    """A query that cannot be predicted."""


@dataclass(frozen=True)
class Predictor:
    """A bound query over streams of tuples. ``specs`` define per stream how tuples become predictive models.

    Built by :meth:`of`, which moves MODEL clauses on attributes of the tuples from the query to the specs, where they are
    validated. ``split`` shares the bounds that the query states (ERROR WITHIN); without any, the specs' own hold.
    """

    continuous: ContinuousQuery
    specs: Mapping[str, PredictSpec]
    split: str = DEFAULT_SPLIT
    retentions: Mapping[str, Retention] = field(default_factory=dict)  # of streams that may be revised
    accent_options: Mapping[str, AccentOptions] = field(default_factory=dict)  # of streams that have accents
    alerting: bool = False  # whether to report the tuples that confirm predictions
    mode: Mode = "accumulate"  # whether operators may hold accents, or the job ends where they would

    @classmethod
    def of(
        cls,
        query: Query,
        specs: Mapping[str, PredictSpec],
        *,
        split: str = DEFAULT_SPLIT,
        retentions: Mapping[str, Retention] | None = None,
    ) -> Predictor:
        """Build a predictor from a parsed and bound query, and specs without formulas."""
        check_predicted(query)
        used = {scan.stream for scan in scans(query.plan)}
        missing = sorted(used - set(specs))
        if missing:
            raise PredictorError(
                f"predict: the job does not define the streams {', '.join(missing)}; add them to it"
            )
        formulas = {stream: _formulas(query.plan, stream, specs[stream].schema) for stream in used}
        plan = change_scans(query.plan, lambda scan: _without_formulas(scan, formulas))
        chosen = {
            stream: replace(
                specs[stream],
                models=tuple(formulas[stream].items()) or specs[stream].models,
                bounds=_first_bounds(specs[stream], query),
            )
            for stream in sorted(used)
        }
        columns = {stream: Columns.of(spec.schema) for stream, spec in chosen.items()}
        continuous = ContinuousQuery(replace(query, plan=plan), columns)
        return cls(continuous, chosen, split, resolved(retentions or {}, chosen, continuous.radius))

    @property
    def bounds(self) -> dict[str | None, ErrorBound]:
        """The bounds that the query states on its output."""
        return {name: bound for name, bound in self.continuous.query.errors if isinstance(bound, ErrorBound)}


def check_predicted(query: Query) -> None:
    """Check that all operators of a query have results in jobs."""
    for node in nodes(query.plan):
        if node.why_not_in_jobs is not None:
            raise PredictorError(f"predict: {node.why_not_in_jobs}")


def _first_bounds(spec: PredictSpec, query: Query) -> tuple[ErrorBound | None, ...]:
    """The stream's own bounds; where it has none, a share of the query's."""
    stated = [bound for _, bound in query.errors if isinstance(bound, ErrorBound)]
    first = stated[0].scaled(FIRST_SHARE) if stated else None
    if first is None and any(bound is None for bound in spec.bounds):
        open_ = [n for n, bound in zip(spec.schema.modelled_names, spec.bounds, strict=True) if bound is None]
        raise PredictorError(
            f"predict: nothing bounds {', '.join(open_)}; give the stream an error, or end the query with ERROR WITHIN"
        )
    return tuple(first if bound is None else bound for bound in spec.bounds)


def _formulas(plan: Node, stream: str, schema: StreamSchema) -> dict[str, Expression]:
    """The MODEL clauses on attributes of the stream's tuples, over plain names."""
    found: dict[str, Expression] = {}
    for scan in scans(plan):
        if scan.stream != stream:
            continue
        for name, formula in scan.models:
            if name not in schema.modelled_names:
                continue
            plain = _plain(formula, scan.alias)
            if found.setdefault(name, plain) != plain:
                raise PredictorError(
                    f"predict: '{stream}.{name}' has two models, {found[name]} and {plain}; a stream of tuples has one"
                )
    return found


def _plain(formula: Expression, alias: str) -> Expression:
    prefix = f"{alias}."
    return transform(formula, lambda e: Column(e.name.removeprefix(prefix)) if isinstance(e, Column) else e)


def _without_formulas(scan: Scan, formulas: Mapping[str, Mapping[str, Expression]]) -> Scan:
    moved = formulas.get(scan.stream, {})
    return replace(scan, models=tuple((name, formula) for name, formula in scan.models if name not in moved))
