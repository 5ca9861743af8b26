"""The tuples behind a stored model: history, sources, units."""
