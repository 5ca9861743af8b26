"""Invert aggregates across keys: find the contributors to a result and how far each may move (semantics 4.3).

``min`` and ``max``: a key at distance ``g`` from the envelope, at its nearest, may move by ``bound + g``: the true maximum is at
most ``max(m_i + e_i) <= M + bound`` and at least the lowest value of the winner, ``M - bound``; for a winner ``g`` is 0.
``sum``: the split shares the bound among the keys present in each row of the result; ``avg``: ``n`` times the bound,
``n`` being their number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.kernels.polynomial.arithmetic import subtract
from pulse.kernels.polynomial.extrema import bounds
from pulse.operators.across.across import Across
from pulse.operators.data.grouping import about_own_start
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import gather, group_min
from pulse.operators.inversion.split_heuristics import Split, SplitInput, allot
from pulse.operators.relational.equi_join import JoinOperator, equal_pairs

_ROW, _OF = "#row", "#output row"


def invert_across(
    node: Across,
    below: Relation,
    above: Relation,
    need: FloatArray,
    split: Split,
    volatility: FloatArray | None,
) -> FloatArray:
    """Return the needs of ``node.argument`` per group of the input; ``volatility`` is per row of it."""
    cells = _common(node, below, above)
    row, of = cells.unmodelled[_ROW].to_numpy(), cells.unmodelled[_OF].to_numpy()
    if node.function in ("min", "max"):
        return _extremum(node, cells, below, need[above.group[of]], row)
    return _total(node, below, above, need, split, volatility, row, of)


def _common(node: Across, below: Relation, above: Relation) -> Relation:
    """Align input and result in time: ``x`` and ``m``, each with the row it came from."""
    left = _single(below, node.argument, "x", _ROW)
    right = _single(above, node.output, "m", _OF)
    # Rename the keys: an input's key may have the same name as the result's.
    a, b = left.columns, right.columns
    own = tuple((f"x.{name}", type_) for name, type_ in a.key)
    result = tuple((f"m.{name}", type_) for name, type_ in b.key)
    columns = Columns((*own, *result), ("x", "m"), ((_ROW, pa.int64()), (_OF, pa.int64())), a.time)
    names = a.key_names
    equal = tuple((f"x.{names[names.index(name)]}", f"m.{name}") for name in b.key_names)
    renamed_left = replace(left, columns=Columns(own, ("x",), a.unmodelled, a.time))
    renamed_right = replace(right, columns=Columns(result, ("m",), b.unmodelled, b.time))
    pairs = equal_pairs(renamed_left, renamed_right, equal)
    return JoinOperator(equal, columns).segments(renamed_left, renamed_right, pairs)


def _single(relation: Relation, name: str, as_: str, row: str) -> Relation:
    columns = relation.columns
    return replace(
        relation,
        columns=Columns(columns.key, (as_,), ((row, pa.int64()),), columns.time),
        models={as_: relation.models[name]},
        err={as_: relation.err[name]},
        drift={},
        unmodelled={row: pa.array(np.arange(len(relation)))},
        lineage=None,
    )


def _extremum(node: Across, cells: Relation, below: Relation, bound: FloatArray, row: IntArray) -> FloatArray:
    ref, lo, hi = about_own_start(cells.ref, cells.lo, cells.hi)
    near = cells.take(np.arange(len(cells)), ref=ref, lo=lo, hi=hi)
    sign = 1.0 if node.function == "max" else -1.0
    gap, _, _ = bounds(sign * subtract(near.models["m"], near.models["x"]), near.lo, near.hi)
    return group_min(bound + np.maximum(gap, 0.0), below.group[row], below.groups)


def _total(
    node: Across,
    below: Relation,
    above: Relation,
    need: FloatArray,
    split: Split,
    volatility: FloatArray | None,
    row: IntArray,
    of: IntArray,
) -> FloatArray:
    # A key that changes its segment within a row of the result is still one contributor: its first segment represents it.
    group = below.group[row]
    _, first = np.unique(of * (below.groups + 1) + group, return_index=True)
    row, of, group = row[first], of[first], group[first]
    out = np.full(below.groups, np.nan)
    np.fmin.at(out, group, np.where(need[above.group[of]] > 0.0, np.inf, need[above.group[of]]))
    limited = np.isfinite(need[above.group[of]]) & (need[above.group[of]] > 0.0)
    row, of, group = row[limited], of[limited], group[limited]
    outputs, number = np.unique(of, return_counts=True)
    rest = np.ones(len(row)) if volatility is None else np.nan_to_num(volatility[row], nan=0.0)
    sensitivity = np.ones(len(row)) if node.function == "sum" else 1.0 / np.repeat(number, number)
    question = SplitInput(
        output_keys=tuple(key.take(pa.array(above.group[outputs])) for key in above.keys),
        output_coefficients=above.models[node.output][outputs],
        bound=gather(need, above.group[outputs]),
        offsets=np.concatenate(([0], np.cumsum(number))),
        keys=tuple(key.take(pa.array(group)) for key in below.keys),
        attributes=(node.argument,),
        attribute=np.zeros(len(row), np.int64),
        coefficients=below.models[node.argument][row],
        lo=below.lo[row],
        hi=below.hi[row],
        sensitivity=sensitivity,
        volatility=rest,
    )
    np.fmin.at(out, group, allot(split, question))
    return out
