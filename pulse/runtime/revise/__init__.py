"""Apply revisions of tuples to a stored model."""
