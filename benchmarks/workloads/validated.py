"""Segments as predictive processing has them (Pulse paper, IV): every tuple is validated, and a model begins where it must.

``MODEL x = x + vx * t, y = y + vy * t``: a tuple's own values are the coefficients, and the model holds until it is violated
or an unmodelled attribute changes. Tuples of the workload stay within half the bound of their path, so that no model is
violated; the number of the segment is watched as such an attribute, so that a model begins with every segment. Beside
solving, an operator then pays for checking each tuple.
"""

from __future__ import annotations

import numpy as np

from pulse.benchmarks.workloads.moving_objects import COLUMNS, SECOND, Objects, begins
from pulse.core.arrays import IntArray
from pulse.core.certainty import CERTAIN
from pulse.kernels.fit.truth_intervals import SAMPLES
from pulse.kernels.validate.key_state import StateLayout, fresh
from pulse.kernels.validate.validate import BEGIN, END, KEY, validate
from pulse.operators.data.relation import Relation

_RULES = np.array([[SAMPLES, 0, 0, 2], [SAMPLES, 0, 1, 3]])


class Validation:
    """The tuples of a workload, laid out as the validator takes them: columns x, y, vx, vy."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        tuples = objects.stream_tuples
        self.t = tuples.t
        self.values = np.stack([tuples.x, tuples.y, tuples.vx, tuples.vy])
        self.who = np.stack([tuples.id, _segment_numbers(tuples.id, objects)])
        self.bounds = np.array([[objects.precision, 0.0]] * 2)
        # Tuples in the later half of a horizon extend the model they agree with: a segment lies within the first half.
        period = objects.objects / objects.rate
        self.horizon = round((2.0 * np.ceil(objects.per_segment) + 1.0) * period * SECOND)
        self.keys = objects.relation.keys

    def segments(self) -> Relation:
        """Validate every tuple from the start; the models that began, by key and time."""
        state = fresh(self.objects.objects, StateLayout(2, 2))
        found = validate(self.t, self.values, self.who, _RULES, self.bounds, self.horizon, state)
        order = np.argsort(found.event[:, KEY].astype(np.uint16), kind="stable")
        event, c, err = found.event[order], found.c[order], found.err[order]
        offsets = np.searchsorted(event[:, KEY], np.arange(self.objects.objects + 1))
        begin = np.ascontiguousarray(event[:, BEGIN])
        n = len(begin)
        return Relation(
            columns=COLUMNS,
            keys=self.keys,
            offsets=offsets,
            ref=begin,
            lo=np.zeros(n),
            hi=(_until(begin, event[:, END], offsets) - begin) / SECOND,
            models={"x": np.ascontiguousarray(c[:, 0]), "y": np.ascontiguousarray(c[:, 1])},
            err={"x": np.ascontiguousarray(err[:, 0]), "y": np.ascontiguousarray(err[:, 1])},
            drift={},
            certainty=np.full(n, CERTAIN, np.uint8),
        )


def _segment_numbers(who: IntArray, objects: Objects) -> IntArray:
    """Number the segments of each object; the code of each tuple's."""
    order = np.argsort(who, kind="stable")
    counts = np.bincount(who, minlength=objects.objects)
    starts = [np.cumsum(begins(int(count), objects.per_segment)[:count]) for count in counts]
    numbers = np.empty(len(who), np.int64)
    numbers[order] = np.concatenate(starts)
    return numbers


def _until(begin: IntArray, end: IntArray, offsets: IntArray) -> IntArray:
    """Where each model is followed by the next of its key (semantics 1.4); the last ends as announced."""
    until = np.empty_like(begin)
    until[:-1], until[-1:] = begin[1:], end[-1:]
    lasts = offsets[1:][np.diff(offsets) > 0] - 1
    until[lasts] = end[lasts]
    return until
