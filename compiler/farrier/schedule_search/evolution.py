"""Which candidates of one task to measure next: evolution under a learned cost model."""

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

POOL = 2048  # candidates kept alive between generations
LIKELY = 4096  # candidates of a whole space that are predicted; the best is among them
GENERATIONS = 4
EPSILON = 0.1  # share of a batch that is drawn at random
LOCAL = 0.4  # share of a batch that is one knob away from the best measured, or the default


class EvolutionarySearch:
    """Proposes candidates of one task and learns from their results.

    A space that can be enumerated is ranked, as far as the analytic model likes it; a larger one is
    searched by mutation and crossover of what is predicted, and what was measured, to be fast.
    Nothing is proposed twice.
    Equal seeds and equal results give equal proposals, also after a resume from records.
    """

    def __init__(
        self,
        task: str,
        space: Space,
        model: CostModel,
        seed: int = 0,
        context: Context = Context.ALONE,
    ) -> None:
        """Candidates are to be measured in `context`."""
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
        """The fastest that ran and was right; the first among equals."""
        ran = [trial for trial in self.trials if np.isfinite(trial.seconds)]
        return min(ran, key=lambda trial: trial.seconds, default=None)

    def propose(self, count: int) -> list[dict[str, int]]:
        """Return up to `count` distinct candidates that were never proposed or measured; fewer, or
        none, once the space is exhausted. The analytic default comes before all others, then that
        of every other rule: estimates of different rules do not compare, so each is measured."""
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
            ranked,  # fills up what the others left, or gave twice
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
        """Take in results, new or from records. The model learns them with its next `fit`."""
        known = [trial for trial in trials if self.space.contains(trial.decisions)]
        if known:
            self._see(self._taught(self.task, known, self._context))
            self.trials.extend(known)

    def learn_elsewhere(self, trials: Iterable[Trial], context: Context) -> None:
        """Take in results of another context: they teach the model, and do not compare."""
        known = [trial for trial in trials if self.space.contains(trial.decisions)]
        if known:
            self._taught(f"{self.task} {context}", known, context)

    def predict(self, population: Population) -> Floats:
        """Seconds, by the model as it stands."""
        return self._model.predict(*self._described(population, self._context))

    def _taught(self, task: str, known: Sequence[Trial], context: Context) -> Population:
        """The rows of results, that the model learns with its next `fit`."""
        rows = np.stack([self.space.row(trial.decisions) for trial in known])
        seconds = np.array([trial.seconds for trial in known])
        self._model.add(task, *self._described(rows, context), seconds)
        return rows

    def _described(self, population: Population, context: Context) -> tuple[Features, Floats]:
        """What the model learns of candidates, and what it says with nothing measured."""
        features, analytic = self.space.described(population, context)
        in_model = context is not Context.ALONE
        return features.beside("in_model", in_model), self._prior(population, features, analytic)

    def _prior(self, population: Population, features: Features, analytic: Floats) -> Floats:
        """Return the seconds of candidates with nothing measured. A base has learned nothing of
        rules that came after it: their candidates keep their distance from the default."""
        known = self.space.is_learned(population)
        if not known.any():
            return analytic
        prior = analytic.copy()
        prior[known] = self._model.prior(features[known], analytic[known])
        prior[~known] *= np.median(prior[known] / analytic[known])
        return prior

    def _candidates(self, rng: np.random.Generator) -> tuple[Population, Floats]:
        """What was not seen of the whole space, or of the survivors of a few generations; and
        seconds, by the model as it stands."""
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
        """Take note of what is not to be proposed any more."""
        self._seen.update(row.tobytes() for row in rows)
        if self._fresh is not None:
            self._fresh.drop(rows)

    def _near_best(self) -> Population:
        """The neighbours of the best trial, or of the default, the most promising first."""
        best = self.space.default() if self.best is None else self.best.decisions
        near = self._unseen(self.space.neighbours(self.space.row(best)))
        return near[np.argsort(self.predict(near), kind="stable")]

    def _unseen(self, population: Population) -> Population:
        fresh = np.array([row.tobytes() not in self._seen for row in population], bool)
        unseen: Population = population[fresh]
        return unseen


class _Fresh:
    """The rows of a space that is ranked whole, but for those that were seen. Which of them are
    likely by the analytic `costs` of all, and how these are `described`, is found out once: from
    batch to batch the model alone changes."""

    def __init__(
        self,
        rows: Population,
        costs: Callable[[], Floats],
        describe: Callable[[Population], tuple[Features, Floats]],
    ) -> None:
        self.rows = rows
        self._places = np.arange(len(rows))  # of the rows that are left, among all
        self._costs = costs
        self._describe = describe
        self._is_likely = np.zeros(0, bool)  # of each row, once they are described
        self._described: tuple[Features, Floats] | None = None

    def drop(self, rows: Population) -> None:
        """Some rows were seen; others than those of the space may be among them."""
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
        """Seconds of each row; infinite for those that are not likely."""
        if self._described is None:
            self._is_likely = np.ones(len(self.rows), bool)
            if len(self.rows) > LIKELY:
                order = np.argsort(self._costs()[self._places], kind="stable")
                self._is_likely[order[LIKELY:]] = False
            self._described = self._describe(self.rows[self._is_likely])
        predicted = np.full(len(self.rows), np.inf)
        predicted[self._is_likely] = model.predict(*self._described)
        return predicted
