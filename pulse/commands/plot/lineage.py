"""Implement ``pulse plot lineage``: draw a result with the input segments that caused it."""

from __future__ import annotations

import time as clock
from typing import Annotated, Any

import typer

from pulse.commands import options
from pulse.commands.plot import options as given

_MOST_KEYS = 8  # at most so many keys of a model are read for the causes of one result


def plot_lineage(
    results: options.WithLineage,
    out: given.Out,
    row: Annotated[int, typer.Option(help="Draw the causes of this result, counted from 0.")] = 0,
    attribute: given.Attribute = None,
    model: Annotated[
        list[str] | None, typer.Option(help="NAME=DIR: draw the curves of this model, which holds causes.")
    ] = None,
    width: given.Width = 9.0,
    overwrite: options.Overwrite = False,
    as_json: options.JsonSummary = False,
) -> None:
    """Draw a result with the input segments that caused it.

    \b
    Examples:
      pulse query --stream S=prices "select * from S where price > 100" --segments --lineage --out high.parquet
      pulse plot lineage high.parquet --row 0 --out causes.png
      pulse plot lineage high.parquet --row 0 --model S=prices --out causes.html
    """
    from pulse.commands.starting import leave_pandas_out
    from pulse.plot import Table, check_picture, plot_lineage
    from pulse.store.model import Model
    from pulse.validation.lineage_queries import causes

    begin = clock.perf_counter()
    leave_pandas_out()
    check_picture(out, overwrite=overwrite, pages=True)
    table = given.read_results(results)
    behind = causes(table, row)
    inputs = {name: _caused(Model(path), behind) for name, path in options.streams(model).items()}
    modelled = [name for name in table.column_names if f"{name}_err" in table.column_names]
    shown = table.slice(row % table.num_rows, 1)
    count = len(set(behind.column("key").to_pylist()))
    few = f" Curves are drawn of {_MOST_KEYS} of its {count:,} keys." if inputs and count > _MOST_KEYS else ""
    listed = [[one["key"], one["segment_id"], one["ref"], one["lo"], one["hi"]] for one in behind.to_pylist()]
    drawing = given.Drawing(
        lambda inches: plot_lineage(
            shown, behind, modelled=modelled, attribute=attribute, inputs=inputs, width=inches
        ),
        title=f"Causes of result {row}",
        alt=f"A result over time, and below it the {behind.num_rows:,} input segments that caused it",
        caption=f"The result was computed from the red parts.{few}",
        blocks=[Table.of(["key", "segment", "ref", "lo", "hi"], listed[:100])],
        facts={
            "results": str(results),
            "row": row,
            "causes": behind.num_rows,
            "keys": count,
            "error": {name: shown.column(f"{name}_err")[0].as_py() for name in modelled},
            "segments": {name: len(batch) for name, batch in inputs.items()},
        },
    )
    given.write_picture(drawing, out, width, begin=begin, as_json=as_json)


def _caused(model: Any, behind: Any) -> Any:
    """Read the segments of a model around the causes; if the key is one column, only of these keys.

    They are not cut in time: an id is that of a whole segment.
    """
    import numpy as np
    import pyarrow as pa

    from pulse.core.segment.batch import SegmentBatch

    keys, types = dict.fromkeys(behind.column("key").to_pylist()), [type_ for _, type_ in model.schema.key]
    if len(types) == 1 and keys:
        few = [pa.scalar(key).cast(types[0]).as_py() for key in list(keys)[:_MOST_KEYS]]
        batch = SegmentBatch.concat([model.read(key=key) for key in few], at_rest=False).with_ids()
    else:
        batch = model.read().with_ids()
    if not behind.num_rows:
        return batch
    ref = behind.column("ref").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    begin = (ref + behind.column("lo").to_numpy() * 1e6).min()
    end = (ref + behind.column("hi").to_numpy() * 1e6).max()
    margin = max(0.5 * (end - begin), 1e6)
    starts, ends = batch.ref + batch.lo * 1e6, batch.ref + batch.hi * 1e6
    return batch.filter(np.logical_and(ends >= begin - margin, starts <= end + margin))
