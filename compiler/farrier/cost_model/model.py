"""A cost model of boosted trees that corrects the analytic ranking.

The trees start from the analytic ranking, which therefore holds until something is measured, and
every measurement corrects it where it was wrong. They learn which of two candidates of one task is
faster (xgboost's `rank:pairwise`; Burges, "From RankNet to LambdaRank to LambdaMART", 2010),
because neither the size of a task nor the speed of the machine affects how its candidates compare.
One model serves all tasks: features mean the same everywhere (`farrier.space.features`).

A model may have a **base**, trained on measurements of other machines or models. The base's
predictions replace the analytic seconds; the base itself does not change, and a few local
measurements correct it, in few and large steps, because a search retrains such a model often.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.space import Features
from farrier.space.space import Floats

ROUNDS, STEP = 200, 0.1  # The number of trees, and the share of the error that each corrects.
ROUNDS_ON_BASE, STEP_ON_BASE = 50, 0.3
ENOUGH = 8  # The least number of measurements for which trees are trained.
# Times the fastest candidate of its task: slower candidates and those which failed rank equal.
SLOWEST = 3.0
# Grades between the fastest candidate and `SLOWEST`; a grade, 3.6% in time, is more than noise.
GRADES = 31
# The log odds that a candidate is faster rise by this factor times the fall of the log of its
# predicted seconds.
SHARP = 5.0

_PARAMETERS = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 8,
    "max_depth": 6,
    "colsample_bytree": 0.5,
    "lambda": 1.0,
    "tree_method": "hist",
}


@dataclasses.dataclass(slots=True)
class _Samples:
    """The measurements of one task: arrays of features, prior predictions and seconds."""

    features: Features
    prior: Floats
    seconds: Floats


class CostModel:
    """A model that predicts how candidates of a task compare, from features and a prior prediction
    of their seconds; deterministic for a `seed`."""

    def __init__(self, seed: int = 0, threads: int = 1, base: CostModel | None = None) -> None:
        """Create an untrained model; `threads` is the number of cores that training and prediction
        use."""
        self.name = ""  # The name in reports.
        self._base = base
        self._rounds, step = (ROUNDS, STEP) if base is None else (ROUNDS_ON_BASE, STEP_ON_BASE)
        self._parameters = {**_PARAMETERS, "eta": step, "seed": seed, "nthread": threads}
        self._samples: dict[str, _Samples] = {}
        self._names: tuple[str, ...] = ()  # The names of the features that the trees use.
        self._booster: Any = None

    def prior(self, features: Features, analytic: Floats) -> Floats:
        """Return the seconds of n candidates, [n], as predicted before any local measurement: by
        the base or, without a base, the `analytic` seconds. All other methods take these as
        `prior`."""
        return analytic if self._base is None else self._base.predict(features, analytic)

    def add(self, task: str, features: Features, prior: Floats, seconds: Floats) -> None:
        """Add measurements of n candidates of one task: `features`, `prior` and `seconds`, which
        are infinite for a candidate that failed."""
        earlier = self._samples.get(task)
        if earlier is None:
            self._samples[task] = _Samples(features, prior, seconds)
            return
        earlier.features = Features.joined([earlier.features, features])
        earlier.prior = np.concatenate([earlier.prior, prior])
        earlier.seconds = np.concatenate([earlier.seconds, seconds])

    def fit(self) -> None:
        """Retrain the trees on all added measurements; do nothing while there are fewer than
        `ENOUGH`."""
        if sum(len(s.prior) for s in self._samples.values()) < ENOUGH:
            return
        import xgboost

        each = [samples for _, samples in sorted(self._samples.items())]
        features = Features.joined([samples.features for samples in each])
        self._names = features.names
        matrix = self._matrix(features, np.concatenate([samples.prior for samples in each]))
        matrix.set_info(
            label=np.concatenate([_grades(samples.seconds) for samples in each]),
            qid=np.repeat(np.arange(len(each)), [len(samples.prior) for samples in each]),
        )
        self._booster = xgboost.train(self._parameters, matrix, num_boost_round=self._rounds)

    def predict(self, features: Features, prior: Floats) -> Floats:
        """Return the predicted seconds of each candidate, [n], up to a factor common to the task;
        the prior itself before `fit` has trained."""
        if self._booster is None or not len(prior):
            return prior
        odds = self._booster.predict(self._matrix(features, prior)).astype(np.float64)
        predicted: Floats = np.exp(-odds / SHARP)
        return predicted

    def _matrix(self, features: Features, prior: Floats) -> Any:
        """Return the input of xgboost: the table of features, and the initial margins from the
        prior."""
        import xgboost

        matrix = xgboost.DMatrix(features.under(self._names), nthread=self._parameters["nthread"])
        matrix.set_base_margin(-SHARP * np.log(prior))
        return matrix

    def save(self) -> bytes:
        """Return the trained model as JSON, without the measurements and the base."""
        trees = None if self._booster is None else json.loads(self._booster.save_raw("json"))
        body = {
            "parameters": self._parameters,
            "features": self._names,
            "trees": trees,
        }
        return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes, name: str = "") -> CostModel:
        """Return the model that `save` has written as `data`; `name` becomes its name. Raises
        ValueError if the bytes are not a saved model."""
        try:
            body = json.loads(data)
            model = cls(int(body["parameters"]["seed"]), int(body["parameters"]["nthread"]))
            model.name = name
            model._names = tuple(map(str, body["features"]))
            trees = body["trees"]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a saved cost model: {error!r}") from error
        if trees is not None:
            import xgboost

            try:
                file = bytearray(json.dumps(trees), "utf-8")
                model._booster = xgboost.Booster(model._parameters, model_file=file)
            except xgboost.core.XGBoostError as error:
                raise ValueError(f"not a saved cost model: {error}") from error
        return model


def _grades(seconds: Floats) -> npt.NDArray[np.int64]:
    """Return the relevance grade of each candidate of a task, [n]: `GRADES` for the fastest, and 0
    for candidates that take at least `SLOWEST` times its time."""
    ran = np.isfinite(seconds)
    if not ran.any():
        return np.zeros(len(seconds), np.int64)
    slower = np.log(seconds / seconds[ran].min()) / np.log(SLOWEST)
    grades: npt.NDArray[np.int64] = np.rint(GRADES * (1 - np.minimum(slower, 1))).astype(np.int64)
    return grades
