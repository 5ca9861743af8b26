"""From the JSON of a run to what is read: rows, crossovers, a Markdown table, one HTML page, a comparison with another run.

``python -m pulse.benchmarks.report RUN.json [--compare OLD.json] [--out FOLDER]``
"""
