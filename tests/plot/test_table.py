"""Small tables, for a terminal and for a page."""

from __future__ import annotations

from pulse.plot import Table


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    made = Table.of(
        ["who", "when", "count", "share"],
        [["a", "12:00:00", 1234567, "3.5 %"], ["bcd", "1:00", None, "12 %"]],
        grouped=["count"],
    )
    assert made.right == (False, False, True, True)
    assert made.lines() == [
        "who  when          count  share",
        "a    12:00:00  1,234,567  3.5 %",
        "bcd  1:00              –   12 %",
    ]


def test_cells_as_people_write_them() -> None:
    (row,) = Table.of([""] * 6, [[1e-7, 123456.789, 0.0, True, None, "<&>"]]).rows
    assert row == ("1e-07", "123457", "0", "yes", "–", "<&>")
    assert "&lt;&amp;&gt;" in Table.of(["a"], [["<&>"]]).html()


def test_only_columns_that_are_of_counts_have_their_digits_parted() -> None:
    """A number may be a key: an MMSI, an order, an account; also one that came as a float."""
    made = Table.of(
        ["mmsi", "reports", "account"], [[229988000, 229988000, 229988000.0]], grouped=["reports"]
    )
    assert made.rows == (("229988000", "229,988,000", "229988000"),)
    assert made.right == (True, True, True)


def test_no_rows() -> None:
    assert Table.of(["a", "b"], []).lines() == ["a  b"]
    assert Table.of(["a"], []).html().count("<tr>") == 1
