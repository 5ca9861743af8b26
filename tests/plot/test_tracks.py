"""Maps: tracks, pairs that went together, and a circle that is a circle."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pulse.core.area import Area
from pulse.core.schema import StreamSchema
from pulse.core.segment.batch import SegmentBatch
from pulse.plot import Episode, PlotError, Together, plot_tracks
from pulse.plot.bulk import outside_bulk
from pulse.plot.tracks import _MOST_STROKES

pytest.importorskip("matplotlib")
shapely = pytest.importorskip("shapely")

SECOND = 1_000_000


def fleet(x: str = "x", y: str = "y", *, middle: float = 0.0) -> SegmentBatch:
    """Two that go together from 100 s on, and one that is silent for a while."""
    return SegmentBatch.from_arrays(
        StreamSchema.of(key={"id": "int64"}, time="t", modelled={x: "linear", y: "linear"}),
        keys={"id": [1, 2, 3, 3]},
        ref=[0, 0, 0, 0],
        lo=[0.0, 0.0, 0.0, 300.0],
        hi=[400.0, 400.0, 200.0, 400.0],
        models={
            x: [[0.0, 5.0], [0.0, 5.0], [3000.0, 1.0], [9000.0, 1.0]],
            y: [[middle, 0.0], [middle + 100.0, 0.0], [middle, 3.0], [middle, 3.0]],
        },
        err={x: 1.0, y: 1.0},
    )


def test_all_tracks_in_kilometres() -> None:
    (axes,) = plot_tracks(fleet()).axes
    (tracks,) = axes.collections
    assert len(tracks.get_paths()) == 4
    np.testing.assert_allclose(tracks.get_paths()[0].vertices, [[0, 0], [2, 0]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x (km)", "y (km)")
    assert axes.get_aspect() == 1.0
    assert axes.get_title(loc="left") == "3 tracks"


def test_degrees_are_stretched_where_they_are_narrow() -> None:
    batch = SegmentBatch.from_arrays(
        StreamSchema.of(key={"id": "int64"}, time="t", modelled={"lon": "linear", "lat": "linear"}),
        keys={"id": [1]},
        ref=[0],
        lo=0.0,
        hi=10.0,
        models={"lon": [[10.0, 0.01]], "lat": [[60.0, 0.0]]},
        err={"lon": 0.0, "lat": 0.0},
    )
    (axes,) = plot_tracks(batch).axes
    assert axes.get_aspect() == pytest.approx(2.0)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lon", "lat")


def test_pairs_are_drawn_while_they_were_together_and_reported_when() -> None:
    pair = Together(1, 2, 100 * SECOND, 400 * SECOND)
    whole, near = plot_tracks(fleet(), pairs=[pair]).axes
    for line, y in zip(whole.get_lines(), (0.0, 0.1), strict=True):
        drawn = np.asarray(line.get_xydata())
        np.testing.assert_allclose(drawn[np.isfinite(drawn[:, 0])], [[0.5, y], [2.0, y]])
    (legend,) = plot_tracks(fleet(), pairs=[pair]).legends
    assert [text.get_text() for text in legend.get_texts()] == ["1 and 2, 00:01 to 00:06"]
    dots = [line for line in near.get_lines() if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in dots] == [5, 5]
    np.testing.assert_allclose(dots[0].get_xdata(), dots[1].get_xdata())  # the same instants
    assert near.get_title(loc="left") == "1 and 2"


def test_pairs_may_be_the_rows_of_an_answer() -> None:
    rows = pa.table(
        {
            "t": pa.array([100 * SECOND, 200 * SECOND], pa.timestamp("us")),
            "a": [1, 1],
            "b": [2, 2],
            "certainty": ["certain", "likely"],
        }
    )
    (legend,) = plot_tracks(fleet(), pairs=rows).legends
    assert [text.get_text() for text in legend.get_texts()] == ["1 and 2, 00:01 to 00:03"]
    assert len(plot_tracks(fleet(), pairs=rows.slice(0, 1)).axes) == 2  # an instant alone
    assert len(plot_tracks(fleet(), pairs=rows.slice(0, 0)).axes) == 1


def test_pairs_without_tracks_are_left_out_and_reported_if_there_are_no_others() -> None:
    known, unknown = Together(1, 2, 0, 400 * SECOND), Together("a", 2, 0, 400 * SECOND)
    (legend,) = plot_tracks(fleet(), pairs=[unknown, known]).legends
    assert len(legend.get_texts()) == 1
    with pytest.raises(
        PlotError, match=r"none of the 1 pairs, such as 'a' and 2, has tracks here; .* such as id 1"
    ):
        plot_tracks(fleet(), pairs=[unknown])


def test_a_way_is_broken_where_nothing_was_received() -> None:
    whole, _ = plot_tracks(fleet(), pairs=[Together(3, 1, 0, 400 * SECOND)]).axes
    drawn = np.asarray(whole.get_lines()[0].get_xydata())
    assert np.isnan(drawn[:-1, 0]).sum() == 1


def test_a_phone_has_the_enlarged_pair_below() -> None:
    pair = Together(1, 2, np.datetime64("1970-01-01T00:01:40"), np.datetime64("1970-01-01T00:06:40"))
    for width, beside in ((9.0, True), (4.6, False)):
        one, other = plot_tracks(fleet(), pairs=[pair], width=width).axes
        assert (one.get_subplotspec().rowspan == other.get_subplotspec().rowspan) is beside


def test_very_many_segments_become_bounded_strokes() -> None:
    n = 3 * _MOST_STROKES
    at = np.arange(n, dtype=float)
    batch = SegmentBatch.from_arrays(
        StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "linear"}),
        keys={"id": np.zeros(n, np.int64)},
        ref=np.zeros(n, np.int64),
        lo=at,
        hi=at + 1,
        models={"x": np.column_stack([np.zeros(n), np.ones(n)]), "y": np.zeros((n, 1))},
        err={"x": 0.0, "y": 0.0},
    )
    (axes,) = plot_tracks(batch).axes
    paths = axes.collections[0].get_paths()
    assert len(paths) <= _MOST_STROKES
    assert paths[0].vertices[0].tolist() == [0.0, 0.0]
    assert paths[-1].vertices[-1].tolist() == [n / 1000, 0.0]


def test_what_has_no_positions_has_no_map() -> None:
    batch = fleet("a", "b")
    with pytest.raises(PlotError, match=r"a map needs two modelled attributes.*got none, the model has a, b"):
        plot_tracks(batch)
    assert plot_tracks(batch, x="a", y="b").axes[0].get_xlabel() == "a (km)"
    with pytest.raises(PlotError, match="got c"):
        plot_tracks(batch, x="a", y="c")


def crowd(*wild: tuple[float, float], vessels: int = 40) -> SegmentBatch:
    """Vessels around the origin that go 100 m each; the first is reported once, or more often, somewhere else."""
    at = np.linspace(-5000.0, 5000.0, vessels)
    ways = [(i, 0.0, (x, 0.5 * x), (x + 100.0, 0.5 * x)) for i, x in enumerate(at)]
    for number, place in enumerate(wild):
        home = (at[0] + 100.0, 0.5 * at[0])
        ways += [(0, 100.0 + 20 * number, home, place), (0, 110.0 + 20 * number, place, home)]
    begin, end = (np.array([way[i] for way in ways]) for i in (2, 3))
    return SegmentBatch.from_arrays(
        StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "linear"}),
        keys={"id": [way[0] for way in ways]},
        ref=[round(way[1] * SECOND) for way in ways],
        lo=0.0,
        hi=10.0,
        models={
            name: np.column_stack([begin[:, a], (end - begin)[:, a] / 10.0]) for a, name in enumerate("xy")
        },
        err={"x": 1.0, "y": 1.0},
    )


def test_a_wild_position_does_not_shrink_the_map_to_a_dot() -> None:
    figure = plot_tracks(crowd((4e6, -9e6)))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (left, right), (below, above) = axes.get_xlim(), axes.get_ylim()
    assert -12.0 < left < -5.0 < 5.1 < right < 12.0
    assert -12.0 < below < -2.5 < 2.5 < above < 12.0
    assert axes.get_title(loc="left") == "40 tracks; 2 segments of 1 track lead outside the map"
    assert outside_bulk(crowd((4e6, -9e6))).keys == [0]


def test_several_wild_positions_on_either_side() -> None:
    batch = crowd((4e6, 0.0), (-7e6, 0.0), (0.0, 3e5), vessels=400)
    (axes,) = plot_tracks(batch).axes
    assert axes.get_xlim()[1] < 12.0
    assert "6 segments of 1 track" in axes.get_title(loc="left")


def straight(*lasting: float, far: float = 4e6) -> SegmentBatch:
    """One vessel on a straight way of two segments, with a report from far away between them; how long each segment lasts."""
    ends = [0.0, 5000.0, far, 5100.0, 9000.0]
    slopes = [(b - a) / seconds for a, b, seconds in zip(ends, ends[1:], lasting, strict=False)]
    return SegmentBatch.from_arrays(
        StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "linear"}),
        keys={"id": [1] * 4},
        ref=[round(SECOND * sum(lasting[:i])) for i in range(4)],
        lo=0.0,
        hi=np.array(lasting),
        models={"x": np.column_stack([ends[:4], slopes]), "y": np.zeros((4, 1))},
        err={"x": 1.0, "y": 1.0},
    )


def test_a_wild_position_among_few_segments_is_reported_by_how_short_it_lasts() -> None:
    found = outside_bulk(straight(900.0, 10.0, 10.0, 800.0))
    assert (found.segments, found.keys, found.across) == (2, [1], (0.0, 9000.0))
    assert not outside_bulk(straight(900.0, 100.0, 100.0, 800.0)).segments  # a journey: it takes its time
    assert not outside_bulk(straight(900.0, 10.0, 10.0, 800.0, far=2e4)).segments


def test_the_whole_map_is_drawn_when_asked() -> None:
    (axes,) = plot_tracks(crowd((4e6, -9e6)), whole=True).axes
    assert axes.get_xlim()[1] > 4000
    assert axes.get_title(loc="left") == "40 tracks"


def test_a_map_that_grows_without_a_gap_is_drawn_whole() -> None:
    """A voyage that leads far away is no wild position, nor is a second harbour that many lie in."""
    n = 200
    at = np.r_[np.linspace(0.0, 1000.0, n - 20), 1000.0 * 1.4 ** np.arange(20)]
    far = np.r_[np.linspace(0.0, 1000.0, n - 20), 9e6 + np.arange(20.0)]
    for place in (at, far):
        batch = SegmentBatch.from_arrays(
            StreamSchema.of(key={"id": "int64"}, time="t", modelled={"x": "linear", "y": "linear"}),
            keys={"id": np.arange(n)},
            ref=np.zeros(n, np.int64),
            lo=0.0,
            hi=1.0,
            models={"x": place[:, None], "y": np.zeros((n, 1))},
            err={"x": 0.0, "y": 0.0},
        )
        assert not outside_bulk(batch).segments


def test_few_or_standing_tracks_are_drawn_whole() -> None:
    assert not outside_bulk(fleet()).segments
    assert not outside_bulk(fleet().filter(np.zeros(4, dtype=bool))).segments


def test_episodes_are_drawn_along_the_track_and_areas_outlined() -> None:
    stretches = [Episode(1, 100 * SECOND, 200 * SECOND), Episode(2, 0, 400 * SECOND)]
    square = Area(shapely.to_wkb(shapely.MultiPolygon([shapely.box(0, 0, 1000, 500)])))
    figure = plot_tracks(fleet(), episodes=stretches, area=square)
    (axes,) = figure.axes
    drawn = [path.vertices for path in axes.collections[1].get_paths()]
    np.testing.assert_allclose([one[0] for one in drawn], [[0.5, 0.0], [0.0, 0.1]])
    np.testing.assert_allclose([one[1] for one in drawn], [[1.0, 0.0], [2.0, 0.1]])
    outline = axes.get_lines()[-1].get_xydata()
    assert {tuple(corner) for corner in np.round(outline, 9)} == {
        (0.0, 0.0),
        (0.0, 0.5),
        (1.0, 0.0),
        (1.0, 0.5),
    }
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["2 episodes", "area"]
