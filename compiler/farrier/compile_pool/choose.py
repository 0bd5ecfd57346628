"""Choose a schedule for each kernel without measuring: from records, or the first by the ranking of
the analytic model.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import re
from collections.abc import Collection, Iterator, Mapping

from farrier.artifact.manifest import KernelReport
from farrier.compile_pool.sites import choose_sites
from farrier.errors import CompilerError
from farrier.ir.dim import Atom, Dim, Extent, Undecided, substitute
from farrier.ir.loop import Function
from farrier.ir.printer import print_ir
from farrier.ir.tensor import TensorProgram
from farrier.ir.work import arithmetic, factors, multiply_adds
from farrier.lower.region import lower_region
from farrier.ops.verify import verify
from farrier.partition import Call, Task
from farrier.progress import Listener, Warned
from farrier.progress.debug import check_level
from farrier.records import RecordStore, TaskDefinition, best, latest, usable
from farrier.records.definition import MOST_CHARACTERS
from farrier.records.record import pairs
from farrier.space import Space
from farrier.targets import Target
from farrier.targets.siting import HERE, Site

MARGIN = 0.01  # The fraction by which a schedule must be faster than the default.


@dataclasses.dataclass(frozen=True, slots=True)
class ScheduledTask:
    """The schedule chosen for a task. `source` is as in the manifest: tuned, transferred or
    default; `origin` names the model's nodes that the first call computes."""

    task: Task
    program: TensorProgram | Function
    space: Space
    decisions: Mapping[str, int]
    source: str
    calls: int
    operations: int
    measured_s: float | None = None
    origin: str = ""
    site: Site = HERE

    @property
    def seconds(self) -> float:
        """The seconds of all calls of the task in a run of the model, as measured or predicted."""
        measured_s = self.measured_s
        call_s = self.space.seconds(self.decisions) if measured_s is None else measured_s
        return self.calls * call_s

    @property
    def slow_reason(self) -> str | None:
        """The reason why the kernel runs element by element on one thread; None if it does not."""
        is_default_rule = self.space.rule_of(self.decisions) == self.space.rule
        return self.space.slow_reason if is_default_rule else None

    def printed(self) -> tuple[str, TensorProgram | Function]:
        """The task's symbol, and the program that the kernel computes, for dumps."""
        return self.task.symbol, self.program

    def definition(self, target: Target, threads: int) -> TaskDefinition | None:
        """Return the definition (program, target, threads) that is stored with the tuning records
        of the task; None if the printed program is too long to be stored."""
        program = print_ir(self.program)
        if len(program) > MOST_CHARACTERS:
            return None
        fields = json.dumps(target.to_dict(), sort_keys=True, separators=(",", ":"))
        return TaskDefinition(self.task.key, target.fingerprint, threads, program, fields)

    def report(self) -> KernelReport:
        program = self.program if isinstance(self.program, TensorProgram) else None
        multiplied = None if program is None else factors(program)
        return KernelReport(
            name=self.task.name,
            task=self.task.key,
            calls=self.calls,
            operations=self.operations,
            multiply_adds=0 if program is None else multiply_adds(program),
            factors=" ".join(multiplied or ()),
            rule=self.space.rule_of(self.decisions).name,
            source=self.source,
            predicted_us=self.space.seconds(self.decisions) * 1e6,
            measured_us=None if self.measured_s is None else self.measured_s * 1e6,
            space="" if self.site == HERE else self.site.space,
            reason=self.site.reason,
        )


def default_schedules(
    tasks: Mapping[str, Task],
    calls: Collection[Call],
    target: Target,
    threads: int,
    listener: Listener,
    reused: Mapping[str, ScheduledTask] | None = None,
) -> dict[str, ScheduledTask]:
    """Return, for every task by key, the schedule that the analytic model ranks first. The spaces
    of the choices `reused`, for the same target and threads, are reused."""
    target = target.for_kernels(len(tasks))
    counts: collections.Counter[str] = collections.Counter()
    origins: dict[str, str] = {}
    for call in calls:
        counts[call.task] += call.runs
        origins.setdefault(call.task, call.origin)
    reused = reused or {}
    programs = {
        key: _program(task, calls, origins.get(key, ""))
        for key, task in tasks.items()
        if key not in reused
    }
    has_device = len(target.backend.parts(target)) > 1
    constants = _constants(tasks, calls) if has_device else ()
    sites = choose_sites(programs, target, calls, constants)
    choices = {}
    for key, task in tasks.items():
        if key in reused:
            same = reused[key]
            choices[key] = dataclasses.replace(
                same,
                decisions=same.space.default(),
                source="default",
                calls=counts[key],
                measured_s=None,
                origin=origins.get(key, ""),
            )
            continue
        program, machine = programs[key], target.part(sites[key].space)
        with _about(task, calls, origins.get(key, "")):
            space = machine.backend.space(program, machine, threads)
        for reason in space.passed_over:
            listener(Warned(f"{task.name} is scheduled by the rule {space.rule.name}: {reason}"))
        choices[key] = ScheduledTask(
            task=task,
            program=program,
            space=space,
            decisions=space.default(),
            source="default",
            calls=counts[key],
            operations=arithmetic(program),
            origin=origins.get(key, ""),
            site=sites[key],
        )
    return choices


def _constants(tasks: Mapping[str, Task], calls: Collection[Call]) -> set[str]:
    """Return the names of the constants that calls read."""
    names: set[str] = set()
    for call in calls:
        task = tasks[call.task]
        pairs = zip(task.region.inputs, call.inputs, strict=True)
        names |= {value.name for own, value in pairs if own.name in task.constant_inputs}
    return names


def _program(task: Task, calls: Collection[Call], origin: str) -> TensorProgram | Function:
    """Return the program of a task before scheduling. Raises CompilerError and Undecided."""
    with _about(task, calls, origin):
        program = lower_region(task.region, task.symbol, task.constant_inputs)
        if check_level() > 0:
            verify(program)
        return program


@contextlib.contextmanager
def _about(task: Task, calls: Collection[Call], origin: str) -> Iterator[None]:
    """Extend errors that are raised within the `with` block: they then name the kernel and the
    nodes of the model."""
    try:
        yield
    except Undecided as error:
        raise _of_model(error, task, calls) from error
    except CompilerError as error:
        raise of_kernel(error, task.symbol, origin) from error


def of_kernel(error: Exception, name: str, origin: str) -> CompilerError:
    """Return an error of the compiler extended by the name of the kernel and the model's nodes."""
    kernel = f"kernel {name} of node {origin!r}" if origin else f"kernel {name}"
    return CompilerError(f"{kernel}: {error}")


def _of_model(error: Undecided, task: Task, calls: Collection[Call]) -> Undecided:
    """Translate an undecided comparison in a kernel, which is about the kernel's own dims, to the
    sizes of the model. The result also names the node of the model."""
    call = next(call for call in calls if call.task == task.key)
    own_dims = task.region.given_dims
    meaning: dict[Atom, Extent] = dict(zip(own_dims, call.dims, strict=True))
    names = {symbol.name: str(meaning[symbol]) for symbol in own_dims}
    text = re.sub(r"\bd\d+\b", lambda name: names.get(name[0], name[0]), error.question.text)
    extent = substitute(error.question.extent, meaning)
    if not isinstance(extent, Dim):  # The sizes of the model alone decide it.
        extent = error.question.extent
    question = dataclasses.replace(error.question, extent=extent, text=f"{text} in {call.origin!r}")
    return Undecided(question)


def schedule_from_records(
    defaults: Mapping[str, ScheduledTask], records: RecordStore, target: Target, threads: int
) -> dict[str, ScheduledTask]:
    """Return the schedule of each task: the fastest schedule in the records for this target. The
    default stays without a record, or if that schedule is not clearly faster than the default in
    the records."""
    chosen = dict(defaults)
    for key, default in defaults.items():
        rules = default.space.rules
        fastest = best(records, key, target.fingerprint, threads, *rules)
        if fastest is None or not default.space.contains(fastest.knobs):
            continue
        alike = usable(records, key, target.fingerprint, threads, *rules)
        measured = latest(record for record in alike if record.context is fastest.context)
        usual = measured.get(pairs(default.decisions))
        if usual is None or fastest.seconds < (1 - MARGIN) * usual.seconds:
            chosen[key] = dataclasses.replace(
                default, decisions=fastest.knobs, source="transferred", measured_s=fastest.seconds
            )
    return chosen
