"""Predictions and followers that go on from what was kept of them, as after a restart: through bytes, and checked when read."""

from __future__ import annotations

from typing import Any

from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.micro_batch import Place
from pulse.runtime.predict.state_codec import pack_state, unpack_state


def restarted(prediction: Prediction) -> Prediction:
    """A prediction as it is after a restart."""
    again = Prediction(prediction.predictor)
    kept = unpack_state(forms.SINGLE, pack_state(forms.SINGLE, Place.of(prediction, 0).state))
    again.restore(kept)
    return again


def restarted_run(run: Any) -> Any:
    """A run of a prediction and of what follows its accents, after a restart; what it has emitted stays."""
    kept = unpack_state(forms.SINGLE, pack_state(forms.SINGLE, run.place.state))
    run.place = Place.of(Prediction(run.predictor), run.place.lateness, kept)
    return run


def size_of(run: Any) -> int:
    """Bytes that are kept of accents, before they are compressed."""
    from pulse.core.encoding.codec import encode

    return len(encode(forms.ACCENTS, run.place.follower.state))
