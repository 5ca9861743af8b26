"""Define segments, their schema, time, bounds, stream elements and errors: the base of every other layer.

Layers, each importing strictly lower ones::

    segment.batch
        |
    segment.columns  segment.rules  segment.updates  segment.ppoly  segment.ids
        |                  |               |               |            |
        |            segment.order ------------------------            keys
        |                  |                                            |
        |              instants                         schema   segment.coefficients
        |                                                 |             |
        +-------------------------------------------- arrow_types       |
                                                          |             |
        bounds  elements                                time            |
            \\________\\__________________________________errors____arrays_/
"""
