"""Draw pictures with matplotlib (the extra ``plot``), which is loaded when the first one is drawn.

::

    segments, tuples, tables ──curves: exact, or thinned to columns──> model answer sweep lineage tracks … ──> Figure
                                                                                                         └──> page (HTML)

The functions take data: models as segments, answers as tables. A stored model, an answer and a sweep have a method ``plot`` that
calls them.
"""

from __future__ import annotations

from pulse.plot.answer import plot_answer as plot_answer
from pulse.plot.errors import PlotError as PlotError
from pulse.plot.lineage import plot_lineage as plot_lineage
from pulse.plot.model import plot_model as plot_model
from pulse.plot.page import Code as Code
from pulse.plot.page import Picture as Picture
from pulse.plot.page import Section as Section
from pulse.plot.page import page as page
from pulse.plot.picture import both_widths as both_widths
from pulse.plot.picture import check_picture as check_picture
from pulse.plot.picture import save as save
from pulse.plot.picture import write_whole as write_whole
from pulse.plot.prediction import Foretold as Foretold
from pulse.plot.prediction import plot_prediction as plot_prediction
from pulse.plot.revised import plot_revised as plot_revised
from pulse.plot.sweep import parameters_of as parameters_of
from pulse.plot.sweep import plot_sweep as plot_sweep
from pulse.plot.table import Table as Table
from pulse.plot.together import Episode as Episode
from pulse.plot.together import Together as Together
from pulse.plot.together import episodes as episodes
from pulse.plot.together import together as together
from pulse.plot.tracks import plot_tracks as plot_tracks
