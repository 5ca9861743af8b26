"""Format what commands print: progress, tables, reports."""
