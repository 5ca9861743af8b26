"""A fitted model with its tuples in memory, revised from tuple to result: every run of a benchmark starts from the same state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from pulse.core.arrays import IntArray
from pulse.core.columns import Columns
from pulse.core.keys import key_texts
from pulse.core.regions import Regions
from pulse.core.segment.batch import SegmentBatch
from pulse.language import parse
from pulse.operators.data.relation import Relation
from pulse.operators.data.updates import extents
from pulse.operators.fit.spec import FitSpec
from pulse.operators.incremental.delta import Changed
from pulse.operators.refit.api import Refitted, refit, without_drift
from pulse.runtime.incremental.view import IncrementalView, ViewUpdate
from pulse.stream.revisions import Revisions

_KEY = np.int64(1) << 46  # microseconds: more than any of these streams lasts


@dataclass
class Held:
    """``tuples`` and ``segments`` by key and time."""

    spec: FitSpec
    tuples: pa.Table
    segments: SegmentBatch

    def __post_init__(self) -> None:
        self.tuples = self.tuples.combine_chunks()
        self.segments = without_drift(self.segments, self.spec).sort()

    @cached_property
    def keys(self) -> dict[str, int]:
        """A number for each key, in their order among the tuples."""
        return {text: code for code, text in enumerate(dict.fromkeys(self._texts_of_tuples()))}

    def refitted(self, revisions: Revisions) -> Refitted:
        """What the revisions do to the model; it stays as it is."""
        return refit(self.spec, self.tuples_in, self.segments_in, revisions)

    def changed(self, refitted: Refitted) -> Changed:
        """The same as a revision of segments."""
        old, new = (self._relation(one) for one in (refitted.old, refitted.new))
        parts = []
        for one in (old, new):
            start, end = extents(one)
            rows = pa.array(one.group)
            parts.append(Regions(tuple(column.take(rows) for column in one.keys), start, end))
        return Changed(Regions.concat(parts).merged(), old, new)

    def _relation(self, segments: SegmentBatch) -> Relation:
        return Relation.from_table(segments.sort().to_arrow(), Columns.of(self.spec.schema))

    def view(self, text: str, mode: str, **parameters: Any) -> IncrementalView:
        """A query over the model, ready to be revised; of windows what they are at closing times."""
        columns = {"S": Columns.of(self.spec.schema)}
        query = parse(text, columns).bind(parameters)
        view = IncrementalView(query, columns, mode=mode, every=query.rate)
        view.start({"S": self._relation(self.segments)})
        return view

    def revise(self, view: IncrementalView, revisions: Revisions) -> tuple[Refitted, ViewUpdate]:
        """From corrected tuples to corrected results."""
        refitted = self.refitted(revisions)
        return refitted, view.revise({"S": self.changed(refitted)})

    # -- the connection point of the tuples -----------------------------------------------------------------

    @cached_property
    def _origin(self) -> int:
        return int(self._times.min()) - 1_000_000

    @cached_property
    def _times(self) -> IntArray:
        times: IntArray = self.tuples.column(self.spec.schema.time).chunk(0).view(pa.int64()).to_numpy()
        return times

    def _texts_of_tuples(self) -> list[str]:
        columns = [self.tuples.column(name).chunk(0) for name in self.spec.schema.key_names]
        if len(columns) == 1:  # few keys, many tuples
            encoded = columns[0].dictionary_encode()
            texts = key_texts([encoded.dictionary.cast(columns[0].type)], len(encoded.dictionary)).to_pylist()
            firsts = np.flatnonzero(np.diff(encoded.indices.to_numpy(), prepend=-1))
            return [texts[i] for i in encoded.indices.to_numpy()[firsts]]
        every: list[str] = key_texts(columns, self.tuples.num_rows).to_pylist()
        return every

    @cached_property
    def _tuple_places(self) -> IntArray:
        """Key and time of each tuple as one ascending number."""
        column = self.tuples.column(self.spec.schema.key_names[0]).chunk(0).dictionary_encode()
        code = np.cumsum(np.diff(column.indices.to_numpy(), prepend=column.indices[0].as_py()) != 0)
        return code * _KEY + (self._times - self._origin)

    @cached_property
    def _segment_places(self) -> tuple[IntArray, IntArray]:
        segments = self.segments
        texts = key_texts([segments.column(name) for name in segments.schema.key_names], len(segments))
        encoded = texts.dictionary_encode()
        codes = np.array([self.keys[text] for text in encoded.dictionary.to_pylist()], np.int64)
        base = codes[encoded.indices.to_numpy()] * _KEY + (segments.ref - self._origin)
        begin = base + np.floor(segments.lo * 1e6).astype(np.int64)
        return begin, np.maximum.accumulate(base + np.ceil(segments.hi * 1e6).astype(np.int64))

    def _places(self, regions: Regions) -> tuple[IntArray, IntArray]:
        texts = key_texts(list(regions.keys), len(regions)).to_pylist()
        code = np.array([self.keys[text] for text in texts], np.int64) * _KEY
        start, end = (
            np.clip(one, self._origin, self._origin + _KEY // 2) for one in (regions.start, regions.end)
        )
        return code + start - self._origin, code + end - self._origin

    def tuples_in(self, regions: Regions) -> pa.Table:
        """Those in the regions, and one on either side of each."""
        start, end = self._places(regions)
        places = self._tuple_places
        first = np.searchsorted(places, start)
        first = np.where(first > 0, np.searchsorted(places, places[np.maximum(first - 1, 0)]), 0)
        after = np.searchsorted(places, end)
        last = np.minimum(after, len(places) - 1)
        after = np.searchsorted(places, places[last], side="right")
        return self.tuples.take(pa.array(_rows(first, after)))

    def segments_in(self, regions: Regions) -> SegmentBatch:
        """Those that meet the regions."""
        start, end = self._places(regions)
        begins, ends = self._segment_places
        first = np.searchsorted(ends, start - 1)
        after = np.searchsorted(begins, end + 1, side="right")
        return self.segments.take(_rows(first, after))


def _rows(first: IntArray, after: IntArray) -> IntArray:
    """Every row of the ranges once, in order."""
    counts = np.maximum(after - first, 0)
    begins = np.cumsum(counts) - counts
    return np.unique(np.repeat(first - begins, counts) + np.arange(int(counts.sum())))
