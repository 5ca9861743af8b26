"""What flows besides segments: revisions of what was recorded (semantics 7) and accents (8), as elements of a stream."""
