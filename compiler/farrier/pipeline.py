"""The steps of a compilation, from a model (ONNX bytes, or another frontend's source) to an
artifact. Each named step is a `with` block, in this order:

import → prepare → optimize → partition → space → schedule → compare → lower → codegen → reference →
link → verify
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Unpack

from farrier.artifact.schedules import stack_bytes_of
from farrier.compilation.importing import has_float_form, named_sizes, warn_of_failures
from farrier.compilation.session import Resources, Session, open_session
from farrier.compilation.settings import resolve_options
from farrier.compilation.specialization import (
    Specialization,
    begin,
    from_artifact,
    from_records,
    tuned,
)
from farrier.compilation.verification import make_verifier, race_engines, start_engine, verify
from farrier.compile_pool import Kernels, lowered, note_instructions
from farrier.compile_pool.choose import default_schedules
from farrier.compile_pool.slow import messages, slow_of_forms
from farrier.errors import ArtifactError, StackError
from farrier.frontends.builder import Source, placed
from farrier.frontends.onnx.model.file import Model, model_of
from farrier.ir.collection import no_collection
from farrier.ir.graph import Graph
from farrier.model_tuning.against_floats import slower_than_floats
from farrier.model_tuning.algorithms import algorithms_report
from farrier.model_tuning.variant import Variant
from farrier.options import CompileOptions
from farrier.packaging.link import link, planned
from farrier.packaging.package import package
from farrier.partition import extract_tasks
from farrier.partition.program import notes_of
from farrier.passes import finish, prepare
from farrier.progress import TasksFound, Warned
from farrier.progress.steps import Dump, StoppedError
from farrier.records import MemoryRecords
from farrier.runtime.artifact import Artifact
from farrier.targets import Plan

__all__ = [
    "Dump",
    "StoppedError",
    "compile_model",
    "has_float_form",
    "improved_models",
    "resolve_options",
]


def compile_model(
    model: Model | Source | bytes,
    options: CompileOptions,
    *,
    name: str = "",
    against: Sequence[str] = (),
    as_floats: bool = False,
    **resources: Unpack[Resources],
) -> Artifact:
    """Compile one model. An ONNX model is verified by ONNX Runtime and by the operators in float64,
    the model of another frontend by the operators alone.

    `name` replaces the model's own name. Once it is verified, the model is raced against the
    engines `against`, if the device has them. `as_floats` compiles the float form of a quantized
    model, for comparisons: it must not be verified, because its outputs are not the model's.
    `resources` are documented in `Resources`. Raises FarrierError; StoppedError after the step that
    `dump.until` names.
    """
    source = model if isinstance(model, Source) else model_of(model)
    # Without tuning a compilation takes seconds, most of them with trees of IR, which the garbage
    # collector would traverse again and again.
    collection = contextlib.nullcontext() if options.tunes else no_collection()
    with (
        collection,
        open_session(
            source, options, name=name, as_floats=as_floats, tunes=options.tunes, **resources
        ) as session,
    ):
        return _compile_to_fit(session, against)[-1]


def improved_models(
    model: Model,
    options: CompileOptions,
    rounds: Sequence[CompileOptions],
    *,
    against: Sequence[str] = (),
    begins: bool = True,
    since: Artifact | None = None,
    **resources: Unpack[Resources],
) -> Generator[Artifact]:
    """Yield the untuned artifact (if `begins`), and then, after each round of tuning that wins a
    race against the last artifact, the improved one. A round whose kernels take too much stack for
    the target is dropped.

    `since` is an artifact that is in use already: tuning continues from its schedules, and it is
    not yielded again. The options of a round hold its trials and budget; a round builds on the
    measurements of the rounds before. The other arguments are as for `compile_model`. Raises
    FarrierError.
    """
    with open_session(model, options, tunes=True, **resources) as session:
        if since is not None:
            session = session.leaving(stack_bytes_of(since.schedules))
        if begins and since is None:
            session, current, artifact = _compile_to_fit(session, against)
            yield artifact
        else:
            current = _specialize_all(session, since)
        for round_ in rounds:
            # If there are hot sizes, only their specializations are tuned.
            general, hot = (current[:1], current[1:]) if session.hot else ([], current)
            better = [*general, *(tuned(session, each, round_) for each in hot)]
            pairs = zip(current, better, strict=True)
            if not all(new.variant.is_same_code(old.variant) for old, new in pairs):
                try:
                    artifact = _build(session, better, against)
                except StackError as error:  # The kernels in use take less.
                    session.listener(Warned(f"{error.message}; this round's kernels are dropped"))
                    continue
                yield artifact
            current = better


def _compile_to_fit(
    session: Session, against: Sequence[str]
) -> tuple[Session, list[Specialization], Artifact]:
    """Compile the model, and again with as much memory left free as its stack takes if it does not
    fit the target otherwise. Return the session of the last compilation, with its specializations
    and its artifact. Raises StackError if the values of the model cannot leave that much."""
    while True:
        specializations = _specialize_all(session)
        try:
            return session, specializations, _build(session, specializations, against)
        except StackError as error:
            if error.stack_bytes <= session.settings.stack_bytes:
                raise
            session.listener(Warned(f"{error.message}; it is compiled again"))
            session = session.leaving(error.stack_bytes)


def _specialize_all(session: Session, since: Artifact | None = None) -> list[Specialization]:
    """Return the specializations of the model: for all sizes, then for each hot size, with the
    schedules of the artifact `since` if there is one. Raises ArtifactError if that has other
    options."""
    if since is not None and len(since.schedules) != 1 + len(session.hot):
        raise ArtifactError(f"{since.manifest.name} was made with other options")
    imported, listener = session.imported, session.listener
    warned = warn_of_failures(imported.graph, (), listener)
    with named_sizes(imported):
        general = _specialize(session, placed(imported), since=since)
    if message := slower_than_floats(imported.graph, general.variant):
        listener(Warned(message))
    if session.hot and not session.tunes:  # Nothing is measured at the same time.
        session.helpers.begin(lowered(general.variant.choices, session.settings.target))
    specializations = [general]
    for number, sizes in enumerate(session.hot):
        session.steps.part = f"-hot{number}"
        graph = session.imported_at(sizes).graph
        warned = warn_of_failures(graph, warned, listener)
        graph = placed(imported, graph)
        specializations.append(_specialize(session, graph, sizes, number + 1, since=since))
    session.steps.part = ""
    for kernels in slow_of_forms(each.variant.choices for each in specializations):
        for message in messages(kernels):
            listener(Warned(message))
    return specializations


def _specialize(
    session: Session,
    imported: Graph,
    sizes: Mapping[str, int] | None = None,
    number: int = 0,
    *,
    since: Artifact | None,
) -> Specialization:
    """Optimize, partition and schedule a graph, and return it as specialization `number` of the
    model: for the hot `sizes`, or for any size."""
    steps, settings = session.steps, session.settings_for(sizes or {})
    with steps("prepare") as step:
        prepared = step.done(prepare(imported, settings))
    with steps("optimize") as step:
        graph = step.done(finish(prepared, settings))
    with steps("partition") as step:
        tasks, program = step.done(extract_tasks(graph, share_channels=settings.beside_hot))
    session.listener(TasksFound(len(tasks), len(program.calls)))
    for note in notes_of(program):
        session.listener(Warned(note))
    with steps("space") as step:
        choices = step.done(
            default_schedules(
                tasks, program.calls, settings.target, settings.threads, session.listener
            )
        )
    default = begin(session, prepared, Variant(settings, graph, program, choices), sizes or {})
    if since is not None:
        return from_artifact(session, default, since.schedules[number], since.manifest.kernels)
    is_tuned = session.options.tunes and (sizes is not None or not session.hot)
    if is_tuned:
        return tuned(session, default, session.options)
    return from_records(session, default)


def _build(
    session: Session, specializations: Sequence[Specialization], against: Sequence[str]
) -> Artifact:
    """Return the artifact of all specializations, after it is verified and raced against the
    engines `against`."""
    general, *hot = specializations
    specializations = [general, *(each.sharing_with(general) for each in hot)]
    variants = [each.variant for each in specializations]
    # The specialization whose figures the artifact shows.
    timed = specializations[1] if hot else general
    with start_engine(session) as engine:  # It starts while kernels are compiled.
        kernels, plan = _compile_kernels(session, variants)
        # The parameters are packed at the link, which holds them in memory once more, so the
        # reference comes first.
        verifier = make_verifier(session, engine)
        with session.steps("link") as step:
            sizes = [each.sizes for each in specializations]
            linked = step.done(link(variants, sizes, kernels, plan))
        verified = None
        if verifier is not None:
            verified = verify(session, verifier, linked, specializations, timed.race)
    raced = race_engines(session, verified, against)
    emulated = session.device.is_emulated  # The times of an emulated device are not stored.
    records = MemoryRecords() if emulated else session.records
    return package(
        session.name,
        session.imported,
        variants,
        linked,
        verified=verified,
        race=timed.race,
        tuning=timed.tuning,
        algorithms=algorithms_report(timed.prepared, timed.variant.settings, records),
        seconds=session.steps.seconds,
        records=records,
        emulated=emulated,
        raced=raced,
    )


def _compile_kernels(session: Session, variants: Sequence[Variant]) -> tuple[Kernels, Plan | None]:
    """Compile the kernels of all variants, in helper processes (`farrier.compile_pool.compile`).
    Return the kernels, and the plan of the first variant if it could be made while kernels of other
    variants were still being compiled, otherwise None."""
    first = variants[0]
    plans: list[Plan] = []

    def plan(begun: Kernels) -> None:
        if first.choices.keys() <= begun.interfaces.keys():
            plans.append(planned(first, begun))

    choices = {key: choice for variant in variants for key, choice in variant.choices.items()}
    with session.steps("lower") as step:
        note = step.note if step.is_read else None
        build_inputs = step.done(lowered(choices, session.settings.target, note))
    with session.steps("codegen") as step:
        if step.is_read:
            note_instructions(build_inputs.values(), session.settings.target, step.note)
        kernels = step.done(session.helpers.compile(build_inputs, plan))
    return kernels, next(iter(plans), None)
