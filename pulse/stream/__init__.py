"""What flows besides segments: revisions of what was recorded (semantics 7), as elements of a stream."""
