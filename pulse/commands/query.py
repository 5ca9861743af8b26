"""Implement ``pulse query``: answer SQL with tuples, segments or episodes and their error."""

from __future__ import annotations

import json
import time as clock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands import completing, options

if TYPE_CHECKING:
    import pyarrow as pa

    from pulse.runtime.results.answer import Answer
    from pulse.runtime.results.answer_diff import RevisedAnswer
    from pulse.session import Session

Out = Annotated[
    str | None,
    typer.Option(
        help="Write to a .parquet, .csv or (--geo) .geojson file, or to a folder (ending in /); without it, rows are shown."
    ),
]
Save = Annotated[
    str | None,
    typer.Option(
        help="Save the answer as a stored model in this folder, to be queried as --stream S=FOLDER."
    ),
]
Segments = Annotated[
    bool, typer.Option("--segments", help="Return result segments instead of sampled tuples.")
]
Episodes = Annotated[
    bool,
    typer.Option("--episodes", help="Return one row for each stretch of time in which the answer holds."),
]
Geo = Annotated[
    bool,
    typer.Option(
        "--geo", help="Add positions in degrees (lon, lat, geometry); --out may then end in .geojson."
    ),
]
Lineage = Annotated[
    bool, typer.Option("--lineage", help="With --segments: add the inputs that caused each segment.")
]
RevisedFrom = Annotated[
    list[str] | None,
    typer.Option(
        help="Return only the changes of the results since this version (or STREAM=VERSION, or a time)."
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        help="With --revised-from --segments: revise upstream, downstream or adaptive, and print statistics.",
        autocompletion=completing.words("upstream", "downstream", "adaptive"),
    ),
]
Results = Annotated[
    str | None,
    typer.Option(help="With --revised-from: patch the old results in this file (written with --segments)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print rows as JSON lines; with --out, the summary.")]


def query(
    query: options.Query,
    stream: options.Streams,
    param: options.Parameters = None,
    out: Out = None,
    save: Save = None,
    segments: Segments = False,
    episodes: Episodes = False,
    geo: Geo = False,
    possible: options.Possible = False,
    lineage: Lineage = False,
    as_of: options.AsOf = None,
    version: options.Version = None,
    accents: options.Accents = None,
    policy: options.Policy = None,
    accumulate: options.Accumulate = True,
    revised_from: RevisedFrom = None,
    mode: Mode = None,
    results: Results = None,
    zone: options.ShownZone = None,
    limit: options.Limit = options.SHOWN,
    overwrite: options.Overwrite = False,
    engine: options.Engine = "spark",
    master: options.Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Answer a query on stored models; every answer carries the error it can have.

    \b
    Examples:
      pulse query --stream S=prices "select symbol, price from S where price > 100 sample every 1 s"
      pulse query --stream S=prices @macd.sql --out out.parquet
      pulse query --stream S=prices @macd.sql --param short=10 --param long=60 --out out.parquet
      pulse query --stream S=prices "select * from S where price > 100" --segments --out out.parquet
      pulse query --stream S=prices "select symbol, price from S where price > 100" --episodes
      pulse query --stream S=prices "select symbol, price from S where price > 100" --save high
      pulse query --stream S=prices @macd.sql --zone America/New_York
      pulse query --stream S=prices @macd.sql --as-of "2018-01-03 10:00"
      pulse query --stream S=raw @macd.sql --accents S=splits.log
      pulse query --stream S=prices @macd.sql --revised-from 3 --out revisions.parquet
    """
    from pulse.commands.output.progress import Bar
    from pulse.commands.starting import session as started

    begin = clock.perf_counter()
    _check_form(segments, episodes, lineage, revised_from is not None)
    _check_geo(geo, segments, revised_from is not None)
    forms = {"--out": out, "--segments": segments, "--episodes": episodes, "--geo": geo, "--lineage": lineage}
    _check_save(save, forms | {"--revised-from": revised_from, "--zone": zone})
    options_given: dict[str, Any] = {
        "streams": options.streams(stream),
        "parameters": options.parameters(param),
        "possible": possible,
        "as_of": as_of,
        "version": version,
        "accents": options.accents(accents),
        "evolution": options.policies(policy),
        "accumulate": accumulate,
    }
    since, revised = options.since(revised_from), {"mode": mode, "results": results}
    with started(master, engine) as session:
        answer = _answer(session, options.query_text(query), options_given, since, revised, lineage)
        if save is not None:
            _save(answer, save, overwrite, as_json, begin)
            return
        if geo:
            # Not before the session, which hides pandas from Arrow.
            from pulse.runtime.results.answer import Answer

            assert isinstance(answer, Answer)
            answer = answer.geo()
        answer = answer.in_zone(zone)
        if out is None:
            _show(answer, segments, episodes, limit, as_json)
            _print_notes(answer)
            return
        with Bar(quiet=as_json) as bar:
            rows = answer.write(
                out, tuples=not segments, episodes=episodes, overwrite=overwrite, progress=bar.step
            )
    seconds = clock.perf_counter() - begin
    _print_notes(answer)
    if as_json:
        typer.echo(json.dumps({"out": out, "rows": rows, "seconds": seconds, "notes": answer.notes}))
    else:
        form = "episodes" if episodes else "segments" if segments else "tuples"
        what = form if since is None else "revisions"
        typer.echo(f"{'' if rows is None else f'{rows:,} '}{what} written to {out} in {seconds:.1f} s")


def _check_form(segments: bool, episodes: bool, lineage: bool, revised: bool) -> None:
    """Reject combinations of forms of the answer."""
    if episodes and (segments or lineage):
        other = "--segments" if segments else "--lineage"
        raise options.OptionError(f"--episodes does not go with {other}: choose one form of the answer")
    if episodes and revised:
        raise options.OptionError(
            "--episodes does not go with --revised-from: compare --segments, or the episodes of two --version"
        )


def _check_geo(geo: bool, segments: bool, revised: bool) -> None:
    """Reject positions in degrees of forms that have none."""
    if geo and (segments or revised):
        other = "--segments, whose models are in the plane" if segments else "--revised-from"
        raise options.OptionError(f"--geo does not go with {other}: ask for tuples or --episodes")


def _check_save(save: str | None, forms: dict[str, Any]) -> None:
    """Reject forms of rows for an answer that is saved as a model."""
    other = next((name for name, given in forms.items() if given), None)
    if save is not None and other is not None:
        raise options.OptionError(
            f"--save does not go with {other}: a saved answer is a model; query it to see rows"
        )


def _save(answer: Answer | RevisedAnswer, save: str, overwrite: bool, as_json: bool, begin: float) -> None:
    """Save the answer as a model and print its size."""
    from pulse.commands.output.progress import Bar
    from pulse.runtime.results.answer import Answer

    assert isinstance(answer, Answer)
    with Bar(quiet=as_json) as bar:
        model = answer.save(save, overwrite=overwrite, progress=bar.step)
    seconds, count = clock.perf_counter() - begin, len(model)
    _print_notes(answer)
    if as_json:
        typer.echo(json.dumps({"saved": save, "segments": count, "seconds": seconds, "notes": answer.notes}))
    else:
        typer.echo(
            f"{count:,} segments saved in {save} in {seconds:.1f} s; query them with --stream S={save}"
        )


def _answer(
    session: Session,
    text: str,
    options_given: dict[str, Any],
    since: Any,
    revised: dict[str, Any],
    lineage: bool,
) -> Answer | RevisedAnswer:
    """Return the answer, or with ``since`` its changes."""

    if since is None:
        if any(one is not None for one in revised.values()):
            raise options.OptionError(
                "--mode and --results go with --revised-from: name the version to compare with"
            )
        return session.sql(text, lineage=lineage, **options_given)
    if lineage:
        raise options.OptionError("--lineage does not go with --revised-from: use it with --version")
    return session.revised(text, since, **revised, **options_given)


def _print_notes(answer: Answer | RevisedAnswer) -> None:
    """Print the limits of the answer, and how revisions propagated if a mode was chosen; on stderr, not among the rows."""
    for note in answer.notes:
        typer.echo(f"note: {note}", err=True)
    report = getattr(answer, "report", None)
    if report is not None:
        typer.echo(str(report), err=True)


def _show(answer: Answer | RevisedAnswer, segments: bool, episodes: bool, limit: int, as_json: bool) -> None:
    """Print the first rows; for a query that ends at an accent, the rows before it, and then its error."""
    from pulse.commands.output.progress import Bar
    from pulse.runtime.accents.query_units import QueryAbortedError

    try:
        with Bar(quiet=as_json):
            shown = answer.head(limit, tuples=not segments, episodes=episodes)
    except QueryAbortedError as e:
        for line in _lines(e.emitted, False, limit, as_json):
            typer.echo(line)
        raise
    for line in _lines(*shown, limit, as_json):
        typer.echo(line)


def _lines(rows: pa.Table, more: bool, limit: int, as_json: bool) -> list[str]:
    """Format rows as a table, or as JSON lines, without geometries."""
    rows = rows.drop_columns([one.name for one in rows.schema if one.type == "binary"])
    if as_json:
        return [json.dumps(row, default=str) for row in rows.to_pylist()]
    from pulse.commands.output.table import lines

    return [
        *lines(rows),
        f"… more rows; --limit {2 * limit} shows more, --out keeps all" if more else f"{rows.num_rows} rows",
    ]
