"""A query asked of streams of tuples to come (semantics 6): what is predicted, how tuples become models, and within which bounds.

It says nothing of what has come: that is a :class:`pulse.runtime.predict.engine.Prediction`.
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
from pulse.plan import nodes
from pulse.plan.nodes import Node, Scan, scans
from pulse.plan.query import Query
from pulse.runtime.accents.stream_options import AccentOptions
from pulse.runtime.incremental.continuous_query import ContinuousQuery
from pulse.runtime.predict.tuple_history import resolved
from pulse.stream.propagation.state import Mode
from pulse.validation.revisions.history import Retention

DEFAULT_SPLIT = "restless"

FIRST_SHARE = 0.25
"""Of the query's own bound, what an input is held to before there are models to invert it through."""


class PredictorError(PulseError, ValueError):
    """A query that cannot be asked of the future."""


@dataclass(frozen=True)
class Predictor:
    """A bound query over streams of tuples. ``specs`` says per stream how tuples become models that reach ahead.

    Made by :meth:`of`, which moves MODEL clauses on attributes that tuples carry from the query to the specs: there they are
    validated. ``split`` shares out the bounds that the query states (ERROR WITHIN); without any, the specs' own hold.
    """

    standing: ContinuousQuery
    specs: Mapping[str, PredictSpec]
    split: str = DEFAULT_SPLIT
    retentions: Mapping[str, Retention] = field(default_factory=dict)  # of streams that may be revised
    hears: Mapping[str, AccentOptions] = field(
        default_factory=dict
    )  # how accents come, of streams that have any
    alerting: bool = False  # whether it is to be told which tuples confirm what was predicted
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
        """From a query as it was parsed and bound, and specs without formulas."""
        used = {scan.stream for scan in scans(query.plan)}
        missing = sorted(used - set(specs))
        if missing:
            raise PredictorError(
                f"predict: nothing is said of the streams {', '.join(missing)}; add them to the job"
            )
        formulas = {stream: _formulas(query.plan, stream, specs[stream].schema) for stream in used}
        plan = nodes.transform(query.plan, lambda node: _without_formulas(node, formulas))
        chosen = {
            stream: replace(
                specs[stream],
                models=tuple(formulas[stream].items()) or specs[stream].models,
                bounds=_first_bounds(specs[stream], query),
            )
            for stream in sorted(used)
        }
        columns = {stream: Columns.of(spec.schema) for stream, spec in chosen.items()}
        standing = ContinuousQuery(replace(query, plan=plan), columns)
        return cls(standing, chosen, split, resolved(retentions or {}, chosen, standing.radius))

    @property
    def bounds(self) -> dict[str | None, ErrorBound]:
        """The bounds that the query states on its output."""
        return {name: bound for name, bound in self.standing.query.errors if isinstance(bound, ErrorBound)}


def _first_bounds(spec: PredictSpec, query: Query) -> tuple[ErrorBound | None, ...]:
    """The stream's own bounds; where it has none, a share of what the query states."""
    stated = [bound for _, bound in query.errors if isinstance(bound, ErrorBound)]
    first = stated[0].scaled(FIRST_SHARE) if stated else None
    if first is None and any(bound is None for bound in spec.bounds):
        open_ = [n for n, bound in zip(spec.schema.modelled_names, spec.bounds, strict=True) if bound is None]
        raise PredictorError(
            f"predict: nothing bounds {', '.join(open_)}; give the stream an error, or end the query with ERROR WITHIN"
        )
    return tuple(first if bound is None else bound for bound in spec.bounds)


def _formulas(plan: Node, stream: str, schema: StreamSchema) -> dict[str, Expression]:
    """The MODEL clauses on attributes that the stream's tuples carry, over plain names."""
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


def _without_formulas(node: Node, formulas: Mapping[str, Mapping[str, Expression]]) -> Node:
    if not isinstance(node, Scan):
        return node
    moved = formulas.get(node.stream, {})
    return replace(node, models=tuple((name, formula) for name, formula in node.models if name not in moved))
