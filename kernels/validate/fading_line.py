"""Fit a line to the newest tuples of a key by least squares with weights that decay per tuple (semantics 6.1).

With ``u`` the seconds and ``y`` the value relative to the newest tuple, a key's row holds ``s0, s1, s2 = sum(w u**j)`` and, per
attribute, ``y0, y1 = sum(w y u**j)``. A new tuple moves the origin to itself, fades the weights and adds one point at the
origin: a few products whatever the history, and no cancellation against an absolute time or value.
"""

import numpy as np

from pulse.kernels._jit import step
from pulse.kernels.validate.key_state import PER_ATTRIBUTE, SEEN, Y0, Y1

_BREAK = 0.25  # a line that misses a tuple by this share of the bound is discarded


@step
def reset_line(floats, g, n, k):
    """Restart the fading line with the newest tuple alone."""
    s = n * (k + PER_ATTRIBUTE)
    floats[g, s], floats[g, s + 1], floats[g, s + 2] = 1.0, 0.0, 0.0
    for a in range(n):
        floats[g, n * k + a + Y0 * n], floats[g, n * k + a + Y1 * n] = 0.0, 0.0


@step
def add_tuple(floats, g, rules, v, i, k, seconds, keep):
    """Add tuple ``i`` to the key's fading line: moments of time and value relative to the newest tuple.

    ``seconds`` since the previous tuple; negative: restart with this one. ``keep``: decay of the weights per tuple.
    """
    n = rules.shape[0]
    s = n * (k + PER_ATTRIBUTE)
    if seconds < 0.0:
        reset_line(floats, g, n, k)
        return
    for a in range(n):
        base = n * k + a
        y0, y1 = base + Y0 * n, base + Y1 * n
        move = v[a, i] - floats[g, base + SEEN * n]
        zero = floats[g, y0] - move * floats[g, s]
        one = floats[g, y1] - move * floats[g, s + 1]
        floats[g, y0], floats[g, y1] = keep * zero, keep * (one - seconds * zero)
    s0, s1, s2 = floats[g, s], floats[g, s + 1], floats[g, s + 2]
    floats[g, s] = keep * s0 + 1.0
    floats[g, s + 1] = keep * (s1 - seconds * s0)
    floats[g, s + 2] = keep * (s2 - 2.0 * seconds * s1 + seconds * seconds * s0)


@step
def line(floats, g, n, k, a):
    """Return the line's offset from the newest tuple's value, and its slope; (0, 0) if the times have no spread."""
    s, base = n * (k + PER_ATTRIBUTE), n * k + a
    s0, s1, s2 = floats[g, s], floats[g, s + 1], floats[g, s + 2]
    y0, y1 = floats[g, base + Y0 * n], floats[g, base + Y1 * n]
    spread = s0 * s2 - s1 * s1
    if not spread > 1e-9 * s0 * s2:
        return 0.0, 0.0
    slope = (s0 * y1 - s1 * y0) / spread
    offset = (y0 - slope * s1) / s0
    if not (np.isfinite(slope) and np.isfinite(offset)):
        return 0.0, 0.0
    return offset, slope


@step
def line_misses(floats, g, v, i, n, k, seconds):
    """Test whether the fading line, extrapolated by ``seconds``, misses tuple ``i`` by more than a share of the model's bound."""
    for a in range(n):
        base = n * k + a
        offset, slope = line(floats, g, n, k, a)
        expected = floats[g, base + SEEN * n] + offset + slope * seconds
        if not abs(v[a, i] - expected) <= _BREAK * floats[g, base]:
            return True
    return False
