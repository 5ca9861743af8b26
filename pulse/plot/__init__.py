"""Draw pictures with matplotlib (the extra ``plot``), which is loaded when the first one is drawn.

::

    segments, tuples, tables ──curves: exact, or thinned to columns──> model answer sweep lineage tracks … ──> Figure
                                                                                                         └──> page (HTML)

The functions take data: models as segments, answers as tables. A stored model, an answer and a sweep have a method ``plot`` that
calls them.
"""

from __future__ import annotations

from pulse.plot.answer import plot_answer
from pulse.plot.errors import PlotError
from pulse.plot.lineage import plot_lineage
from pulse.plot.model import plot_model
from pulse.plot.page import Code, Picture, Section, page
from pulse.plot.picture import both_widths, check_picture, save, write_whole
from pulse.plot.prediction import Foretold, plot_prediction
from pulse.plot.revised import plot_revised
from pulse.plot.sweep import parameters_of, plot_sweep
from pulse.plot.table import Table
from pulse.plot.together import Together, together
from pulse.plot.tracks import plot_tracks

__all__ = [
    "Code",
    "Foretold",
    "Picture",
    "PlotError",
    "Section",
    "Table",
    "Together",
    "both_widths",
    "check_picture",
    "page",
    "parameters_of",
    "plot_answer",
    "plot_lineage",
    "plot_model",
    "plot_prediction",
    "plot_revised",
    "plot_sweep",
    "plot_tracks",
    "save",
    "together",
    "write_whole",
]
