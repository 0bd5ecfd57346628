"""Exploration of accelerator parameters: compile each model for each shape (accelerator
description), and compare cycles and area."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from farrier import pipeline
from farrier.cache.files import content_of
from farrier.cache.key import compiler_stamp, entry_key
from farrier.errors import InvalidModelError, NotFoundError
from farrier.files.atomic import write_text_atomically
from farrier.frontends.onnx.model.file import Model
from farrier.hardware.artifact_figures import figures_of
from farrier.hardware.chart import chart
from farrier.hardware.figures import Figures, area_of, rows_of
from farrier.hardware.kept import Kept
from farrier.hardware.published import Publication, Published, publish
from farrier.options import CompileOptions
from farrier.progress import Listener
from farrier.records import FileRecords
from farrier.runtime.artifact import load
from farrier.sdk.client import Client
from farrier.targets.dae.description import Accelerator, to_features, to_json, to_toml
from farrier.targets.dae.machines import described
from farrier.targets.names import to_text

Listening = Callable[[], AbstractContextManager[Listener]]


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A model to compile for a shape (accelerator description). Two candidates with the same key
    have the same figures."""

    shape: Accelerator
    model: Path
    options: CompileOptions
    key: str


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The figures of a candidate. `is_kept` is true if they come from the folder of an earlier
    run."""

    candidate: Candidate
    figures: Figures
    is_kept: bool


class Exploration:
    """A comparison of all `models` on all `shapes` (accelerator descriptions). The folder contains
    all results so far in `results.jsonl`, the results of this run in `pareto.json` and
    `pareto.svg`, and the descriptions in `shapes/`."""

    def __init__(
        self,
        shapes: Sequence[Accelerator],
        models: Sequence[Path],
        folder: Path,
        *,
        trials: int | None = None,
        seed: int = 0,
        publication: Publication | None = None,
    ) -> None:
        """Prepare the candidates. With a `publication` they become jobs of its server, where the
        exploration and its results are stored too. Raises FarrierError if a model cannot be read,
        the folder cannot be written, or the server does not store the exploration."""
        self._shapes, self._folder, self._publication = shapes, folder, publication
        self._areas: dict[str, dict[str, int]] = {each.name: area_of(each) for each in shapes}
        self._clocks: dict[str, list[float]] = {}  # MHz of each placement, by shape.
        self._results: list[Result] = []
        models = list(dict.fromkeys(models))
        names = [model.name for model in models]
        self._names = {
            model: model.name if names.count(model.name) == 1 else str(model) for model in models
        }
        contents = [_content(model) for model in models]
        self.candidates: list[Candidate] = []
        for shape in shapes:
            text = to_toml(shape)
            write_text_atomically(folder / "shapes" / f"{shape.name}.toml", text)
            options = CompileOptions(to_text(described(shape)), trials=trials, seed=seed)
            for model, content in zip(models, contents, strict=True):
                key = entry_key(content, options, {}) + _place_of(publication)
                self.candidates.append(Candidate(shape, model, options, key))
        self._kept = Kept(folder / "results.jsonl")
        self._records = FileRecords(folder / "records.jsonl")
        self._published: Published | None = None
        if publication is not None:
            keys = [each.key for each in self.candidates]
            names_shown = list(self._names.values())
            self._published = publish(publication, shapes, names_shown, keys, self._kept)

    @property
    def url(self) -> str:
        """The URL of the exploration's page on the server; "" without a server."""
        return "" if self._published is None else self._published.url

    def synthesize(self, *, places: bool = False) -> Iterator[tuple[Accelerator, dict[str, Any]]]:
        """Add the cells of an ECP5 to the area of each shape, and with `places` the clocks that
        its placements allow; yield both as a JSON object. Raises UsageError."""
        from farrier.targets.dae.rtl.area import cells, place

        for shape in self._shapes:
            text = json.dumps([compiler_stamp(), to_features(shape)])
            verb = "place" if places else "area"
            key = f"{verb} {hashlib.sha256(text.encode()).hexdigest()}"
            counted = self._kept.get(key)
            if counted is None:
                if places:
                    placed = place(shape)
                    counted = dataclasses.asdict(placed.cells) | {"mhz": list(placed.mhz)}
                    counted["part"] = placed.part
                else:
                    counted = dataclasses.asdict(cells(shape))
                self._kept.add(key, counted)
            area = {name: value for name, value in counted.items() if name != "part"}
            if clocks := area.pop("mhz", None):
                self._clocks[shape.name] = clocks
            self._areas[shape.name] |= area
            if self._published is not None:
                self._published.add_area(shape.name, counted)
            yield shape, counted

    def run(self, listening: Listening) -> Iterator[Result]:
        """Compile the candidates, in this process or as jobs of the farm, and yield each result
        once it is saved and shown in the folder. Raises FarrierError."""
        jobs = self._submitted(self._publication) if self._publication else {}
        for candidate in self.candidates:
            kept = self._kept.get(candidate.key)
            if kept is None:
                with listening() as listener:
                    figures = self._figures(candidate, jobs, listener)
                self._kept.add(candidate.key, dataclasses.asdict(figures))
            else:
                figures = Figures(**kept)
            result = Result(candidate, figures, kept is not None)
            self._results.append(result)
            self._show()
            if self._published is not None:
                self._published.add_figures(*self._pair(candidate), figures)
            yield result

    def _figures(
        self, candidate: Candidate, jobs: Mapping[str, str], listener: Listener
    ) -> Figures:
        if self._publication is None:
            model = Model.of_path(candidate.model)
            return figures_of(
                pipeline.compile_model(
                    model, candidate.options, records=self._records, listener=listener
                )
            )
        client = self._publication.client
        client.wait(jobs[candidate.key])
        with tempfile.TemporaryDirectory(prefix="farrier-explore-") as folder:
            path = Path(folder) / "model.farrier"
            return figures_of(load(client.fetch(jobs[candidate.key], path)))

    def _submitted(self, publication: Publication) -> dict[str, str]:
        """Submit a job for each candidate that has no saved result and no usable job of an earlier
        run. Return the job ids by candidate key."""
        jobs = {}
        for candidate in self.candidates:
            submitted = self._kept.get(f"job {candidate.key}")
            if self._kept.get(candidate.key) is None:
                if submitted is None or not _is_of_use(publication.client, submitted["job"]):
                    submitted = {"job": _submit(publication, candidate)}
                    self._kept.add(f"job {candidate.key}", submitted)
                jobs[candidate.key] = submitted["job"]
            if submitted is not None and self._published is not None:
                self._published.add_job(*self._pair(candidate), submitted["job"])
        return jobs

    def _pair(self, candidate: Candidate) -> tuple[str, str]:
        """Return the names of a candidate's model and shape."""
        return self._names[candidate.model], candidate.shape.name

    # -- what the folder shows

    def rows(self) -> list[dict[str, Any]]:
        """Return the results as JSON objects, with the area of the shape, and whether the shape is
        on the Pareto front for the model."""
        figures = {self._pair(each.candidate): each.figures for each in self._results}
        return rows_of(figures, self._areas, self._clocks)

    def _show(self) -> None:
        results = self.rows()
        shapes = {each.name: to_json(each) for each in self._shapes}
        document = json.dumps({"shapes": shapes, "results": results}, indent=1)
        write_text_atomically(self._folder / "pareto.json", document + "\n")
        write_text_atomically(self._folder / "pareto.svg", chart(results))


def _content(path: Path) -> str:
    """Return the hash of a model file. Raises FarrierError that names the file."""
    try:
        return content_of(Model.of_path(path))
    except InvalidModelError as error:
        raise InvalidModelError(f"{path}: {error.message}", hint=error.hint) from None


def _place_of(publication: Publication | None) -> str:
    """Return the text by which a candidate's key distinguishes where its job runs."""
    if publication is None:
        return ""
    return publication.client.url + (" private" if publication.private else "")


def _submit(publication: Publication, candidate: Candidate) -> str:
    """Queue the job of a candidate, and return its id. Raises FarrierError."""
    options = candidate.options
    job = publication.client.submit(
        candidate.model,
        target=options.target,
        trials=options.trials,
        seed=options.seed,
        name=f"{candidate.model.stem} on {candidate.shape.name}",
        private=publication.private,
    )
    return job.id


def _is_of_use(client: Client, job_id: str) -> bool:
    """Return whether the server knows the job, and the job has succeeded or may still succeed."""
    try:
        job = client.job(job_id)
    except NotFoundError:
        return False
    return job.state == "succeeded" or not job.final
