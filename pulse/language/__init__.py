"""SQL text to logical plans: a sqlglot dialect with windows on streams, MODEL, ERROR WITHIN and SAMPLE EVERY (semantics 3.1)."""
