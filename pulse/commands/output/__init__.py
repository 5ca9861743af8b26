"""What commands print: progress, tables, reports."""
