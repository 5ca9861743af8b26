"""A line through the newest tuples of a key, by least squares with weights that fade by the tuple (semantics 6.1).

With ``u`` the seconds and ``y`` the value relative to the newest tuple, a key's row holds ``s0, s1, s2 = sum(w u**j)`` and, per
attribute, ``y0, y1 = sum(w y u**j)``. A new tuple moves the origin to itself, fades the weights and adds one point at the
origin: a few products whatever the history, and no cancellation against an absolute time or value.
"""

import numpy as np

from pulse.kernels._jit import step
from pulse.kernels.validate.key_state import PER_ATTRIBUTE, SEEN, Y0, Y1

_BREAK = 0.25  # a line that misses a tuple by this share of the bound is given up


@step
def forget(real, g, n, k):
    """Let the fading line begin with the newest tuple alone."""
    s = n * (k + PER_ATTRIBUTE)
    real[g, s], real[g, s + 1], real[g, s + 2] = 1.0, 0.0, 0.0
    for a in range(n):
        real[g, n * k + a + Y0 * n], real[g, n * k + a + Y1 * n] = 0.0, 0.0


@step
def remember(real, g, rules, v, i, k, seconds, keep):
    """Take tuple ``i`` into the key's fading line: moments of time and value about the newest tuple (``y``: less its value).

    ``seconds`` since the tuple before; negative: begin anew with this one.
    """
    n = rules.shape[0]
    s = n * (k + PER_ATTRIBUTE)
    if seconds < 0.0:
        forget(real, g, n, k)
        return
    for a in range(n):
        base = n * k + a
        y0, y1 = base + Y0 * n, base + Y1 * n
        move = v[a, i] - real[g, base + SEEN * n]
        zero = real[g, y0] - move * real[g, s]
        one = real[g, y1] - move * real[g, s + 1]
        real[g, y0], real[g, y1] = keep * zero, keep * (one - seconds * zero)
    s0, s1, s2 = real[g, s], real[g, s + 1], real[g, s + 2]
    real[g, s] = keep * s0 + 1.0
    real[g, s + 1] = keep * (s1 - seconds * s0)
    real[g, s + 2] = keep * (s2 - 2.0 * seconds * s1 + seconds * seconds * s0)


@step
def line(real, g, n, k, a):
    """Least squares: how far the line at the newest tuple lies from its value, and the slope. (0, 0) without any width."""
    s, base = n * (k + PER_ATTRIBUTE), n * k + a
    s0, s1, s2 = real[g, s], real[g, s + 1], real[g, s + 2]
    y0, y1 = real[g, base + Y0 * n], real[g, base + Y1 * n]
    spread = s0 * s2 - s1 * s1
    if not spread > 1e-9 * s0 * s2:
        return 0.0, 0.0
    slope = (s0 * y1 - s1 * y0) / spread
    offset = (y0 - slope * s1) / s0
    if not (np.isfinite(slope) and np.isfinite(offset)):
        return 0.0, 0.0
    return offset, slope


@step
def broken(real, g, v, i, n, k, seconds):
    """Whether the fading line, gone on for some seconds, misses tuple ``i`` by more than a share of what the model may."""
    for a in range(n):
        base = n * k + a
        offset, slope = line(real, g, n, k, a)
        expected = real[g, base + SEEN * n] + offset + slope * seconds
        if not abs(v[a, i] - expected) <= _BREAK * real[g, base]:
            return True
    return False
