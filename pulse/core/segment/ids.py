"""Compute segment ids and lineage (semantics 1.5), the same wherever a segment is computed.

An id is a 64-bit hash of key, start (``ref``, ``lo``), whether it is a point, unmodelled attributes, and the
coefficients of every modelled attribute. The end and the bounds are excluded, so that a segment that an update
truncates, or that is certified again, keeps its id. Trailing zero coefficients and the sign of zero do
not count. Equal segments have equal ids in every process and on every machine; different ones collide with
probability 2**-64 per pair.

Numbers are mixed with the finaliser of SplitMix64 (Steele, Lea, Flood 2014), texts with BLAKE2b, once per
distinct value.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulse.core.arrays import FloatArray, IntArray
from pulse.core.keys import key_texts, plain_values
from pulse.core.schema import LINEAGE, StreamSchema
from pulse.core.segment.coefficients import to_padded

_Hash = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def segment_ids(batch: pa.RecordBatch, schema: StreamSchema) -> IntArray:
    """Return the id of every row; see the module's text."""
    lo = batch.column("lo").to_numpy()
    hashes: _Hash = np.full(batch.num_rows, _GOLDEN)
    for name in schema.key_names:
        hashes = _mix(hashes, _hash_values(batch.column(name)))
    hashes = _mix(hashes, batch.column("ref").view(pa.int64()).to_numpy().view(np.uint64))
    hashes = _mix(hashes, _bits(lo))
    hashes = _mix(hashes, (lo == batch.column("hi").to_numpy()).astype(np.uint64))
    for name in schema.unmodelled_names:
        hashes = _mix(hashes, _hash_values(batch.column(name)))
    for name in schema.modelled_names:
        hashes = _mix_polynomials(hashes, to_padded(batch.column(name)))
    return hashes.view(np.int64)


def own_lineage(batch: pa.RecordBatch, schema: StreamSchema) -> pa.ListArray:
    """Return every row as the only entry of a lineage, as operators record an input segment."""
    n = batch.num_rows
    ids = (
        batch.column("segment_id")
        if "segment_id" in batch.schema.names
        else pa.array(segment_ids(batch, schema))
    )
    texts = key_texts([batch.column(name) for name in schema.key_names], n)
    parts = [ids, texts, batch.column("ref"), batch.column("lo"), batch.column("hi")]
    entries = pa.StructArray.from_arrays(parts, fields=list(LINEAGE.value_type))
    return pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32)), entries)


def _mix(hashes: _Hash, values: _Hash) -> _Hash:
    """Run one round of SplitMix64 over the running hash and a value; overflow is intended."""
    z: _Hash = (hashes ^ values) + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _mix_polynomials(hashes: _Hash, c: FloatArray) -> _Hash:
    """Mix in the coefficients up to the last nonzero one, then their number."""
    degree_plus_one = np.where(c != 0.0, np.arange(1, c.shape[1] + 1), 0).max(axis=1, initial=0)
    for j in range(c.shape[1]):
        hashes = np.where(j < degree_plus_one, _mix(hashes, _bits(c[:, j])), hashes)
    return _mix(hashes, degree_plus_one.astype(np.uint64))


def _bits(values: FloatArray) -> _Hash:
    return (values + 0.0).view(np.uint64)  # -0.0 becomes 0.0


def _hash_values(column: pa.Array) -> _Hash:
    """Hash every value of a column, whatever its type; nulls have their own hash."""
    encoded = column.dictionary_encode()
    values = plain_values(encoded.dictionary)
    of_value = np.array([_digest(value) for value in [*values, None]], dtype=np.uint64)
    hashes: _Hash = of_value[encoded.indices.fill_null(len(values)).to_numpy()]
    return hashes


def _digest(value: str | None) -> int:
    data = b"\x00" if value is None else b"\x01" + value.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
