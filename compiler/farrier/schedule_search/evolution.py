"""Propose the next candidates of one task to measure: evolutionary search with a learned cost
model.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from farrier.cost_model import CostModel
from farrier.records import Context
from farrier.schedule_search.trial import Trial
from farrier.space import Features, Population, Space
from farrier.space.space import Floats

POOL = 2048  # Candidates kept alive between generations.
# Candidates of a whole space that are predicted; the best is assumed to be among them.
LIKELY = 4096
GENERATIONS = 4
EPSILON = 0.1  # The share of a batch that is drawn at random.
# The share of a batch that is one knob away from the best measured candidate, or the default.
LOCAL = 0.4


class EvolutionarySearch:
    """A search that proposes candidates of one task, and learns from their measured results.

    A space that can be enumerated is ranked completely, except candidates that the analytic model
    rules out; a larger space is searched by mutation and crossover of candidates that are predicted
    or measured to be fast. No candidate is proposed twice. Equal seeds and equal results lead to
    equal proposals, also after a resume from records.
    """

    def __init__(
        self,
        task: str,
        space: Space,
        model: CostModel,
        seed: int = 0,
        context: Context = Context.ALONE,
    ) -> None:
        """Start a search whose candidates are to be measured in `context`: alone or within the
        model."""
        self.task = task
        self.space = space
        self.trials: list[Trial] = []
        self._model = model
        self._seed = seed
        self._context = context
        self._seen: set[bytes] = set()
        self._pool = space.candidates(seed=seed)
        is_ranked = len(self._pool) <= POOL or space.is_whole
        describe = functools.partial(self._described, context=context)
        costs = functools.partial(space.costs, context)
        self._fresh = _Fresh(self._pool, costs, describe) if is_ranked else None

    @property
    def best(self) -> Trial | None:
        """The fastest trial that ran correctly; the first of several equal ones."""
        ran = [trial for trial in self.trials if np.isfinite(trial.seconds)]
        return min(ran, key=lambda trial: trial.seconds, default=None)

    def propose(self, count: int) -> list[dict[str, int]]:
        """Return up to `count` distinct candidates that were never proposed or measured; fewer, or
        none, once the space is exhausted.

        The analytic default comes first, followed by the default of every other rule: estimates of
        different rules are not comparable, so each default is measured.
        """
        rng = np.random.default_rng([self._seed, zlib.crc32(self.task.encode()), len(self._seen)])
        pool, predicted = self._candidates(rng)
        ranked = pool[np.argsort(predicted, kind="stable")]
        explored = int(EPSILON * count + rng.random()) if self._seen else 0
        nearby = int(LOCAL * count + rng.random())
        sources = (
            np.stack([self.space.row(default) for default in self.space.defaults()]),
            ranked[: max(0, count - explored - nearby)],
            self._near_best()[:nearby],
            pool[rng.permutation(len(pool))[:explored]],
            ranked,  # These fill the rest of the batch.
        )
        chosen: list[dict[str, int]] = []
        for rows in sources:
            for row in rows:
                if len(chosen) == count:
                    return chosen
                if row.tobytes() not in self._seen:
                    self._see(row[None])
                    chosen.append(self.space.decisions(row))
        return chosen

    def update(self, trials: Iterable[Trial]) -> None:
        """Add results, new or from records. The cost model learns from them in its next `fit`."""
        of_space = [trial for trial in trials if self.space.contains(trial.decisions)]
        if of_space:
            self._see(self._taught(self.task, of_space, self._context))
            self.trials.extend(of_space)

    def learn_elsewhere(self, trials: Iterable[Trial], context: Context) -> None:
        """Add results that were measured in another context than this search's. The cost model
        learns from them, but they are not candidates for the best trial."""
        of_space = [trial for trial in trials if self.space.contains(trial.decisions)]
        if of_space:
            self._taught(f"{self.task} {context}", of_space, context)

    def predict(self, population: Population) -> Floats:
        """Return the seconds that the current cost model predicts for a population."""
        return self._model.predict(*self._described(population, self._context))

    def _taught(self, task: str, trials: Sequence[Trial], context: Context) -> Population:
        """Add the results of `trials` to the training data of the cost model, which learns from
        them in its next `fit`. Return the rows of the candidates in the space."""
        rows = np.stack([self.space.row(trial.decisions) for trial in trials])
        seconds = np.array([trial.seconds for trial in trials])
        self._model.add(task, *self._described(rows, context), seconds)
        return rows

    def _described(self, population: Population, context: Context) -> tuple[Features, Floats]:
        """Return the features of candidates for the cost model, and their seconds as predicted
        without any measurement."""
        features, analytic = self.space.described(population, context)
        in_model = context is not Context.ALONE
        return features.beside("in_model", in_model), self._prior(population, features, analytic)

    def _prior(self, population: Population, features: Features, analytic: Floats) -> Floats:
        """Return the seconds of candidates predicted without measurements, by the base model of the
        cost model.

        The base model has not seen rules that were added after its training. For candidates of such
        rules, the analytic predictions are used, scaled by the median ratio of the base model's
        predictions to the analytic ones.
        """
        is_learned = self.space.is_learned(population)
        if not is_learned.any():
            return analytic
        prior = analytic.copy()
        prior[is_learned] = self._model.prior(features[is_learned], analytic[is_learned])
        prior[~is_learned] *= np.median(prior[is_learned] / analytic[is_learned])
        return prior

    def _candidates(self, rng: np.random.Generator) -> tuple[Population, Floats]:
        """Return candidates that were not proposed before, with their predicted seconds. They are
        all such rows of the space if it can be enumerated, and otherwise the survivors of a few
        generations of evolutionary search."""
        if self._fresh is not None:
            return self._fresh.rows, self._fresh.predict(self._model)
        pool = self._pool
        fastest = sorted(self.trials, key=lambda trial: trial.seconds)[:64]
        if fastest:
            parents = np.stack([self.space.row(trial.decisions) for trial in fastest])
            pool = np.concatenate([pool, parents])
        for _ in range(GENERATIONS):
            pool = pool[np.argsort(self.predict(pool), kind="stable")[: POOL // 2]]
            mates = pool[rng.integers(len(pool), size=len(pool))]
            children = self.space.crossover(pool, mates, rng)
            pool = np.unique(np.concatenate([pool, children, self.space.mutate(pool, rng)]), axis=0)
        pool = self._unseen(pool)
        return pool, self.predict(pool)

    def _see(self, rows: Population) -> None:
        """Mark rows as proposed, so that they are not proposed again."""
        self._seen.update(row.tobytes() for row in rows)
        if self._fresh is not None:
            self._fresh.drop(rows)

    def _near_best(self) -> Population:
        """Return the neighbours of the best trial, or of the default if there is none, the most
        promising first."""
        best = self.space.default() if self.best is None else self.best.decisions
        near = self._unseen(self.space.neighbours(self.space.row(best)))
        return near[np.argsort(self.predict(near), kind="stable")]

    def _unseen(self, population: Population) -> Population:
        fresh = np.array([row.tobytes() not in self._seen for row in population], bool)
        unseen: Population = population[fresh]
        return unseen


class _Fresh:
    """The unseen rows of a space that is ranked completely. The rows that are likely by the
    analytic `costs`, and their features from `describe`, are computed once: only the cost model
    changes between batches."""

    def __init__(
        self,
        rows: Population,
        costs: Callable[[], Floats],
        describe: Callable[[Population], tuple[Features, Floats]],
    ) -> None:
        self.rows = rows
        self._places = np.arange(len(rows))  # The numbers of the remaining rows.
        self._costs = costs
        self._describe = describe
        self._is_likely = np.zeros(0, bool)  # A flag for each row, once they are described.
        self._described: tuple[Features, Floats] | None = None

    def drop(self, rows: Population) -> None:
        """Remove `rows`, which have been proposed, from the rows of this space. Rows of other
        spaces are ignored."""
        kept = np.ones(len(self.rows), bool)
        for row in rows:
            equal = np.arange(len(self.rows))
            for column, value in enumerate(row):
                equal = equal[self.rows[equal, column] == value]
            kept[equal] = False
        if kept.all():
            return
        self.rows, self._places = self.rows[kept], self._places[kept]
        if self._described is not None:
            features, priors = self._described
            likely = kept[self._is_likely]
            self._described = features[likely], priors[likely]
            self._is_likely = self._is_likely[kept]

    def predict(self, model: CostModel) -> Floats:
        """Return the predicted seconds of each row; infinity for rows that the analytic model rules
        out."""
        if self._described is None:
            self._is_likely = np.ones(len(self.rows), bool)
            if len(self.rows) > LIKELY:
                order = np.argsort(self._costs()[self._places], kind="stable")
                self._is_likely[order[LIKELY:]] = False
            self._described = self._describe(self.rows[self._is_likely])
        predicted = np.full(len(self.rows), np.inf)
        predicted[self._is_likely] = model.predict(*self._described)
        return predicted
