"""Write the next version of a stored model: layers first, its commit last, so that it appears in one step.

::

    with begin_revision(model) as writer:            starts from the newest commit
        facts = writer.target.layer(unit, rows)      workers write layers, logs and dead letters; nothing reads them yet
        writer.add(facts)
        model = writer.commit(counts)                one document: readers switch from the old version to the new

A worker needs only the target, which is picklable, and returns facts.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.store.draft import Draft, drafted
from pulse.store.errors import ConflictError, StoreError
from pulse.store.manifest import ASIDE, LayerFile, Manifest
from pulse.store.model import Model
from pulse.store.model_ref import ModelRef
from pulse.store.parquet_io import read_parquet
from pulse.store.read_units import ReadUnit
from pulse.store.versions.compact import merged, too_heavy
from pulse.store.versions.layers import KIND, KNOWN_FROM, KNOWN_TO, OWN, Round, fold, layer_schema, not_before
from pulse.store.writers import merge_statistics, statistics_of, write_table


class LayerFacts(NamedTuple):
    """A written layer: the part it corrects, its manifest entry, and the worst certificates of its insertions."""

    part: str
    layer: LayerFile
    statistics: dict[str, Any]


@dataclass(frozen=True)
class RevisionTarget:
    """The destination of a revision: the model as it is, and the next version."""

    stored: ModelRef
    version: int
    schema: StreamSchema
    tag: str

    def layer(self, unit: ReadUnit, rounds: list[Round], piece: int | None = None) -> LayerFacts | None:
        """Write the changes that these rounds make, in order, to a unit's segments; None where there are none.

        ``piece`` distinguishes the layers of one unit; it defaults to the unit's share.
        """
        rows = fold(rounds) if rounds else None
        if rows is None or not rows.num_rows:
            return None
        model = self.stored.open()
        rows = not_before(rows, self.schema, self._earlier(model, unit))
        part = unit.files[0]
        number = unit.share if piece is None else piece
        name = f"_layer-{self.version:03d}-{part.removesuffix('.parquet')}-{number:05d}-{self.tag}.parquet"
        write_table(model.path / name, rows)
        return LayerFacts(part, *self._facts(model.path / name, rows))

    def _earlier(self, model: Model, unit: ReadUnit) -> list[pa.Table]:
        names = [*self.schema.key_names, KNOWN_FROM, KNOWN_TO]
        layers = [layer for file in model.manifest.files if file.name in unit.files for layer in file.layers]
        return [read_parquet(model.file(layer.name), columns=names) for layer in layers]

    def _facts(self, path: Path, rows: pa.Table) -> tuple[LayerFile, dict[str, Any]]:
        withdraws = pc.equal(rows.column(KIND), "-D").to_numpy().astype(bool)
        there = ~withdraws & rows.column(KNOWN_TO).is_null().to_numpy()
        batch = SegmentBatch.from_arrow(rows.drop_columns(list(OWN)), self.schema, check=False)
        some = batch.filter(~withdraws)
        starts, stops = batch.ref + batch.lo * 1e6, batch.ref + batch.hi * 1e6
        known = [pc.max(rows.column(name)).cast(pa.int64()).as_py() for name in (KNOWN_FROM, KNOWN_TO)]
        layer = LayerFile(
            name=path.name,
            version=self.version,
            withdrawn=int(withdraws.sum()),
            put=int(there.sum()),
            points=int((batch.is_point & there).sum() - (batch.is_point & withdraws).sum()),
            keys=len(np.unique(batch.key_ranks)),
            bytes=path.stat().st_size,
            start=int(np.floor(starts.min())),
            end=int(np.ceil(stops.max())),
            known=max((one for one in known if one is not None), default=None),
        )
        return layer, statistics_of(some) if len(some) else {}

    def log(self, table: pa.Table, piece: int = 0) -> str:
        """Write the revisions of tuples that are applied, in order; return the name of the file."""
        name = f"_revisions-{self.version:03d}-{piece:05d}-{self.tag}.parquet"
        write_table(Path(self.stored.path) / name, table)
        return name

    def aside(self, table: pa.Table, piece: int = 0) -> str:
        """Write rejected revisions with their reasons; return the name of the file."""
        name = f"revisions-{self.version:03d}-{piece:05d}-{self.tag}.parquet"
        write_table(Path(self.stored.path) / ASIDE / name, table)
        return name


class RevisionWriter:
    """The writer of the next version; see the module's text."""

    def __init__(self, model: Model, draft: Draft | None = None) -> None:
        self.model, self._draft = model, draft
        self.version = model.version + 1
        self.applied = time.time_ns() // 1000
        """The known time of revisions without one: microseconds since the epoch."""
        stored = ModelRef(str(model.path), model.version, commit=model.manifest.commit or None)
        self.target = RevisionTarget(stored, self.version, model.schema, "" if draft is None else draft.tag)
        self._layers: dict[str, list[LayerFile]] = {}
        self._statistics: list[dict[str, Any]] = []
        self._logs: list[str] = []

    def add(self, facts: LayerFacts | None) -> None:
        """Add a written layer to the version."""
        if facts is not None:
            self._layers.setdefault(facts.part, []).append(facts.layer)
            self._statistics.append(facts.statistics)

    def add_log(self, name: str) -> None:
        """Add a written log to the version."""
        self._logs.append(name)

    def commit(self, counts: Mapping[str, Any], *, keep: bool = False, tuples: int = 0) -> Model:
        """Publish the version; return the model at it.

        ``keep``: keep the previous version, so that AS OF can query earlier states. ``tuples``: the change in the number of
        tuples.
        """
        folder, old = self.model.path, self.model.manifest
        assert self._draft is not None, "a rehearsal commits nothing"
        manifest = self._manifest(counts, keep, tuples)
        if not manifest.kept and too_heavy(manifest):
            manifest = merged(folder, manifest, self._draft.tag)
        self._draft.commit(manifest, "revised", drop=old.names - manifest.names)
        return Model(folder)

    def stand(self) -> Model:
        """Publish no version and return the model as it is; a commit of its version has the rejected revisions, if any."""
        assert self._draft is not None, "a rehearsal commits nothing"
        self._draft.discard_unless(f"{ASIDE}/")
        if not self._draft.is_empty:
            self._draft.commit(self.model.manifest, "set aside", drop=())
        return Model(self.model.path)

    def _manifest(self, counts: Mapping[str, Any], keep: bool, tuples: int) -> Manifest:
        old = self.model.manifest
        files = [replace(file, layers=(*file.layers, *self._layers.get(file.name, ()))) for file in old.files]
        known = [layer.known for own in self._layers.values() for layer in own if layer.known is not None]
        since = (
            old.since
            if keep
            else max([*known, *([old.since] if old.since is not None else [])], default=None)
        )
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        change = {"version": self.version, "at": now, "what": "revised", "kept": keep, "counts": dict(counts)}
        revised = replace(
            old,
            files=tuple(files),
            counts={**old.counts, "tuples": old.tuples + tuples},
            statistics=merge_statistics([old.statistics, *self._statistics]),
            version=self.version,
            kept=(*old.kept, old.version) if keep else old.kept,
            since=since,
            changes=(*old.changes, change),
            log=(*old.log, *sorted(self._logs)),
        )
        return replace(revised, stale=revised.drift_is_void and (old.stale or not old.revised))


@contextmanager
def begin_revision(model: Model) -> Iterator[RevisionWriter]:
    """Yield a writer of the next version. Nothing changes unless it commits.

    A model that is not, or no longer, the newest version is rejected; and so is the commit if another came before it.
    """
    _check_revisable(model)
    _newest(model)
    with drafted(model.path, replace=True) as draft:
        assert draft.base is not None, "it was there just now"
        newest = Model(ModelRef(str(model.path), draft.base.version, commit=draft.base.commit))
        if newest.manifest.content != model.manifest.content:
            raise ConflictError(f"{model.path}: another process has just changed it; open it again")
        yield RevisionWriter(newest, draft)


@contextmanager
def rehearse_revision(model: Model) -> Iterator[RevisionWriter]:
    """Yield a writer for a dry run: the model's folder stays as it is."""
    _check_revisable(model)
    yield RevisionWriter(_newest(model))


def _check_revisable(model: Model) -> None:
    if model.as_of is not None:
        raise StoreError(f"{model.path}: only the newest version can be revised; open it without a time")
    layer_schema(model.schema)


def _newest(model: Model) -> Model:
    """Reopen the model, which must be unchanged."""
    newest = Model(model.path)
    if newest.manifest.content != model.manifest.content:
        raise StoreError(
            f"{model.path}: version {model.version} was opened, but it is at version {newest.version} now; open it again"
        )
    return newest
