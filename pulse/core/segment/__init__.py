"""Hold batches of segments: columns, rules, ids, order, updates."""
