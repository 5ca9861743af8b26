"""What workers raise arrives as the error it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pulse.core.errors import NullKeyError, UnknownColumnError
from pulse.datasets.errors import UnreadableError
from pulse.runtime.spark.errors import translated
from pulse.store.errors import WriteError


def raising(error: BaseException) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise error

    return work


def run(spark: SparkSession, error: BaseException) -> None:
    with translated():
        spark.range(1, numPartitions=1).mapInArrow(raising(error), "id long").toArrow()


@pytest.mark.parametrize(
    "error",
    [
        NullKeyError(
            "key column 'k': 2 nulls, the first in row 1 of the batch; a tuple without a key: nobody's"
        ),
        UnknownColumnError("f.csv: there is no column 'x'; There are: 'a'"),
        UnreadableError("f.parquet, row group 3: Couldn't deserialize: TProtocolException"),
        WriteError("out: could not be written"),
        NullKeyError("two\nlines of it"),
    ],
)
def test_ours_is_ours(spark: SparkSession, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        run(spark, error)
    assert str(caught.value) == str(error)
    assert isinstance(caught.value.__cause__, PySparkException)


def test_a_full_disk_is_one(spark: SparkSession) -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        run(spark, OSError(28, "No space left on device"))
    assert caught.value.errno == 28


def test_a_bug_stays_sparks(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="ZeroDivisionError"):
        run(spark, ZeroDivisionError("a bug"))


def test_nothing_happens_when_all_is_well() -> None:
    with translated():
        pass
    with pytest.raises(KeyError), translated():
        raise KeyError("not Spark's")
