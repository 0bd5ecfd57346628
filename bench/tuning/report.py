"""The figures of the tuning benchmark: for each way to rank candidates, over held-out tasks and
over the other tasks."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench.tuning import replay
from bench.tuning.corpus import Known
from bench.tuning.scores import Mean, Scores, mean, scores
from farrier.cost_model import CostModel
from farrier.space.space import Floats

CHECKPOINTS = (16, 64)
TRIALS = 128  # The trials of each replayed search.
NEARLY = 1.02  # Times the best known; 98% as good.
SEEDS = 5  # The replays of each search.


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The figures of a task: its measured candidates, and the scores of each ranking, by name of
    ranking."""

    name: str
    rule: str
    held_out: bool
    candidates: int  # that ran
    share: float  # of the space
    best_us: float
    noise: float
    scores: Mapping[str, Scores]
    curves: Mapping[str, tuple[float, ...]]  # The best so far over the best known, by search.

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    rows: tuple[Row, ...]

    def half(self, held_out: bool) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.held_out is held_out)

    def mean(self, ranking: str, held_out: bool) -> Mean:
        return mean([row.scores[ranking] for row in self.half(held_out)])

    def after(self, search: str, trials: int, held_out: bool) -> float:
        """Return the geometric mean over tasks of the best time after that number of trials over
        the best known time."""
        ratios = [row.curves[search][trials - 1] for row in self.half(held_out)]
        return statistics.geometric_mean(ratios)

    def trials_to(self, search: str, held_out: bool) -> float:
        """Return the median over tasks of the number of trials until the best time is within 2% of
        the best known one (more if the task is noisy); infinite if the replayed trials do not
        suffice."""
        needed = [
            replay.trials_to(np.array(row.curves[search]), max(NEARLY, 1 + 2 * row.noise))
            for row in self.half(held_out)
        ]
        return statistics.median(float("inf") if trials is None else trials for trials in needed)


def report(corpus: Sequence[Known], taught: Sequence[Known], say: Callable[[str], None]) -> Report:
    """Rank the candidates of every task by the analytic model and by a learned one. Replay its
    search with the learned model, without it, and at random. The learned model is trained on the
    tasks of `taught` that are not held out, without the task itself."""
    seen = [task for task in taught if not task.layer.held_out]
    of_all = trained(seen)
    rows = []
    for task in corpus:
        say(task.layer.name)
        others = [other for other in seen if other.layer.name != task.layer.name]
        model = of_all if len(others) == len(seen) else trained(others)
        rows.append(_row(task, model))
    return Report(tuple(rows))


def _row(task: Known, model: CostModel) -> Row:
    """Return the figures of a task; `model` has been trained on other tasks."""
    key, space = task.layer.name, task.space
    features, analytic = task.described
    learned = model.predict(features, analytic)
    empty, ahead = (
        [replay.searched(task, TRIALS, CostModel(seed, base=base), seed) for seed in range(SEEDS)]
        for base in (None, model)
    )
    curves = {
        "search": _mean(empty),
        "search, learned before": _mean(ahead),
        "random": tuple(map(float, replay.drawn(task, TRIALS))),
    }
    return Row(
        name=key,
        rule=str(space.rule),
        held_out=task.layer.held_out,
        candidates=len(task.rows),
        share=len(task.rows) / len(space.candidates()),
        best_us=task.best_s * 1e6,
        noise=task.noise,
        scores={"analytic": scores(task, analytic), "learned": scores(task, learned)},
        curves=curves,
    )


def trained(corpus: Sequence[Known]) -> CostModel:
    """Return a model trained on all tasks of a corpus. A layer measured on several machines counts
    as several tasks."""
    model = CostModel()
    for number, task in enumerate(corpus):
        model.add(f"{task.layer.name} {number}", *task.described, task.seconds)
    model.fit()
    return model


def _mean(curves: Sequence[Floats]) -> tuple[float, ...]:
    return tuple(map(float, np.mean(curves, axis=0)))


def tables(figures: Report) -> list[str]:
    """Return the tables of the report in Markdown."""
    lines = [
        "| | pairs, random | pairs, good | top 1 | top 5 | regret | worst |",
        "|---|---|---|---|---|---|---|",
    ]
    halves = [half for half in (("seen", False), ("held out", True)) if figures.half(half[1])]
    for name, held_out in halves:
        for ranking in ("analytic", "learned"):
            half = figures.mean(ranking, held_out)
            lines.append(
                f"| {ranking}, {name} | {half.pairs_random:.3f} | {half.pairs_good:.3f} "
                f"| {half.top1:.3f} | {half.top5:.3f} | {half.regret:.1%} | {1 + half.worst:.2f}× |"
            )
    lines += [
        "",
        f"| | {' | '.join(f'after {count} trials' for count in CHECKPOINTS)} | trials to 98% |",
        f"|---|{'---|' * len(CHECKPOINTS)}---|",
    ]
    for name, held_out in halves:
        for search in figures.rows[0].curves:
            after = (f"{figures.after(search, n, held_out) - 1:.1%}" for n in CHECKPOINTS)
            trials = f"{figures.trials_to(search, held_out):.0f}"
            lines.append(f"| {search}, {name} | {' | '.join(after)} | {trials} |")
    lines += [
        "",
        "| task | rule | known | of the space | best, µs | noise | pairs, good: analytic, learned "
        "| regret: analytic, learned |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in figures.rows:
        analytic, learned = row.scores["analytic"], row.scores["learned"]
        lines.append(
            f"| {row.name}{'*' if row.held_out else ''} | {row.rule} | {row.candidates} "
            f"| {row.share:.0%} | {row.best_us:.1f} | {row.noise:.1%} "
            f"| {_share(analytic.pairs_good)}, {_share(learned.pairs_good)} "
            f"| {analytic.regret:.1%}, {learned.regret:.1%} |"
        )
    return [*lines, "", "\\* held out"]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
