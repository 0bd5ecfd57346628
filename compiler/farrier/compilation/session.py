"""The session of a compilation: the imported model, and the resources that all steps share."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict, Unpack

from farrier.compilation.importing import check_open_sizes, import_model, typed, with_floats
from farrier.compilation.settings import resolve_settings
from farrier.compile_pool import CompilePool, RemoteCompilers, helpers_for
from farrier.cost_model import CostModel
from farrier.frontends.builder import ImportedModel, Source
from farrier.frontends.formats import Format
from farrier.frontends.onnx.model.bus_errors import reading
from farrier.frontends.onnx.model.file import Model
from farrier.measure import Blobs, LocalDevice, NotedRunner, Runner
from farrier.model_tuning.hot import check_hot, for_any_size, hot_asked, hot_sizes, shapes_at
from farrier.options import CompileOptions
from farrier.packaging.reference_time import reference_s as reference_s_of
from farrier.passes import Settings
from farrier.progress import Listener, ignore
from farrier.progress.steps import Dump, Steps
from farrier.records import MemoryRecords, RecordStore, TaskStore


class Resources(TypedDict, total=False):
    """The resources of a compilation, in addition to the model and its options. Each is optional.

    - `runner` measures on the device that the target names. Default: a child process here.
    - `records` are read for known schedules and extended by new measurements. Default: none.
    - `listener` receives the events of `farrier.progress`.
    - `dump` sets where the IR of every step is written, and the step after which to stop.
    - `builders` compile kernels in addition to this machine.
    - `definitions` stores the definitions of the tasks to which new records refer.
    - `base` is the cost model with which tuning starts. Default: the pretrained one.
    - `reference_s` is the time that Farrier's own reference may take, in seconds
      (`packaging/reference_time.py`). Default: the environment's.
    """

    runner: Runner | None
    records: RecordStore | None
    listener: Listener
    dump: Dump
    builders: RemoteCompilers | None
    definitions: TaskStore | None
    base: CostModel | None
    reference_s: float | None


@dataclasses.dataclass(frozen=True)
class Session:
    """The state of one compilation. A model with hot sizes (sizes that get code of their own) has
    several specializations; each of them is compiled in the same way. A model without hot sizes has
    a single one."""

    model: Model | Source
    name: str
    imported: ImportedModel
    hot: Sequence[Mapping[str, int]]  # The hot sizes, by symbol.
    options: CompileOptions
    settings: Settings
    run_threads: int  # The threads of the runs that verify the model.
    steps: Steps
    listener: Listener
    device: NotedRunner
    blobs: Blobs
    helpers: CompilePool
    records: RecordStore
    definitions: TaskStore | None
    base: CostModel | None
    reference_s: float
    as_floats: bool
    tunes: bool  # Set if candidates are measured, at once or later.

    @property
    def onnx_model(self) -> Model | None:
        """The model if it is in ONNX format, so that other engines can run it; else None."""
        if isinstance(self.model, Source) or self.model.format is not Format.ONNX:
            return None
        return self.model

    def settings_for(self, sizes: Mapping[str, int]) -> Settings:
        """Return the settings for the specialization to these sizes; for {}, the settings of the
        form for any size."""
        return self.settings if sizes else for_any_size(self.settings, self.hot)

    def leaving(self, stack_bytes: int) -> Session:
        """Return the session for a compilation that leaves this much memory free for the stack."""
        settings = dataclasses.replace(self.settings, stack_bytes=stack_bytes)
        return dataclasses.replace(self, settings=settings)

    def imported_at(self, sizes: Mapping[str, int]) -> ImportedModel:
        """Import the model a second time, specialized to these sizes of its open dims."""
        with self.steps("import") as step:
            imported = typed(self.model, shapes_at(self.imported, sizes))
            return step.done(with_floats(imported) if self.as_floats else imported)


@contextlib.contextmanager
def open_session(
    model: Model | Source,
    options: CompileOptions,
    *,
    name: str = "",
    as_floats: bool = False,
    tunes: bool,
    **resources: Unpack[Resources],
) -> Iterator[Session]:
    """Import the model and start the processes that compile and measure. `tunes` means that
    candidates will be measured, at once or later. Raises FarrierError."""
    runner, records = resources.get("runner"), resources.get("records")
    listener, reference_s = resources.get("listener", ignore), resources.get("reference_s")
    settings, run_threads = resolve_settings(options, is_here=runner is None)
    steps = Steps(listener, resources.get("dump", Dump()))
    with contextlib.nullcontext() if isinstance(model, Source) else reading(model):
        imported = import_model(model, options, steps, listener)
        check_open_sizes(imported, settings.target)
        imported = with_floats(imported) if as_floats else imported
        hot = hot_sizes(imported.dims, hot_asked(imported, options.hot))
        check_hot(imported, options.hot, hot)
        count = helpers_for(len(imported.graph.nodes), options.cores, tunes=tunes)
        builders = resources.get("builders")
        with (
            LocalDevice(settings.target.backend.runner()) as local,
            CompilePool(count, settings.target, settings.threads, builders) as helpers,
        ):
            device = NotedRunner(local.runner if runner is None else runner, listener)
            yield Session(
                model=model,
                name=name or model.name,
                imported=imported,
                hot=hot,
                options=options,
                settings=settings,
                run_threads=run_threads,
                steps=steps,
                listener=device.say,
                device=device,
                blobs=local.blobs,
                helpers=helpers,
                records=MemoryRecords() if records is None else records,
                definitions=resources.get("definitions"),
                base=resources.get("base"),
                reference_s=reference_s_of(os.environ) if reference_s is None else reference_s,
                as_floats=as_floats,
                tunes=tunes,
            )
