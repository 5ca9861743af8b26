"""Define ``pulse plot``: draw models, answers, sweeps, lineage and tracks, as files or as a page; one command a file."""

from __future__ import annotations

import typer

from pulse.commands.plot.lineage import plot_lineage
from pulse.commands.plot.model import plot_model
from pulse.commands.plot.query import plot_query
from pulse.commands.plot.sweep import plot_sweep
from pulse.commands.plot.tracks import plot_tracks

plot = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Draw models, answers, sweeps, lineage and tracks.

    Pictures are .png, .svg or .pdf; .html is a page of its own that any browser shows, also on a phone.

    \b
    Examples:
      pulse plot model prices --key AAPL --tuples ticks.parquet --out model.png
      pulse plot query --stream S=prices @macd.sql --param short=10 --param long=60 --possible --out macd.svg
      pulse plot sweep --stream S=prices @macd.sql --param short=2:20:2 --param long=30:300:30 --out macd.html
      pulse plot lineage high.parquet --row 0 --model S=prices --out causes.png
      pulse plot tracks vessels --out map.png
    """,
)

plot.command("model")(plot_model)
plot.command("query")(plot_query)
plot.command("sweep")(plot_sweep)
plot.command("lineage")(plot_lineage)
plot.command("tracks")(plot_tracks)
