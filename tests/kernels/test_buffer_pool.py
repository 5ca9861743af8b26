"""Memory that is used again: only when nobody holds it, never more than is allowed, and by no two at once."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from pulse.kernels.buffer_pool import LEAST, BufferPool


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("shape", [0, 5, LEAST, (2, LEAST), (0, LEAST), (LEAST, 0)])
def test_an_array_is_as_numpy_makes_it(shape, dtype):
    found, expected = BufferPool().empty(shape, dtype), np.empty(shape, dtype)
    assert (found.shape, found.dtype, found.strides) == (expected.shape, expected.dtype, expected.strides)
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert found.flags.aligned
    assert type(found) is np.ndarray


def test_what_was_let_go_is_used_again():
    shelf = BufferPool()
    one = shelf.empty(LEAST)
    at = address(one)
    assert len(shelf) == 0
    del one
    assert len(shelf) == 8 * LEAST
    again = shelf.empty((2, LEAST), np.int32)
    assert address(again) == at
    assert len(shelf) == 0


def test_what_a_slice_or_an_arrow_column_holds_is_not():
    shelf = BufferPool()
    one = shelf.empty(LEAST, np.int64)
    one[:] = np.arange(LEAST)
    column, part, buffer = pa.array(one), one[7:9], pa.py_buffer(one)
    del one
    for held in (column, part, buffer):
        assert len(shelf) == 0
        other = shelf.empty(LEAST, np.int64)
        other[:] = -1
        assert column.to_numpy()[-1] == LEAST - 1
        assert part.tolist() == [7, 8]
        del other, held
        shelf.clear()
    table = pa.table({"x": column}).slice(3, 4)
    del column, part, buffer
    gc.collect()
    assert len(shelf) == 0
    assert table.column("x").to_pylist() == [3, 4, 5, 6]
    del table
    assert len(shelf) == 8 * LEAST


def test_small_arrays_and_too_large_blocks_are_left_to_the_allocator():
    shelf = BufferPool()
    small = shelf.empty(LEAST // 8 - 1)
    del small
    assert len(shelf) == 0
    large = shelf.empty(5 * LEAST, np.uint8)
    del large
    found = shelf.empty(2 * LEAST, np.uint8)
    assert len(shelf) == 5 * LEAST  # two fifths of the block would serve it
    del found


def test_the_best_block_is_taken():
    shelf = BufferPool()
    blocks = [shelf.empty(size * LEAST, np.uint8) for size in (6, 4, 5)]
    places = [address(one) for one in blocks]
    del blocks
    assert address(shelf.empty(4 * LEAST - 1, np.uint8)) == places[1]


def test_no_more_is_kept_than_allowed_and_the_oldest_go():
    shelf = BufferPool(most=5 * LEAST)
    blocks = [shelf.empty(size * LEAST, np.uint8) for size in (3, 2, 2)]
    while blocks:
        blocks.pop(0)
    assert len(shelf) == 4 * LEAST
    whole = shelf.empty(6 * LEAST, np.uint8)
    del whole
    assert len(shelf) <= 5 * LEAST
    shelf.clear()
    assert len(shelf) == 0


def test_who_finds_the_shelf_in_use_does_without_it():
    shelf = BufferPool()
    one = shelf.empty(LEAST)
    with shelf._lock:
        other = shelf.empty(LEAST)
        assert address(other) != address(one)
        del other
    assert len(shelf) == 0
    del one
    assert len(shelf) == 8 * LEAST


def test_no_two_threads_have_the_same_memory():
    shelf, barrier = BufferPool(), threading.Barrier(4)

    def work(number: int) -> bool:
        fine = True
        for turn in range(50):
            mine = shelf.empty(LEAST, np.uint8)
            mine[:] = number
            barrier.wait(10)
            fine = fine and bool((mine == number).all())
            if turn % 3 != number % 3:
                mine = None
            barrier.wait(10)
        return fine

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
