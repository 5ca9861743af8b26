"""Define the status codes that kernels return per row, instead of exceptions or NaN.

Zero is success, so ``status.any()`` tests whether a row needs attention.
"""

OK = 0
ZERO_POLYNOMIAL = 1  # identically zero on the range: every instant is a root
NOT_FINITE = 2  # a coefficient, bound or noise level is NaN or infinite
EMPTY_RANGE = 3  # hi < lo: nothing to do
OUT_OF_DOMAIN = 4  # the lifted function is not defined on the whole range (sqrt of a negative …)
NOT_CONVERGED = 5  # the requested bound was not reached within the allowed subdivision
BOUND_MISSED = 7  # done, but a requested bound was missed somewhere; the achieved bound is reported
