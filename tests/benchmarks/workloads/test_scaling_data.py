"""Answers at sizes where not all keys are looked at: what is looked at is looked at as closely, and faults are seen."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pulse.benchmarks.peers.questions import Macd, Minimum
from pulse.benchmarks.workloads import scaling_data as module
from pulse.benchmarks.workloads.scaling_data import (
    BOUNDS,
    SAMPLED,
    SYMBOLS,
    VARIANTS,
    WHOLE,
    Grown,
    of_keys,
    sampled_keys,
)
from pulse.session import Session

ROWS = 500_000
HERE = Session(engine="local")


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """Small, and looked at like a large one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WHOLE", ROWS - 1)
        patch.setattr(module, "SYMBOLS", 40)
        found = Grown(tmp_path_factory.mktemp("sampled"), ROWS)
        assert found.keys
        # In many row groups, as a large file is: engines that read several at a time may lose their order.
        pq.write_table(pq.read_table(found.file), found.file, row_group_size=20_000)
        assert found.checked.startswith(f"{SAMPLED} of 40 keys")
    return found


def test_keys_are_chosen_by_seed_and_only_above_a_size() -> None:
    assert sampled_keys(WHOLE) == ()
    chosen = sampled_keys(WHOLE + 1)
    assert len(set(chosen)) == SAMPLED < SYMBOLS
    assert sampled_keys(10 * WHOLE) == chosen


def test_what_is_looked_at_are_the_tuples_of_these_keys_in_their_order(sampled: Grown) -> None:
    everything = pq.read_table(sampled.file, columns=["symbol", "t", "price"])
    wanted = everything.filter(pc.is_in(everything["symbol"].cast(pa.string()), pa.array(sampled.keys)))
    found = pq.read_table(sampled.looked_at)
    assert 0 < found.num_rows < ROWS
    for name in ("symbol", "t", "price"):
        assert found[name].cast(wanted[name].type).to_pylist() == wanted[name].to_pylist()


@pytest.mark.parametrize("name", ["macd", "minimum"])
def test_an_answer_over_all_keys_is_judged_by_those_looked_at(sampled: Grown, name: str) -> None:
    judged, facts = sampled.judged_ours(name)
    answer = sampled.ask(name, HERE)
    assert set(sampled.keys) < set(answer["symbol"].to_pylist())
    timed = sampled.judged(name, answer)
    assert (timed.precision, timed.recall) == (judged.precision, judged.recall)
    assert judged.precision > 0.9
    assert judged.recall > 0.9
    assert facts["checked"] == sampled.checked


@pytest.mark.parametrize("name", ["macd", "minimum"])
def test_an_answer_that_lacks_rows_or_is_off_is_found_out(sampled: Grown, name: str) -> None:
    truth = sampled.truth(name)
    value = {"macd": "diff", "minimum": "low"}[name]
    exact = sampled.judged(name, truth)
    assert (exact.precision, exact.recall, exact.observed) == (1.0, 1.0, 0.0)
    assert sampled.judged(name, truth.slice(0, truth.num_rows // 2)).recall == pytest.approx(0.5, abs=0.01)
    at = truth.column_names.index(value)
    off = truth.set_column(at, value, pc.add(truth[value], 0.5))
    with pytest.raises(ValueError, match="off by"):
        sampled.judged(name, off)


@pytest.mark.parametrize("bound", list(BOUNDS))
def test_models_are_judged_at_their_bounds(sampled: Grown, bound: str) -> None:
    found = sampled.judged_model(sampled.model(bound), bound)
    assert found.precision == 1.0
    assert found.observed <= found.certified + found.rounding
    assert (found.certified == 0.0) == (bound == "exact")


def test_a_model_to_a_wider_bound_is_not_taken_for_a_narrow_one(sampled: Grown) -> None:
    with pytest.raises((AssertionError, ValueError)):
        sampled.judged_model(sampled.model("error 0.05 %"), "exact")


def test_sweeps_are_judged_on_all_keys(sampled: Grown) -> None:
    rows = sampled.sweep(HERE).to_pylist()
    assert sampled.judged_sweep(rows).precision > 0.9
    for row in rows:
        row["seconds"] *= 2
    with pytest.raises(AssertionError):
        sampled.judged_sweep(rows)
    peer = sampled.duckdb(load=True, threads=1)
    counts = peer.all_macds_figures(VARIANTS).to_pylist()
    peer.close()
    assert sampled.judged_counts(counts).precision > 0.9999
    counts[0]["n"] += counts[0]["n"] // 2
    with pytest.raises(AssertionError):
        sampled.judged_counts(counts)


def test_texts_of_some_keys(sampled: Grown) -> None:
    assert of_keys("macd", Macd.text, ()) == Macd.text
    assert of_keys("macd", Macd.text, ("A", "B")).endswith("and (S.symbol = 'A' or S.symbol = 'B')")
    assert "where symbol = 'A' group by symbol" in of_keys("minimum", Minimum().text, ("A",))
    for name in ("macd", "minimum"):
        found = sampled.asked_of_keys(name, HERE)
        assert set(found["symbol"].to_pylist()) <= set(sampled.keys)


def test_a_folder_without_keys_to_choose_is_looked_at_whole(tmp_path: Path) -> None:
    whole = Grown(tmp_path, 2_000)
    assert whole.looked_at == whole.file
    assert whole.checked == "all keys"
