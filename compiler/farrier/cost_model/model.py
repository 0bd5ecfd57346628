"""Boosted trees over the analytic model's residual.

The model predicts log(measured seconds / analytic seconds), so with nothing measured it is the
analytic ranking, and every measurement bends that ranking where it was wrong. One model serves all
tasks: features mean the same everywhere (`farrier.space.features`), and each task's constant factor
is taken out before training.

A model may stand on a **base**, which others' measurements trained. What the base predicts takes
the place of the analytic seconds; it stays as it is, and few measurements here bend it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.space import Features

Floats = npt.NDArray[np.float64]

ROUNDS = 60
FAILURE = 4.0  # a candidate that failed counts as this many times the slowest that ran
ENOUGH = 8  # measurements before trees say anything

_PARAMETERS = {
    "objective": "reg:squarederror",
    "max_depth": 6,
    "eta": 0.15,
    "min_child_weight": 0.5,
    "lambda": 1.0,
    "subsample": 1.0,
    "tree_method": "hist",
    "base_score": 0.0,
}


@dataclasses.dataclass(slots=True)
class _Samples:
    """What was measured of one task."""

    features: Features
    prior: Floats
    seconds: Floats


class CostModel:
    """Predicts seconds from features and the analytic prior; deterministic by `seed`."""

    def __init__(self, seed: int = 0, threads: int = 1, base: CostModel | None = None) -> None:
        """`threads` bounds the cores that training and prediction use."""
        self._base = base
        self._parameters = {**_PARAMETERS, "seed": seed, "nthread": threads}
        self._samples: dict[str, _Samples] = {}
        self._factors: dict[str, float] = {}  # by task: log of measured over predicted, typically
        self._names: tuple[str, ...] = ()  # of what the trees look at
        self._booster: Any = None

    def prior(self, features: Features, analytic: Floats) -> Floats:
        """Seconds of candidates, [n], before anything is measured here: by the base, or the
        `analytic` ones without a base. All other methods take these as `prior`."""
        return analytic if self._base is None else self._base.predict("", features, analytic)

    def add(self, task: str, features: Features, prior: Floats, seconds: Floats) -> None:
        """Adds measurements of one task: `features`, `prior` and `seconds` of n candidates; one
        that failed has infinite seconds."""
        known = self._samples.get(task)
        if known is None:
            self._samples[task] = _Samples(features, prior, seconds)
            return
        known.features = Features.joined([known.features, features])
        known.prior = np.concatenate([known.prior, prior])
        known.seconds = np.concatenate([known.seconds, seconds])

    def fit(self) -> None:
        """Trains anew on all that was added; does nothing before `ENOUGH` measurements."""
        if sum(len(s.prior) for s in self._samples.values()) < ENOUGH:
            return
        import xgboost

        features, targets, weights = [], [], []
        for task, samples in sorted(self._samples.items()):
            residual, weight, factor = _targets(samples)
            self._factors[task] = factor
            features.append(samples.features)
            targets.append(residual)
            weights.append(weight)
        known = Features.joined(features)
        self._names = known.names
        matrix = xgboost.DMatrix(
            known.table,
            label=np.concatenate(targets),
            weight=np.concatenate(weights),
            nthread=self._parameters["nthread"],
        )
        self._booster = xgboost.train(self._parameters, matrix, num_boost_round=ROUNDS)

    def predict(self, task: str, features: Features, prior: Floats) -> Floats:
        """Seconds of each candidate, [n]; the prior itself while nothing is known."""
        if self._booster is None or not len(prior):
            return prior
        import xgboost

        table = features.under(self._names)
        matrix = xgboost.DMatrix(table, nthread=self._parameters["nthread"])
        residual = self._booster.predict(matrix).astype(np.float64)
        predicted: Floats = prior * np.exp(residual + self._factors.get(task, 0.0))
        return predicted

    def save(self) -> bytes:
        """The trained model as JSON, without the measurements and the base."""
        trees = None
        if self._booster is not None:
            trees = base64.b64encode(self._booster.save_raw("json")).decode()
        body = {
            "parameters": self._parameters,
            "factors": self._factors,
            "features": self._names,
            "trees": trees,
        }
        return json.dumps(body, sort_keys=True).encode()

    @classmethod
    def load(cls, data: bytes) -> CostModel:
        """The inverse of `save`. Raises ValueError for bytes that are no saved model."""
        try:
            body = json.loads(data)
            model = cls(int(body["parameters"]["seed"]), int(body["parameters"]["nthread"]))
            model._factors = {str(task): float(f) for task, f in body["factors"].items()}
            model._names = tuple(map(str, body["features"]))
            trees = None if body["trees"] is None else base64.b64decode(body["trees"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a saved cost model: {error!r}") from error
        if trees is not None:
            import xgboost

            try:
                model._booster = xgboost.Booster(model._parameters, model_file=bytearray(trees))
            except xgboost.core.XGBoostError as error:
                raise ValueError(f"not a saved cost model: {error}") from error
        return model


def _targets(samples: _Samples) -> tuple[Floats, Floats, float]:
    """Residuals around the task's typical one, weights that favour fast candidates, and that
    typical residual: the log of measured over analytic seconds."""
    ran = np.isfinite(samples.seconds)
    if not ran.any():
        return np.full(len(ran), np.log(FAILURE)), np.ones(len(ran)), 0.0
    residual = np.log(np.where(ran, samples.seconds, 1.0) / samples.prior)
    factor = float(np.median(residual[ran]))
    best, worst = samples.seconds[ran].min(), samples.seconds[ran].max()
    seconds = np.where(ran, samples.seconds, FAILURE * worst)
    return np.log(seconds / samples.prior) - factor, best / seconds + 0.05, factor
