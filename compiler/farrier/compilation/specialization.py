"""A specialization of a model to sizes, and the sources of its schedules: records, an artifact, or
tuning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.artifact.manifest import KernelReport
from farrier.artifact.schedules import Schedules
from farrier.compilation.session import Session
from farrier.compile_pool.choose import ScheduledTask
from farrier.cost_model import pretrained
from farrier.ir.graph import Graph
from farrier.measure import TaskMeasurer
from farrier.model_tuning.compare import Comparison, Race, compared
from farrier.model_tuning.hot import with_shared_kernels, with_shared_panels
from farrier.model_tuning.schedule_events import schedule_events
from farrier.model_tuning.tune_model import known_variant, tune_model
from farrier.model_tuning.variant import Variant
from farrier.model_tuning.variant_from_artifact import variant_from_artifact
from farrier.options import CompileOptions
from farrier.progress import TimeSpent, TuningStarted
from farrier.progress.clock import Clock
from farrier_device.measurement import TimingPolicy


@dataclasses.dataclass(frozen=True)
class Specialization:
    """A form of the model for all sizes, or for a hot (frequent) size: its kernels with their
    schedules."""

    prepared: Graph
    default: Variant  # It has the schedules of the analytic ranking.
    variant: Variant
    comparison: Comparison
    sizes: Mapping[str, int]  # The hot sizes, by symbol; {} for any size.
    race: Race | None = None  # The race between the default and the tuned variant.
    tuning: Mapping[str, Any] | None = None  # The time that each part of tuning took.

    @property
    def in_use(self) -> Variant:
        """The variant in use, which a new variant must beat; it is the default variant if tuning
        has not changed the code."""
        return self.default if self.variant.is_same_code(self.default) else self.variant

    def sharing_with(self, general: Specialization) -> Specialization:
        """Return the specialization, using the packed weight layouts and the kernels of the
        `general` one where these are about as fast."""
        variant = with_shared_panels(self.variant, general.variant)
        variant = with_shared_kernels(variant, general.variant, self.sizes)
        return dataclasses.replace(self, variant=variant)


def begin(
    session: Session, prepared: Graph, default: Variant, sizes: Mapping[str, int]
) -> Specialization:
    """Return the specialization of `prepared` to `sizes` with default schedules."""
    emit_schedules(session, default, sizes)
    settings = session.settings
    comparison = Comparison(
        settings.target, settings.threads, session.device, session.blobs, session.helpers
    )
    return Specialization(prepared, default, default, comparison, sizes)


def emit_schedules(
    session: Session, variant: Variant, sizes: Mapping[str, int], before: Variant | None = None
) -> None:
    """Send the schedules of all tasks of the variant to the listener. Nothing is sent if the
    variant is `before` itself. Tasks that only `before` has are included, with 0 calls."""
    if variant is not before:
        for event in schedule_events(variant, sizes, before):
            session.listener(event)


def from_artifact(
    session: Session, current: Specialization, schedules: Schedules, reports: Sequence[KernelReport]
) -> Specialization:
    """Return the specialization with the schedules of an artifact, whose kernels `reports`
    describes. Raises ArtifactError for an artifact of other options."""
    settings = session.settings_for(current.sizes)
    with session.steps("schedule") as step:
        variant = step.done(variant_from_artifact(current.prepared, settings, schedules, reports))
    emit_schedules(session, variant, current.sizes, current.default)
    return dataclasses.replace(current, variant=variant)


def from_records(session: Session, current: Specialization) -> Specialization:
    """Return the specialization with the best schedules that the records contain."""
    with session.steps("schedule") as step:
        variant = step.done(known_variant(current.prepared, current.default, session.records))
    if session.options.verify:
        better = raced(session, current, variant, current.comparison, Clock())
    else:
        better = dataclasses.replace(current, variant=variant)
    emit_schedules(session, better.variant, current.sizes, current.default)
    return better


def tuned(session: Session, current: Specialization, options: CompileOptions) -> Specialization:
    """Return the specialization with the best schedules that tuning finds. The trials and the time
    budget in `options` are divided among all specializations."""
    options = options.shared(max(1, len(session.hot)))
    clock = Clock(options.budget_s)
    comparison = current.comparison.by(clock, racers=2 if current.in_use is current.default else 3)
    base = session.base or pretrained()
    session.listener(TuningStarted(base.name))

    def measurer(choices: Mapping[str, ScheduledTask]) -> TaskMeasurer:
        return TaskMeasurer(
            {key: choice.task for key, choice in choices.items()},
            session.settings.target,
            session.device,
            session.blobs,
            TimingPolicy(threads=session.settings.threads),
            session.helpers,
            clock,
            {key: choice.site.space for key, choice in choices.items()},
        )

    with session.steps("schedule") as step:
        variant = step.done(
            tune_model(
                current.prepared,
                current.default,
                comparison,
                measurer,
                session.records,
                options,
                clock,
                session.listener,
                base,
                session.definitions,
            )
        )
    better = raced(session, current, variant, comparison, clock)
    session.listener(TimeSpent(clock.budget_s, clock.phases, clock.works))
    emit_schedules(session, better.variant, current.sizes, current.variant)
    return dataclasses.replace(better, tuning={**clock.report(), "cost_model": base.name})


def raced(
    session: Session,
    current: Specialization,
    variant: Variant,
    comparison: Comparison,
    clock: Clock,
) -> Specialization:
    """Return the specialization with the new variant if it is faster than the variant in use, both
    measured as complete models: kernels that are faster alone may be slower together. Otherwise
    return it unchanged."""
    if variant.is_same_code(current.variant):
        return dataclasses.replace(current, variant=variant)
    with clock.phase("race"), session.steps("compare") as step:
        race = step.done(
            compared(comparison, current.default, current.in_use, variant, session.listener)
        )
    if race is not None and race.is_won:
        return dataclasses.replace(current, variant=variant, race=race)
    return dataclasses.replace(current, race=current.race or race)
