"""Queries that run on a stream tell the same as when all is there at once, whatever comes together; what is known of keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pulse.benchmarks.checks.replays import Known, cuts, in_batches, judged
from pulse.benchmarks.engines import Answering, Historical, Modelling, Predicting, segments_of
from pulse.benchmarks.peers.questions import SECOND, Macd
from pulse.benchmarks.workloads.market import TRADES, Market, predictor
from pulse.benchmarks.workloads.sea import PLACES, Sea
from pulse.core.columns import Columns
from pulse.core.time import EARLIEST
from pulse.language import parse
from pulse.operators.fit.spec import FitSpec


@pytest.fixture(scope="module")
def trades():
    return Market("generated", 12_000)


@pytest.fixture(scope="module")
def macd():
    return parse(Macd.text, {"S": TRADES}).bind(Macd().parameters)


def in_order(table):
    return table.set_column(1, "symbol", table["symbol"].cast(pa.string())).sort_by(
        [("symbol", "ascending"), ("t", "ascending")]
    )


def at_once(query, segments, upto):
    running = Answering(query, segments.columns)
    running.take(segments, upto)
    return running.answer


def assert_same(one, other):
    one, other = in_order(one), in_order(other)
    assert one.column_names == other.column_names
    assert one.num_rows == other.num_rows > 0
    for name in one.column_names:
        if pa.types.is_floating(one[name].type):
            np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-9)
        else:
            assert one[name].to_pylist() == other[name].to_pylist()


@pytest.mark.parametrize("batches", [1, 3, 40])
def test_segments_in_batches_tell_what_they_tell_at_once(trades, macd, batches):
    segments = segments_of(FitSpec.of(TRADES, drift="0.005%"), trades.table)
    whole = at_once(macd, segments, int(trades.t[-1]))
    found = in_batches(Historical(macd, segments, trades.t), trades.tuples, batches).answer
    assert_same(found, whole)


def test_modelling_tells_what_its_segments_do_up_to_the_key_that_is_known_least(trades, macd):
    often = np.argsort(np.bincount(trades.key))[-5:]  # the others trade too seldom to be known to any time
    busy = np.isin(trades.key, often)
    table = trades.table.filter(pa.array(busy))
    spec = FitSpec.of(TRADES, error="0.05%")
    running = in_batches(Modelling(spec, table, macd, keys=5), table.num_rows, 30)
    assert running.answering is not None
    upto = min(running.known.values())
    assert upto == running.answering.upto
    assert running.segments == len(segments_of(spec, table))
    assert_same(running.answering.answer, at_once(macd, segments_of(spec, table), upto))


def test_nothing_is_reported_before_every_key_is_known(macd):
    running = Answering(macd, Columns.of(TRADES))
    running.take(segments_of(FitSpec.of(TRADES, error="1%"), Market("generated", 500).table), EARLIEST)
    assert running.emitted == []


def test_every_way_to_macd_keeps_what_it_certifies(trades):
    for name, maker in trades.makers().items():
        found = trades.judge(name, maker)
        assert found.true_rows == trades.truth.num_rows
        assert found.accuracy.observed <= found.accuracy.certified + found.accuracy.rounding


def test_an_answer_that_claims_too_much_is_refused(trades, macd):
    segments = segments_of(FitSpec.of(TRADES, drift="0.005%"), trades.table)
    answer = at_once(macd, segments, int(trades.t[-1]))
    wrong = answer.set_column(answer.column_names.index("diff"), "diff", pa.compute.add(answer["diff"], 1.0))
    with pytest.raises(ValueError, match="does not keep what it certifies"):
        judged(wrong, trades.truth, keys=("symbol",), value="diff", level=0.0, slack=1e-6)


def test_predictions_count_their_changes(trades):
    running = in_batches(Predicting(predictor(0.01), trades.table), trades.tuples)
    assert running.changes == running.prediction.tally.changes > 0


def test_every_way_to_followers_keeps_what_it_certifies():
    sea = Sea("generated", 18_000)
    assert sea.truth[0].num_rows > 0
    for name, maker in sea.makers().items():
        found = sea.judge(name, maker)
        assert found.accuracy.recall > 0.97
    assert PLACES.modelled_names == ("x", "y")


def test_what_is_known_of_keys():
    key = pa.chunked_array([["a", "b", "a", "a", "b", "a"]])
    t = np.array([0, 5, 10, 20, 25, 100]) * SECOND
    known = Known(key, t, 30 * SECOND)
    asked = [
        ("a", 20, 20, True),
        ("a", 20, 21, False),  # before its first
        ("a", 15, 5, True),
        ("a", 21, 1, False),  # in the silence
        ("a", 100, 0, True),
        ("a", 100, 10, False),
        ("a", 101, 0, False),  # after its last
        ("b", 25, 20, True),
        ("b", 26, 0, False),
        ("c", 20, 0, False),
    ]
    for name, at, size, whole in asked:
        assert known.whole(pa.chunked_array([[name]]), np.array([at * SECOND]), size * SECOND).tolist() == [
            whole
        ]
    assert Known(key, t).whole(pa.chunked_array([["a"]]), np.array([99 * SECOND]), 99 * SECOND).all()


def test_cuts_leave_nothing_out():
    assert cuts(10, 3) == [(0, 3), (3, 6), (6, 10)]
