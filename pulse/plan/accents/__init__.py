"""What accents do to a plan: signatures, routes, affine images, traces."""
