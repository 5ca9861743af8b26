"""Stored models: directories of Parquet with a manifest (semantics 5)."""
