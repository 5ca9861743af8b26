"""Stream elements besides data: revisions of recorded tuples (semantics 7) and accents (8)."""
