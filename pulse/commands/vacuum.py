"""Implement ``pulse vacuum``: remove superseded files of a stored model, and verify those that stay."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pulse.commands.options import JsonSummary, OptionError, Stored

NOW = "none"


def vacuum(
    model: Stored,
    retain: Annotated[
        str,
        typer.Option(
            help="Keep what was superseded, or written without a commit, within this time: '7 d', '12 h', none."
        ),
    ] = "7 d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check all bytes of the files that stay against their checksums.")
    ] = False,
    as_json: JsonSummary = False,
) -> None:
    """Remove files that no recent commit of a model names: superseded ones, and those of commands that were killed.

    Appends, revisions and fits remove nothing, so that readers of older commits are not disturbed. Versions that are kept
    (pulse revise --keep) stay. Use --retain none only while no other command reads an older version or writes.

    \b
    Examples:
      pulse vacuum prices
      pulse vacuum prices --retain "12 h" --dry-run
      pulse vacuum prices --retain none            make the folder one plain table again
      pulse vacuum prices --verify --json
    """
    from pulse.commands.output.report import size
    from pulse.core.time import parse_duration
    from pulse.store.vacuum import vacuum as remove
    from pulse.store.vacuum import verify_all

    if dry_run and verify:
        raise OptionError("vacuum: --verify and --dry-run exclude each other; choose one of them")
    done = remove(model, retain=0 if retain.strip() == NOW else parse_duration(retain), dry=dry_run)
    verified = verify_all(model) if verify else None
    if as_json:
        facts = {
            "model": str(model),
            "dry_run": dry_run,
            "files": list(done.files),
            "bytes": done.bytes,
            "commits": list(done.commits),
            "verified": verified,
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    what = f"{len(done.files):,} files, {size(done.bytes)}, and {len(done.commits):,} commits of {model}"
    typer.echo(f"would remove {what}" if dry_run else f"removed {what}")
    if verified is not None:
        typer.echo(f"verified {verified:,} files: all are as they were written")
