"""Predictions and followers that go on from what was kept of them, as after a restart: through bytes, and checked when read."""

from __future__ import annotations

from typing import Any

from pulse.runtime.accents.follower import Follower
from pulse.runtime.predict import state_schema as forms
from pulse.runtime.predict.engine import Prediction
from pulse.runtime.predict.state_codec import pack_state, unpack_state


def restarted(prediction: Prediction) -> Prediction:
    """A prediction as it is after a restart."""
    kept, _ = unpack_state(
        forms.PREDICTING, pack_state(forms.PREDICTING, (forms.snapshot_prediction(prediction), None))
    )
    return forms.restore_prediction(prediction.predictor, kept)


def restarted_run(run: Any) -> Any:
    """A run of a prediction and of what follows its accents, after a restart; what it has said stays said."""
    run.prediction = restarted(run.prediction)
    kept = unpack_state(forms.ACCENTS, pack_state(forms.ACCENTS, run.follower.state))
    forms.check_accents(run.predictor, kept if run.predictor.accent_options else None)
    run.follower = Follower(run.predictor, *kept)
    return run


def size_of(run: Any) -> int:
    """Bytes that are kept of accents, before they are compressed."""
    from pulse.core.encoding.codec import encode

    return len(encode(forms.ACCENTS, run.follower.state))
