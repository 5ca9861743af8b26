"""Hand out the answer to a query: lazily, as segments, tuples or a difference of versions."""
