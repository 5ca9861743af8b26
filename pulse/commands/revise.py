"""Implement ``pulse revise``: apply corrections, and write the next version of a stored model."""

from __future__ import annotations

import json
import time as clock
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulse.commands import completing, options
from pulse.commands.group import INTERRUPTED

if TYPE_CHECKING:
    from pulse.runtime.revise.driver import Outcome
    from pulse.session import Session


def revise(
    model: options.Stored,
    revisions: Annotated[
        list[str] | None,
        typer.Option(help="Files of revisions to apply: Parquet, CSV, JSON lines, TAQ, AIS."),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(
            help="Kind of revisions: changelog, debezium, taq, ais or late; default detected from the columns.",
            autocompletion=completing.words("changelog", "debezium", "taq", "ais", "late"),
        ),
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(help="Column with the time since when a revision is known; default 'known', t_recv."),
    ] = None,
    time_unit: Annotated[
        str | None,
        typer.Option(
            help="Unit of times that are numbers since 1970: s, ms, us or ns.",
            autocompletion=completing.words("s", "ms", "us", "ns"),
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Retain the previous version, and when each revision became known (AS OF)."
        ),
    ] = False,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Merge all corrections into the model's files, so that any tool can read them."
        ),
    ] = False,
    accents: Annotated[str | None, typer.Option(hidden=True)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the changes, write nothing.")
    ] = False,
    engine: options.Engine = "spark",
    master: options.Master = "local[*]",
    as_json: options.JsonSummary = False,
) -> None:
    """Correct a stored model in place by revisions of its tuples; the change is atomic.

    Only the touched segments are fitted anew; a correction within the certified bound changes nothing. Revisions that match
    no tuple are set aside, with the reason: a deletion of an unrecorded tuple, an old value that does not match,
    a time older than the retained history, values that are not finite, malformed rows.

    \b
    Examples:
      pulse revise prices --revisions corrections.parquet
      pulse revise prices --revisions corrections.csv --known received --keep
      pulse revise prices --revisions trades.parquet --reader taq --dry-run
      pulse revise vessels --revisions ais.parquet --reader ais --known t_recv
      pulse revise vessels --revisions "vessels/_aside/fit-*" --reader late    what the fit set aside as late
      pulse revise prices --revisions events.jsonl --reader debezium --time-unit us --json
      pulse revise prices --merge
    """
    from pulse.commands.starting import session as started
    from pulse.store.accent_log import refuse_accents

    if accents is not None:
        refuse_accents(model, accents)
    if not revisions and not merge:
        raise options.OptionError(
            "revise: --revisions FILE is missing; or use --merge, to merge earlier corrections"
        )
    if merge and dry_run:
        raise options.OptionError("revise: --merge and --dry-run exclude each other; choose one of them")
    try:
        if revisions:
            given = options.names(revisions)
            how = {"keep": keep, "known": known, "reader": reader, "time_unit": time_unit, "dry": dry_run}
            _revise(model, given, how, started(master, engine), merge=merge, as_json=as_json)
        else:
            _merge(model, as_json=as_json)
    except KeyboardInterrupt:
        typer.echo(_interrupted(model), err=True)
        raise typer.Exit(INTERRUPTED) from None


def _revise(
    model: Path,
    revisions: list[str],
    given_options: dict[str, Any],
    session: Session,
    *,
    merge: bool,
    as_json: bool,
) -> None:
    from pulse.commands.output.progress import Bar
    from pulse.store.versions.compact import compact

    begin = clock.perf_counter()
    with session, Bar(quiet=as_json) as bar:
        outcome = session.revise(model, revisions, **given_options, progress=bar.step)
        if merge:
            outcome = replace(outcome, model=compact(model))
    seconds = clock.perf_counter() - begin
    if as_json:
        typer.echo(json.dumps(_facts(outcome, seconds), indent=2))
        return
    for line in lines(outcome):
        typer.echo(line)
    typer.echo(f"{_done(outcome, model)} in {seconds:.1f} s")


def _merge(model: Path, *, as_json: bool) -> None:
    from pulse.commands.output.progress import Bar
    from pulse.store.versions.compact import compact

    begin = clock.perf_counter()
    with Bar(quiet=as_json):
        merged = compact(model)
    facts = {"model": str(model), "version": merged.version, "seconds": clock.perf_counter() - begin}
    typer.echo(json.dumps(facts, indent=2) if as_json else f"merged: version {merged.version} of {model}")


def _interrupted(model: Path) -> str:
    """Name the version in place: versions appear atomically."""
    from pulse.store.errors import StoreError
    from pulse.store.manifest import Manifest

    try:
        return f"pulse: interrupted; version {Manifest.read(model).version} stands"
    except StoreError:
        return "pulse: interrupted"


def _done(outcome: Outcome, model: Path) -> str:
    if outcome.dry:
        return "nothing was written"
    if outcome.version == outcome.before:
        return f"nothing to change; version {outcome.version} of {model} stands"
    return f"version {outcome.version} of {model}"


def _facts(outcome: Outcome, seconds: float) -> dict[str, Any]:
    return {
        "model": str(outcome.model.path),
        "version": outcome.version,
        "version_before": outcome.before,
        "dry_run": outcome.dry,
        "counts": outcome.counts,
        "aside": {
            "reasons": outcome.reasons,
            "examples": list(outcome.examples),
            "where": None if outcome.where is None else str(outcome.where),
        },
        "seconds": seconds,
    }


def lines(outcome: Outcome) -> list[str]:
    """Describe the effect of a revision, for people."""
    counts = outcome.counts
    kinds = f"{counts['inserted']:,} inserted, {counts['deleted']:,} deleted, {counts['replaced']:,} replaced"
    rows = [
        ("revisions", counts["revisions"], kinds),
        ("absorbed", counts["absorbed"], "within the certified bound: nothing moved"),
        ("patched", counts["patched"], "segments moved by what the truth moved by"),
        ("refitted", counts["refitted"], "segments fitted anew"),
        ("segments", counts["segments_old"], f"replaced by {counts['segments_new']:,}"),
        ("set aside", counts["aside"], "" if outcome.where is None else f"with reasons in {outcome.where}"),
    ]
    if counts["repeated"]:
        rows.append(("repeated", counts["repeated"], "equal tuples recorded already"))
    if counts["missed"]:
        rows.append(("missed", counts["missed"], "segments may not keep the requested bound; see their err"))
    rows += [("", n, why) for why, n in sorted(outcome.reasons.items())]
    width = max(len(f"{n:,}") for _, n, _ in rows)
    texts = [f"{name:9}  {n:>{width},}  {text}".rstrip() for name, n, text in rows]
    return [*texts, *(f"{'such as':9}  {text}" for text in outcome.examples[:3])]
