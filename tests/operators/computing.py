"""Expressions as columns of a relation, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulse.core.expression import Expression
from pulse.operators.data.relation import Relation
from pulse.operators.expressions.on_segments import Evaluation


def compute(relation: Relation, outputs: Sequence[tuple[str, Expression]]) -> Relation:
    """Add expressions to a relation as modelled columns; rows may be cut finer.

    ``models``, ``err`` and (where known) ``drift`` get entries under these names, and ``columns`` is extended. An existing
    column of such a name is replaced after all expressions have been evaluated on its old values.
    """
    work = Evaluation(relation)
    named = [(name, work.as_model(work.fold(expression))) for name, expression in outputs]
    done = work.relation
    bare = done.only(done.columns)
    models, err, drift = dict(bare.models), dict(bare.err), dict(bare.drift)
    for name, source in named:
        models[name], err[name] = done.models[source], done.err[source]
        drift.pop(name, None)
        if source in done.drift:
            drift[name] = done.drift[source]
    before = relation.columns
    fresh = tuple(name for name, _ in outputs if name not in before.modelled)
    columns = replace(before, modelled=(*before.modelled, *fresh))
    return replace(done, columns=columns, models=models, err=err, drift=drift)
