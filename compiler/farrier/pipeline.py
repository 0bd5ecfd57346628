"""The way of a model: ONNX bytes, or another frontend's source → Artifact. Each named step is a
block, in the order of the text:

import → prepare → optimize → partition → space → schedule → compare → lower → codegen → reference
→ link → verify
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from farrier.cost_model import CostModel, pretrained
from farrier.errors import ArtifactError, UnresolvedShapeError, UnverifiableError, UsageError
from farrier.frontends.builder import ImportedModel, Source, placed, with_states
from farrier.frontends.onnx.model.bus_errors import reading
from farrier.frontends.onnx.model.file import Model, model_of
from farrier.ir.collection import no_collection
from farrier.ir.control import failures
from farrier.ir.dim import Undecided
from farrier.ir.graph import Graph
from farrier.kernels import Builders, Helpers, Kernels, helpers_for, lowered
from farrier.kernels.choose import choose_defaults
from farrier.kernels.slow import messages, slow_of_forms
from farrier.measure import (
    Blobs,
    LocalDevice,
    NotedRunner,
    Runner,
    TaskMeasurer,
    floor_ns,
    floor_of_run,
)
from farrier.model_tuning.against_floats import slower_than_floats
from farrier.model_tuning.algorithms import algorithms_report
from farrier.model_tuning.compare import Comparison, Race, compared
from farrier.model_tuning.hot import (
    check_hot,
    for_any_size,
    hot_asked,
    hot_sizes,
    shapes_at,
    with_shared_kernels,
    with_shared_panels,
)
from farrier.model_tuning.remade import remade
from farrier.model_tuning.told import told
from farrier.model_tuning.tune_model import known_variant, tune_model
from farrier.model_tuning.variant import Variant
from farrier.options import CompileOptions
from farrier.options.precision import Precision, parse_precision
from farrier.options.shapes import GivenShape, Hot
from farrier.partition import Task, extract_tasks
from farrier.passes import Settings, finish, prepare
from farrier.passes.float_form import float_form, has_pairs
from farrier.progress import (
    SIZES,
    VERIFICATION,
    Listener,
    Raced,
    SizesSettled,
    StageFinished,
    StageStarted,
    TasksFound,
    TimeSpent,
    TuningStarted,
    Verified,
    Warned,
    ignore,
)
from farrier.progress.clock import Clock
from farrier.progress.steps import Dump, Steps, StoppedError
from farrier.records import MemoryRecords, RecordStore, TaskStore
from farrier.release.against import race as race_with
from farrier.release.link import link, planned
from farrier.release.onnxruntime import OnnxRuntime
from farrier.release.package import package, specs
from farrier.release.reference_time import reference_s as reference_s_of
from farrier.release.verify import Verification, Verifier
from farrier.runtime.artifact import Artifact
from farrier.targets import Plan, Target, backend_of, parse_target, why_not_here
from farrier.targets.linked import LinkedModel
from farrier_device.describe import cores
from farrier_device.measurement import TimingPolicy

__all__ = ["Dump", "StoppedError", "compile_model", "has_float_form"]

_NOWHERE = Dump()


def compile_model(
    model: Model | Source | bytes,
    options: CompileOptions,
    *,
    name: str = "",
    runner: Runner | None = None,
    records: RecordStore | None = None,
    listener: Listener = ignore,
    dump: Dump = _NOWHERE,
    against: Sequence[str] = (),
    as_floats: bool = False,
    builders: Builders | None = None,
    definitions: TaskStore | None = None,
    base: CostModel | None = None,
    reference_s: float | None = None,
) -> Artifact:
    """Compile one model, called `name` where it has a better one than its own. It is verified by
    ONNX Runtime and the operators in float64 if it is an ONNX model, and by these alone if another
    frontend describes it.

    `runner` measures on the device that the target names (None: in a child process here); `records`
    are read for schedules that are known and extended with what is measured. Once it is verified,
    the model is raced with the engines `against` which it is to be, where the device has them.
    `as_floats` compiles the float form of a quantized model, whose outputs are not the model's: it
    is for comparisons, and not to be verified. `builders` compile kernels beside this machine.
    `definitions` are told what the tasks are that new records name. Tuning begins with what the
    cost model `base` has learned (None: the one that ships). `reference_s` is the time of Farrier's
    own reference (`release/reference_time.py`; None: the environment's). Raises FarrierError;
    StoppedError after the step that `dump.until` names.
    """
    # Without tuning it takes seconds, most of them with trees of IR.
    collection = contextlib.nullcontext() if options.tunes else no_collection()
    with (
        collection,
        _compilation(
            model if isinstance(model, Source) else model_of(model),
            options,
            name=name,
            runner=runner,
            records=records,
            listener=listener,
            dump=dump,
            as_floats=as_floats,
            builders=builders,
            definitions=definitions,
            base=base,
            reference_s=reference_s,
            tunes=options.tunes,
        ) as compilation,
    ):
        return compilation.finished(compilation.forms(), against)


def improved_models(
    model: Model,
    options: CompileOptions,
    rounds: Sequence[CompileOptions],
    *,
    runner: Runner | None = None,
    records: RecordStore | None = None,
    listener: Listener = ignore,
    against: Sequence[str] = (),
    builders: Builders | None = None,
    definitions: TaskStore | None = None,
    base: CostModel | None = None,
    reference_s: float | None = None,
    begins: bool = True,
    since: Artifact | None = None,
) -> Generator[Artifact]:
    """What `compile_model` makes of the options, by which nothing is searched, where this `begins`;
    then, tuned round by round, each artifact that won its race against the one before. `since` is
    an artifact that is in use already: it is gone on from, and nothing else begins. A round has its
    trials and its budget from its own options, and goes on from what those before have measured.
    The rest is as for `compile_model`. Raises FarrierError."""
    with _compilation(
        model,
        options,
        runner=runner,
        records=records,
        listener=listener,
        builders=builders,
        definitions=definitions,
        base=base,
        reference_s=reference_s,
        tunes=True,
    ) as compilation:
        forms = compilation.forms(since)
        if begins and since is None:
            yield compilation.finished(forms, against)
        for one in rounds:
            better = compilation.improved(forms, one)
            pairs = zip(forms, better, strict=True)
            if not all(new.variant.is_same_code(old.variant) for old, new in pairs):
                yield compilation.finished(better, against)
            forms = better


def settled(options: CompileOptions) -> CompileOptions:
    """The options with as many threads as this machine tunes for, so that code that is tuned takes
    the place of code that is not. Raises UsageError for what the target or this machine cannot
    do."""
    settings, _ = _settings(options, is_here=True)
    return dataclasses.replace(options, threads=settings.threads)


@contextlib.contextmanager
def _compilation(
    model: Model | Source,
    options: CompileOptions,
    *,
    name: str = "",
    runner: Runner | None = None,
    records: RecordStore | None = None,
    listener: Listener,
    dump: Dump = _NOWHERE,
    as_floats: bool = False,
    builders: Builders | None = None,
    definitions: TaskStore | None = None,
    base: CostModel | None = None,
    reference_s: float | None = None,
    tunes: bool,
) -> Iterator[_Compilation]:
    """The model, imported, with all that compiles and measures it; `tunes` where candidates are
    measured, at once or later."""
    settings, measured = _settings(options, is_here=runner is None)
    steps = Steps(listener, dump)
    with contextlib.nullcontext() if isinstance(model, Source) else reading(model):
        imported = _imported(model, options, steps, listener)
        if as_floats:
            imported = _as_floats(imported)
        hot = hot_sizes(imported.dims, hot_asked(imported, options.hot))
        check_hot(imported, options.hot, hot)
        count = helpers_for(len(imported.graph.nodes), options.cores, tunes=tunes)
        with (
            LocalDevice(backend_of(settings.target).runner()) as local,
            Helpers(count, settings.target, settings.threads, builders) as helpers,
        ):
            device = NotedRunner(local.runner if runner is None else runner, listener)
            yield _Compilation(
                model,
                name or model.name,
                imported,
                hot,
                steps,
                settings,
                measured,
                options,
                device,
                local.blobs,
                MemoryRecords() if records is None else records,
                helpers,
                device.say,
                as_floats,
                tunes,
                definitions,
                base,
                reference_s_of(os.environ) if reference_s is None else reference_s,
            )


def has_float_form(model: Model, options: CompileOptions) -> bool:
    """Whether tensors between the model's operators are quantized. Raises FarrierError for a model
    that cannot be imported."""
    with reading(model):
        return has_pairs(_typed(model, options.shapes, options.hot, options.typical).graph)


def _as_floats(imported: ImportedModel) -> ImportedModel:
    return dataclasses.replace(imported, graph=float_form(imported.graph))


def _typed(
    model: Model | Source,
    shapes: Mapping[str, GivenShape],
    hot: Sequence[Hot] = (),
    typical: Hot = MappingProxyType({}),
) -> ImportedModel:
    """Return the graph that a frontend builds of the model."""
    if isinstance(model, Source):
        return model.imported(shapes, hot, typical)
    from farrier.frontends.onnx.importer import (
        import_model,  # It imports onnx, which other models do not need.
    )

    return import_model(model, shapes, hot, typical)


def _imported(
    model: Model | Source, options: CompileOptions, steps: Steps, listener: Listener
) -> ImportedModel:
    """The model as a graph, its sizes settled."""
    with steps("import") as step:
        imported = _typed(model, options.shapes, options.hot, options.typical)
        imported = step.done(with_states(imported, options.states))
    if imported.dims:
        listener(_settled(imported))
    for notice in imported.notices:
        listener(Warned(f"{model.name}: {notice}", SIZES))
    return imported


@dataclasses.dataclass(frozen=True)
class _Form:
    """The model as kernels with schedules: at all sizes that it may have, or at hot ones."""

    prepared: Graph
    default: Variant  # as the analytic ranking has it
    variant: Variant
    comparison: Comparison
    sizes: Mapping[str, int]  # hot ones, by symbol
    race: Race | None = None  # between the default and what tuning found
    tuning: Mapping[str, Any] | None = None  # what the time to tune was spent on

    @property
    def in_use(self) -> Variant:
        """What is to be beaten: the default, where the variant is the same code."""
        return self.default if self.variant.is_same_code(self.default) else self.variant

    def beside(self, general: _Form) -> _Form:
        """The same, at hot sizes, with panels and kernels of the general form where these do as
        well."""
        variant = with_shared_panels(self.variant, general.variant)
        variant = with_shared_kernels(variant, general.variant, self.sizes)
        return dataclasses.replace(self, variant=variant)


def _shown(forms: Sequence[_Form]) -> _Form:
    """The form that figures are of: the first at hot sizes, where there is one."""
    return forms[1] if len(forms) > 1 else forms[0]


@contextlib.contextmanager
def _of_sizes(imported: ImportedModel) -> Iterator[None]:
    """Raises UnresolvedShapeError for a question about the model's open dims that a pass or a
    kernel cannot leave open, under the names that the user knows."""
    try:
        yield
    except Undecided as error:
        names = {dim.symbol: dim.name for dim in imported.dims}
        text = re.sub(r"\bs\d+\b", lambda symbol: names.get(symbol[0], symbol[0]), str(error))
        raise UnresolvedShapeError(
            f"the model cannot be compiled for all of its sizes: {text}",
            hint="give --shape numbers, or ranges in which this does not change",
        ) from error


@dataclasses.dataclass(frozen=True)
class _Compilation:
    """The steps from an imported model to native code that is verified. A model with hot sizes has
    several forms, and each goes the same way as one without."""

    model: Model | Source
    name: str
    imported: ImportedModel
    hot: Sequence[Mapping[str, int]]
    steps: Steps
    settings: Settings
    threads: int  # that verify it
    options: CompileOptions
    device: NotedRunner
    blobs: Blobs
    records: RecordStore
    helpers: Helpers
    listener: Listener
    as_floats: bool
    tunes: bool  # at once, or later
    definitions: TaskStore | None
    base: CostModel | None
    reference_s: float

    def forms(self, since: Artifact | None = None) -> list[_Form]:
        """The model at all its sizes, and at each hot one: only these are tuned, where there are
        any. With the schedules that it has in the artifact `since`, if any. Raises ArtifactError
        for one of other options."""
        hot = self.hot
        remakes = [None] * (1 + len(hot)) if since is None else self.remakes(since)
        said = _warn(self.imported.graph, (), self.listener)
        tunes = self.options.tunes and not hot
        with _of_sizes(self.imported):
            general = self.form(placed(self.imported), tunes, remake=remakes[0])
        if message := slower_than_floats(self.imported.graph, general.variant):
            self.listener(Warned(message))
        if hot and not self.tunes:  # nothing is measured meanwhile
            self.helpers.begin(lowered(general.variant.choices, self.settings.target))
        forms = [general]
        for number, sizes in enumerate(hot):
            self.steps.part = f"-hot{number}"
            with self.steps("import") as step:
                one = _typed(self.model, shapes_at(self.imported, sizes))
                one = step.done(_as_floats(one) if self.as_floats else one)
            said = _warn(one.graph, said, self.listener)
            remake = remakes[1 + number]
            graph = placed(self.imported, one.graph)
            forms.append(self.form(graph, self.options.tunes, sizes, remake))
        self.steps.part = ""
        for kernels in slow_of_forms(form.variant.choices for form in forms):
            for message in messages(kernels):
                self.listener(Warned(message))
        return forms

    def remakes(self, since: Artifact) -> Sequence[Callable[[Graph], Variant]]:
        """What makes each form's variant in the artifact of what was prepared of the form."""
        if len(since.schedules) != 1 + len(self.hot):
            raise ArtifactError(f"{since.manifest.name} was made with other options")
        reports = since.manifest.kernels
        return [
            functools.partial(
                remade, settings=self.settings_for(sizes), given=given, reports=reports
            )
            for sizes, given in zip(({}, *self.hot), since.schedules, strict=True)
        ]

    def settings_for(self, sizes: Mapping[str, int]) -> Settings:
        """Those of the form for hot `sizes`; of that for any, where there are none."""
        return self.settings if sizes else for_any_size(self.settings, self.hot)

    def improved(self, forms: Sequence[_Form], options: CompileOptions) -> list[_Form]:
        """Those of the forms that are tuned after one more round; the variant of one stays what it
        is where nothing beats it."""
        general, hot = forms[0], forms[1:]
        if not hot:
            return [self.tuned(general, options)]
        return [general, *(self.tuned(form, options) for form in hot)]

    def form(
        self,
        imported: Graph,
        tunes: bool,
        sizes: Mapping[str, int] = MappingProxyType({}),
        remake: Callable[[Graph], Variant] | None = None,
    ) -> _Form:
        """Optimizes, partitions and schedules a graph, which is for the hot `sizes`, where it is
        for any; `remake` makes the variant that is in use."""
        steps, settings = self.steps, self.settings_for(sizes)
        with steps("prepare") as step:
            prepared = step.done(prepare(imported, settings))
        with steps("optimize") as step:
            graph = step.done(finish(prepared, settings))
        with steps("partition") as step:
            tasks, program = step.done(extract_tasks(graph, share_channels=settings.beside_hot))
        self.listener(TasksFound(len(tasks), len(program.calls)))
        with steps("space") as step:
            choices = step.done(
                choose_defaults(
                    tasks, program.calls, settings.target, settings.threads, self.listener
                )
            )
        default = Variant(settings, graph, program, choices)
        self.tell(default, sizes)
        comparison = Comparison(
            settings.target, settings.threads, self.device, self.blobs, self.helpers
        )
        form = _Form(prepared, default, default, comparison, sizes)
        if remake is not None:
            with steps("schedule") as step:
                form = dataclasses.replace(form, variant=step.done(remake(prepared)))
            self.tell(form.variant, sizes, default)
            return form
        return self.tuned(form, self.options) if tunes else self.known(form)

    def tell(
        self, variant: Variant, sizes: Mapping[str, int], before: Variant | None = None
    ) -> None:
        """Say which schedules the tasks have by now."""
        if variant is not before:
            for event in told(variant, sizes, before):
                self.listener(event)

    def known(self, form: _Form) -> _Form:
        """The form with the best schedules that records know."""
        with self.steps("schedule") as step:
            variant = step.done(known_variant(form.prepared, form.default, self.records))
        if self.options.verify:
            found = self.raced_by(form, variant, form.comparison, Clock())
        else:
            found = dataclasses.replace(form, variant=variant)
        self.tell(found.variant, form.sizes, form.default)
        return found

    def tuned(self, form: _Form, options: CompileOptions) -> _Form:
        """The form with the best schedules that are found within the options' trials and budget,
        which forms at hot sizes share."""
        options = options.shared(max(1, len(self.hot)))
        clock = Clock(options.budget_s)
        comparison = form.comparison.by(clock, racers=2 if form.in_use is form.default else 3)
        base = self.base or pretrained()
        self.listener(TuningStarted(base.name))
        with self.steps("schedule") as step:
            variant = step.done(
                tune_model(
                    form.prepared,
                    form.default,
                    comparison,
                    self.measurer(clock),
                    self.records,
                    options,
                    clock,
                    self.listener,
                    base,
                    self.definitions,
                )
            )
        found = self.raced_by(form, variant, comparison, clock)
        self.listener(TimeSpent(clock.budget_s, clock.phases, clock.works))
        self.tell(found.variant, form.sizes, form.variant)
        return dataclasses.replace(found, tuning={**clock.report(), "cost_model": base.name})

    def raced_by(
        self, form: _Form, variant: Variant, comparison: Comparison, clock: Clock
    ) -> _Form:
        """The form with the variant, where that wins the race against what is in use: what wins
        part by part may lose as a whole, and the model decides."""
        if variant.is_same_code(form.variant):
            return dataclasses.replace(form, variant=variant)
        with clock.phase("race"), self.steps("compare") as step:
            race = step.done(
                compared(comparison, form.default, form.in_use, variant, self.listener)
            )
        if race is not None and race.is_won:
            return dataclasses.replace(form, variant=variant, race=race)
        return dataclasses.replace(form, race=form.race or race)

    def measurer(self, clock: Clock) -> Callable[[Mapping[str, Task]], TaskMeasurer]:
        """Make what measures schedules of tasks, within the time of `clock`."""
        return functools.partial(
            TaskMeasurer,
            target=self.settings.target,
            runner=self.device,
            blobs=self.blobs,
            policy=TimingPolicy(threads=self.settings.threads),
            helpers=self.helpers,
            clock=clock,
        )

    def finished(self, forms: Sequence[_Form], against: Sequence[str] = ()) -> Artifact:
        """The artifact of all forms, verified, and raced with the engines `against` which it is to
        be."""
        general, *hot = forms
        forms = [general, *(form.beside(general) for form in hot)]
        with self.engine() as engine:  # It starts while kernels are compiled.
            kernels, first = self.kernels(forms)
            verifier = self.reference(engine)
            linked = self.linked(forms, kernels, first)
            verified = None if verifier is None else self.verified(verifier, linked, forms)
        raced: Sequence[Raced] = ()
        if verified is not None:
            self.listener(_said(verified, _shown(forms).race, self.device.is_emulated))
            if verified.parting is not None:
                self.listener(Warned(f"{self.name}: {verified.parting}", VERIFICATION))
            if verified.alone:
                self.listener(Warned(f"{self.name} is {verified.alone}", VERIFICATION))
            raced = self.raced(verified, against)
        elif against:
            names = " and ".join(against)
            self.listener(Warned(f"the model is not raced with {names}: it is not verified"))
        return self.packaged(forms, linked, verified, raced)

    def kernels(self, forms: Sequence[_Form]) -> tuple[Kernels, Plan | None]:
        """The kernels of all forms, whatever they have their schedules from; helper processes go
        these two steps kernel by kernel (`farrier.kernels.compile`). And the plan of the first
        form, where its kernels were begun before those of others."""
        first = forms[0].variant
        plans: list[Plan] = []

        def plan(begun: Kernels) -> None:
            if first.choices.keys() <= begun.interfaces.keys():
                plans.append(planned(first, begun))

        choices = {key: one for form in forms for key, one in form.variant.choices.items()}
        with self.steps("lower") as step:
            note = step.note if step.is_read else None
            build_inputs = step.done(lowered(choices, self.settings.target, note))
        with self.steps("codegen") as step:
            kernels = step.done(self.helpers.compile(build_inputs, plan))
        return kernels, next(iter(plans), None)

    def engine(self) -> contextlib.AbstractContextManager[OnnxRuntime | None]:
        """Return a context that holds ONNX Runtime's process, or None if it is not installed, the
        model is not an ONNX model, or nothing is to be verified."""
        engine = None
        if self.options.verify and not isinstance(self.model, Source):
            engine = OnnxRuntime.of(
                self.model,
                lambda message: self.listener(Warned(message, VERIFICATION)),
                self.reference_s,
            )
        return contextlib.nullcontext() if engine is None else engine

    def reference(self, engine: OnnxRuntime | None) -> Verifier | None:
        """Return the verifier with the model's reference outputs, or None if nothing is to be
        verified or no random input has a result. It is created before parameters are packed,
        because packing holds them in memory once more. Raises TimeLimitError where no reference
        came to its end."""
        if not self.options.verify:
            return None
        inputs, outputs = specs(self.imported)
        precision, blobs = self.settings.precision, self.blobs
        try:
            with self.steps("reference") as step:
                return step.done(
                    Verifier(
                        engine,
                        None if isinstance(self.model, Source) else self.model,
                        self.imported,
                        inputs,
                        outputs,
                        blobs,
                        precision,
                        self.reference_s,
                    )
                )
        except UnverifiableError as error:
            message = f"{self.name} is not verified: {error.message}"
            self.listener(Warned(message, VERIFICATION))
            return None

    def linked(self, forms: Sequence[_Form], kernels: Kernels, first: Plan | None) -> LinkedModel:
        """One library of all forms: the code at hot sizes, and that at all others, planned already
        where there is `first`."""
        with self.steps("link") as step:
            return step.done(
                link(
                    [form.variant for form in forms],
                    [form.sizes for form in forms],
                    kernels,
                    first,
                )
            )

    def verified(
        self, verifier: Verifier, linked: LinkedModel, forms: Sequence[_Form]
    ) -> Verification | None:
        """Run the whole model on the device; return None if it refuses all inputs that are drawn.
        Raises VerificationError."""
        # Where the data decides sizes, the typical ones say nothing of a run.
        sized = not linked.capacities and not linked.counted
        floor_ns = min(map(self.floor_ns, forms)) if sized else 0
        with self.steps("verify") as step:
            try:
                verified = verifier.verify(linked, self.device, self.threads, floor_ns)
            except UnverifiableError as error:
                message = f"{self.name} is not verified: {error.message}"
                self.listener(Warned(message, VERIFICATION))
                return step.done(None)
            if verified.untrusted:
                message = (
                    f"the model is verified by the device {verified.device} alone, which nobody "
                    f"trusts: `farrier devices trust {verified.device}` vouches for it"
                )
                self.listener(Warned(message, VERIFICATION))
            return step.done(verified)

    def floor_ns(self, form: _Form) -> int:
        """The nanoseconds that no run of a form can beat."""
        target, variant = self.settings.target, form.variant
        floors = {
            key: floor_ns(choice.program, target, self.threads)
            for key, choice in variant.choices.items()
        }
        return floor_of_run(variant.program, floors)

    def raced(self, verified: Verification, engines: Sequence[str]) -> Sequence[Raced]:
        """How other engines do on the device, if there are any to race with."""
        if not engines:
            return ()
        names = " and ".join(engines)
        if isinstance(self.model, Source):
            message = f"the model is not raced with {names}: it is not an ONNX model"
            self.listener(Warned(message))
            return ()
        if self.device.is_emulated:
            message = f"the model is not raced with {names}: the device is emulated"
            self.listener(Warned(message))
            return ()
        self.listener(StageStarted("against"))
        begin = time.perf_counter()
        raced = race_with(engines, self.model, verified, self.device, self.blobs, self.listener)
        self.steps.seconds["against"] = time.perf_counter() - begin
        self.listener(StageFinished("against", self.steps.seconds["against"]))
        return raced

    def packaged(
        self,
        forms: Sequence[_Form],
        linked: LinkedModel,
        verified: Verification | None,
        raced: Sequence[Raced],
    ) -> Artifact:
        """The model's artifact, with what is known of how it was made, but for an emulated device's
        times."""
        shown = _shown(forms)
        emulated = self.device.is_emulated
        records = MemoryRecords() if emulated else self.records
        return package(
            self.name,
            self.imported,
            [form.variant for form in forms],
            linked,
            verified=verified,
            race=shown.race,
            tuning=shown.tuning,
            algorithms=algorithms_report(shown.prepared, shown.variant.settings, records),
            seconds=self.steps.seconds,
            records=records,
            emulated=emulated,
            raced=raced,
        )


def _settings(options: CompileOptions, is_here: bool) -> tuple[Settings, int]:
    """What the model is compiled for, and by how many threads it is verified; `is_here` where this
    machine runs it. Raises UsageError for what the target or this machine cannot do."""
    target = parse_target(options.target)
    precision = parse_precision(options.precision)
    _check_precision(precision, target)
    if is_here and options.needs_device:
        _check_measurable_here(target)
    threads = options.threads or target.cores
    measured = threads  # on the device: here there may be fewer cores than the target has
    if is_here and not options.threads:
        measured = min(threads, cores())
        threads = measured if options.tunes else threads
    return Settings(target, threads, options.max_layer_error, precision), measured


def _check_precision(precision: Precision, target: Target) -> None:
    """Raises UsageError where the target has no instruction for a precision."""
    taken = backend_of(target).precisions
    possible = [name for name, needs in taken.items() if needs <= target.required_features]
    if precision.value in possible:
        return
    missing = taken.get(precision.value, frozenset()) - target.required_features
    what = f"takes {', '.join(sorted(missing))}" if missing else "takes instructions"
    raise UsageError(
        f"precision {precision} {what}, which the target {target.cpu} does not have",
        hint=f"--precision {' or '.join(possible)}; --target host on a machine that has them",
    )


def _check_measurable_here(target: Target) -> None:
    """Raises UsageError where this machine cannot run code for the target."""
    if why := why_not_here(target.triple, target.cpu, target.features):
        raise UsageError(
            f"code for {target.cpu} cannot be measured or verified here: {why}",
            hint="--no-verify without --trials and --budget runs nothing; "
            "`farrier submit` measures on a device of that kind",
        )


def _warn(graph: Graph, before: Collection[str], listener: Listener) -> set[str]:
    """Say which branches are not compiled, but for what was said `before`; give all that is
    said."""
    said = dict.fromkeys(
        f"a run that takes one branch of node {node.origin!r} will end with an error: "
        f"{node.attr('reason')}"
        for node in failures(graph)
    )
    for message in said:
        if message not in before:
            listener(Warned(message))
    return {*before, *said}


def _settled(imported: ImportedModel) -> SizesSettled:
    return SizesSettled(list(map(str, imported.dims)), list(map(str, imported.preconditions)))


def _said(verified: Verification, race: Race | None, emulated: bool) -> Verified:
    return Verified(
        verified.max_error,
        verified.median_ms,
        None if race is None else race.default_ms,
        verified.device,
        emulated,
        "" if verified.parting is None else verified.parting.engine,
        verified.confirmed_by,
        verified.untrusted,
    )
