"""Effects of accents on a plan: signatures, routes, affine images, traces."""
