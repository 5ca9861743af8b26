"""Keep the history of running streams and apply revisions to it."""
