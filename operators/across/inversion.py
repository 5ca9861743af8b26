"""Invert bounds across keys: align inputs and result, and find how far each contributor may move (semantics 4.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.columns import Columns
from pulse.kernels.polynomial.arithmetic import subtract
from pulse.kernels.polynomial.extrema import bounds
from pulse.operators.data.grouping import about_own_start
from pulse.operators.data.relation import Relation
from pulse.operators.inversion.needs import gather, group_min
from pulse.operators.inversion.sources import Inversion
from pulse.operators.inversion.split_heuristics import SplitInput
from pulse.operators.relational.equi_join import JoinOperator

_ROW = "#row"


class Contributions(NamedTuple):
    """An aggregate's input ``below`` and result ``above``, cut to their common ``cells``: row ``of`` of the result has row
    ``row`` of the input as a contributor.
    """

    argument: str
    output: str
    below: Relation
    above: Relation
    cells: Relation
    row: IntArray
    of: IntArray

    @classmethod
    def align(cls, argument: str, output: str, below: Relation, above: Relation) -> Contributions:
        """Align input and result in time."""
        # Under aliases: an input's key may have the same name as the result's.
        left, right = _numbered(below, argument).prefixed("x"), _numbered(above, output).prefixed("m")
        a, b = left.columns, right.columns
        modelled, unmodelled = (*a.modelled, *b.modelled), (*a.unmodelled, *b.unmodelled)
        columns = Columns((*a.key, *b.key), modelled, unmodelled, a.time)
        equal = tuple((f"x.{name}", f"m.{name}") for name in above.columns.key_names)
        cells = JoinOperator(equal, columns).segments(left, right)
        row, of = (cells.unmodelled[f"{alias}.{_ROW}"].to_numpy() for alias in "xm")
        return cls(argument, output, below, above, cells, row, of)

    def of_extremum(self, need: FloatArray, *, upper: bool) -> FloatArray:
        """Return the needs of an extremum's contributors, per group of the input.

        A key at distance ``g`` from the envelope, at its nearest, may move by ``bound + g``: the true maximum is at most
        ``max(m_i + e_i) <= M + bound`` and at least the lowest value of the winner, ``M - bound``; for a winner ``g`` is 0.
        """
        cells, below = self.cells, self.below
        bound = need[self.above.group[self.of]]
        ref, lo, hi = about_own_start(cells.ref, cells.lo, cells.hi)
        near = cells.take(np.arange(len(cells)), ref=ref, lo=lo, hi=hi)
        sign = 1.0 if upper else -1.0
        result, own = near.models[f"m.{self.output}"], near.models[f"x.{self.argument}"]
        gap, _, _ = bounds(sign * subtract(result, own), near.lo, near.hi)
        return group_min(bound + np.maximum(gap, 0.0), below.group[self.row], below.groups)

    def of_total(
        self, need: FloatArray, inversion: Inversion, volatility: FloatArray | None, *, mean: bool
    ) -> FloatArray:
        """Return the needs of a sum's or a ``mean``'s contributors, per group of the input: the split shares the bound among
        the keys present in each row of the result, for a mean of ``n`` keys ``n`` times the bound.

        ``volatility`` is per row of the input.
        """
        below, above, row, of = self.below, self.above, self.row, self.of
        # A key that changes its segment within a row of the result is still one contributor: its first segment represents it.
        group = below.group[row]
        _, first = np.unique(of * (below.groups + 1) + group, return_index=True)
        row, of, group = row[first], of[first], group[first]
        bound = need[above.group[of]]
        out = np.full(below.groups, np.nan)
        np.fmin.at(out, group, np.where(bound > 0.0, np.inf, bound))
        limited = np.isfinite(bound) & (bound > 0.0)
        row, of, group = row[limited], of[limited], group[limited]
        outputs, number = np.unique(of, return_counts=True)
        rest = np.ones(len(row)) if volatility is None else np.nan_to_num(volatility[row], nan=0.0)
        question = SplitInput(
            output_keys=tuple(key.take(pa.array(above.group[outputs])) for key in above.keys),
            output_coefficients=above.models[self.output][outputs],
            bound=gather(need, above.group[outputs]),
            offsets=np.concatenate(([0], np.cumsum(number))),
            keys=tuple(key.take(pa.array(group)) for key in below.keys),
            attributes=(self.argument,),
            attribute=np.zeros(len(row), np.int64),
            coefficients=below.models[self.argument][row],
            lo=below.lo[row],
            hi=below.hi[row],
            sensitivity=1.0 / np.repeat(number, number) if mean else np.ones(len(row)),
            volatility=rest,
        )
        np.fmin.at(out, group, inversion.allot(question))
        return out


def _numbered(relation: Relation, name: str) -> Relation:
    """Return one attribute of a relation, and the number of each row."""
    columns = relation.columns
    return replace(
        relation,
        columns=Columns(columns.key, (name,), ((_ROW, pa.int64()),), columns.time),
        models={name: relation.models[name]},
        err={name: relation.err[name]},
        drift={},
        unmodelled={_ROW: pa.array(np.arange(len(relation)))},
        lineage=None,
    )
