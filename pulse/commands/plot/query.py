"""Implement ``pulse plot query``: draw an answer with its error and its certainty."""

from __future__ import annotations

import time as clock
from typing import Annotated, Any

import typer

from pulse.commands import options
from pulse.commands.plot import options as given


def plot_query(
    query: options.Query,
    stream: options.Streams,
    out: given.Out,
    param: options.Parameters = None,
    attribute: given.Attribute = None,
    key: given.Key = None,
    keys: given.Keys = 3,
    segments: Annotated[
        bool, typer.Option("--segments", help="Draw segments instead of sampled tuples.")
    ] = False,
    possible: options.Possible = False,
    as_of: options.AsOf = None,
    version: options.Version = None,
    accents: options.Accents = None,
    policy: options.Policy = None,
    accumulate: options.Accumulate = True,
    width: given.Width = 9.0,
    overwrite: options.Overwrite = False,
    engine: options.Engine = "spark",
    master: options.Master = "local[*]",
    as_json: options.JsonSummary = False,
) -> None:
    """Draw the answer to a query: values with the error they can have, and certain, likely and possible ranges.

    \b
    Examples:
      pulse plot query --stream S=prices @macd.sql --param short=10 --param long=60 --out macd.png
      pulse plot query --stream S=prices @macd.sql --key AAPL --possible --out macd.html
      pulse plot query --stream S=prices "select symbol, price from S where price > 100" --segments --out high.svg
    """
    from pulse.commands.output.progress import Bar
    from pulse.commands.starting import session as started
    from pulse.plot import check_picture

    begin = clock.perf_counter()
    check_picture(out, overwrite=overwrite, pages=True)
    with started(master, engine) as session, Bar(quiet=as_json):
        answer = session.sql(
            options.query_text(query),
            streams=options.streams(stream),
            parameters=options.parameters(param),
            possible=possible,
            as_of=as_of,
            version=version,
            accents=options.accents(accents),
            evolution=options.policies(policy),
            accumulate=accumulate,
        )
        found: Any = answer.segments() if segments or answer.query.rate is None else answer.tuples()
        table = found if hasattr(found, "column_names") else found.toArrow()
    for note in answer.notes:
        typer.echo(f"note: {note}", err=True)
    table = given.rows_of_key(table, key, answer.query.plan.columns.key_names)
    drawing = _drawing(answer, table, options.parameters(param), attribute, keys)
    given.write_picture(drawing, out, width, begin=begin, as_json=as_json)


def _drawing(
    answer: Any, table: Any, parameters: dict[str, Any], attribute: str | None, keys: int
) -> given.Drawing:
    from pulse.plot import Code, Table, plot_answer

    columns, rate = answer.query.plan.columns, answer.query.rate
    certainty = table.column("certainty").to_pylist()
    counts = {name: certainty.count(name) for name in ("certain", "likely", "possible") if name in certainty}
    return given.Drawing(
        lambda inches: plot_answer(
            table,
            modelled=columns.modelled,
            key=columns.key_names,
            time=columns.time,
            attribute=attribute,
            rate=rate,
            keys=keys,
            width=inches,
        ),
        title="Answer",
        alt=f"The answer over time with its error and its certainty: {table.num_rows:,} rows",
        caption="The band is the error that each value can have; the ground shows how certain each range is: where a column of "
        "the picture holds several, their shares of its time are stacked.",
        blocks=[
            Code(answer.query.text),
            Table.of(["certainty", "rows"], list(counts.items()), grouped=["rows"]),
        ],
        facts={
            "query": answer.query.text,
            "parameters": parameters,
            "rows": table.num_rows,
            "certainty": counts,
            "largest_error": {name: _largest(table, f"{name}_err") for name in columns.modelled},
            **_span(table, columns.time),
        },
    )


def _largest(table: Any, name: str) -> float | None:
    import pyarrow.compute as pc

    found = pc.max(table.column(name)).as_py() if name in table.column_names else None
    return None if found is None else float(found)


def _span(table: Any, time: str) -> dict[str, str | None]:
    """Return the first and last instant of the rows: of tuples, or of ranges of segments."""
    from pulse.core.time import to_microseconds

    if time in table.column_names:
        at = to_microseconds(table.column(time))
        return given.span(at, at)
    ref = to_microseconds(table.column("ref"))
    lo, hi = (table.column(name).to_numpy() for name in ("lo", "hi"))
    return given.span(ref + lo * 1e6, ref + hi * 1e6)
