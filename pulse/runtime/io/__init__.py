"""Read tables that users pass in, and write results to files."""
