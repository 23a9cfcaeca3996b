"""Gradient compression to two bits with a residual (Seide et al., 1-bit SGD, 2014; as in MXNet).

For each element -t, 0 or t is sent, for a threshold t. The difference, the *residual*, is added to the next
gradient of the same key and position in the list of values. So no gradient is lost, only delayed.

    residual  0.0   gradient 0.3, t = 0.5   ->  sent 0,    residual 0.3
    residual  0.3   gradient 0.3            ->  sent 0.5,  residual 0.1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays.functions.elementwise import where
from tracejit.frontend.python import kinds
from tracejit.frontend.recording.location import user_location

kinds.treat_like_users(__name__)


def threshold_of(parameters: Mapping[str, Any]) -> float:
    """Check the parameters of `KVStore.set_gradient_compression` and return the threshold."""
    unknown = sorted(set(parameters) - {"type", "threshold"})
    kind, threshold = parameters.get("type"), parameters.get("threshold", 0.5)
    if unknown or kind != "2bit":
        problem = f"type {kind!r}" if kind != "2bit" else f"parameters {', '.join(unknown)}"
        message = f"set_gradient_compression: {problem}; expected {{'type': '2bit', 'threshold': a number}}"
        raise locate(ArgumentError(message), user_location())
    if not isinstance(threshold, (int, float)) or not threshold > 0:
        message = f"set_gradient_compression: the threshold must be a number above 0, got {threshold!r}"
        raise locate(ArgumentError(message), user_location())
    return float(threshold)


def compressed(gradient: Any, residual: Any, threshold: float) -> Any:
    """Return the compressed gradient to send, and update `residual` in place."""
    residual += gradient
    sent = where(residual >= threshold, threshold, where(residual <= -threshold, -threshold, 0.0))
    sent = sent.astype(gradient.dtype, copy=False)
    residual -= sent
    return sent
