from __future__ import annotations

from pulse.core.elements import ElementKind


def test_codes_and_weights():
    assert {kind.value: kind.weight for kind in ElementKind} == {"+I": 1, "-D": -1, "-U": -1, "+U": 1}
