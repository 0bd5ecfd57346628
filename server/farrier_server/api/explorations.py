"""Routes for explorations: comparisons of models on shapes (accelerator descriptions), which
`farrier explore` runs as jobs, and whose results it stores here."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from farrier.errors import ConflictError, NotFoundError, UsageError
from farrier.hardware.chart import chart
from farrier.hardware.figures import Figures, area_of, rows_of
from farrier.sdk.explorations import CandidateResult, ExploredShape
from farrier.sdk.explorations import Exploration as ExplorationDocument
from farrier.sdk.explorations import ExplorationSummary as SummaryDocument
from farrier.targets.dae.description import Accelerator, from_json, to_json, to_toml
from farrier_farm.farm import Farm
from farrier_farm.jobs.explorations import Exploration, ExplorationSummary, ShapeArea
from farrier_server.access import ViewerDep
from farrier_server.bounds import MOST
from farrier_server.context import FarmDep
from farrier_server.gate import OwnerDep
from farrier_server.problems import documented
from farrier_server.viewer import Viewer
from farrier_server.views import view_of

MOST_SHAPES, MOST_MODELS, MOST_CANDIDATES = 256, 64, 1024
_LONGEST_NAME = 200
# Printable text of one line that XML can contain, because names appear in charts.
_NAME = r"^[^\x00-\x1f\x7f-\x9f\ufffe\uffff]+$"
_JOB_ID = r"^[0-9a-f]{20}$"
_MOST_MS = 1e12
_RESULT_FIELDS = [each.name for each in dataclasses.fields(CandidateResult)]

router = APIRouter(prefix="/v1/explorations", tags=["explorations"])
ExplorationId = Annotated[str, Path(description="The id of the exploration.", max_length=64)]
Name = Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME, pattern=_NAME)]
Milliseconds = Annotated[float, Field(ge=0, le=_MOST_MS)]
Count = Annotated[int, Field(ge=0, le=MOST, strict=True)]


class ExplorationRequest(BaseModel):
    """A request to store a new exploration."""

    model_config = ConfigDict(extra="forbid")

    name: Name = Field(description="The name of the exploration for people.")
    shapes: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MOST_SHAPES,
        description="The descriptions of the accelerators to compare, as JSON objects with "
        "different names. `farrier targets dae:vta` prints a description.",
    )
    models: list[Name] = Field(
        min_length=1,
        max_length=MOST_MODELS,
        description="The different names of the models. There are at most "
        f"{MOST_CANDIDATES:,} pairs of a model and a shape.",
    )
    private: bool = Field(
        default=False, description="True if only the owner may read the exploration."
    )

    def accelerators(self) -> dict[str, Accelerator]:
        """Return the described accelerators by name. Raises UsageError for a malformed description,
        for names that are not distinct, and for too many pairs."""
        shapes = [from_json(raw) for raw in self.shapes]
        names = [shape.name for shape in shapes]
        _check_distinct("shapes", names)
        _check_distinct("models", self.models)
        for name in names:
            _check_name(name)
        if len(shapes) * len(self.models) > MOST_CANDIDATES:
            raise UsageError(
                f"{len(shapes)} shapes and {len(self.models)} models are "
                f"{len(shapes) * len(self.models):,} pairs",
                hint=f"an exploration has at most {MOST_CANDIDATES:,}: compare fewer at a time",
            )
        return dict(zip(names, shapes, strict=True))


class CellCounts(BaseModel):
    """The numbers of cells of an FPGA that a shape needs."""

    model_config = ConfigDict(extra="forbid")

    lut: Count = Field(description="The number of look-up tables.")
    ff: Count = Field(description="The number of flip-flops.")
    dsp: Count = Field(description="The number of multipliers of 18 × 18 bits.")
    ram: Count = Field(description="The number of block RAMs.")


class AreaRequest(BaseModel):
    """The result of the synthesis of a shape."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    shape: Name = Field(description="The name of the shape.")
    cells: CellCounts
    mhz: list[Annotated[float, Field(gt=0, le=1e6)]] = Field(
        default_factory=list,
        max_length=100,
        description="The clock rates in MHz that the placements of the shape allow.",
    )
    part: Annotated[str, Field(max_length=_LONGEST_NAME)] | None = Field(
        default=None,
        description="The FPGA on which the shape was placed; empty if it fits on none, null if it "
        "was not placed.",
    )


class FiguresBody(BaseModel):
    """The figures of a model on a shape."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    cycles: Count = Field(description="The cycles of the accelerator.")
    device_ms: Milliseconds = Field(
        description="The time of the accelerator in ms, at the clock of its description."
    )
    latency_ms: Milliseconds | None = Field(
        description="The time of the whole model in ms; null if the model was not verified."
    )
    share: float = Field(
        ge=0, le=1, description="The fraction of the multiply-adds that run on the accelerator."
    )
    kernels: Count = Field(description="The number of kernels on the accelerator.")
    reason: str = Field(
        default="",
        max_length=10_000,
        description="The reason why the largest kernel on the host does not run there.",
    )


class ResultRequest(BaseModel):
    """The job of a model on a shape, or its figures, or both."""

    model_config = ConfigDict(extra="forbid")

    model: Name = Field(description="The name of the model.")
    shape: Name = Field(description="The name of the shape.")
    job: Annotated[str, Field(pattern=_JOB_ID)] | None = Field(
        default=None, description="The id of the job; null leaves the stored id as it is."
    )
    figures: FiguresBody | None = Field(
        default=None, description="The figures; null leaves the stored figures as they are."
    )


class ShapeView(view_of(ExploredShape)):  # type: ignore[misc]
    """A shape of an exploration, and its area."""


class ResultView(view_of(CandidateResult)):  # type: ignore[misc]
    """The result of a model on a shape. All figures are null until the result is stored."""


class SummaryView(view_of(SummaryDocument)):  # type: ignore[misc]
    """An exploration without its results. Times are Unix seconds."""

    @classmethod
    def of(cls, about: ExplorationSummary) -> SummaryView:
        return cls(**dataclasses.asdict(about))


class ExplorationView(
    view_of(  # type: ignore[misc]
        ExplorationDocument, shapes=list[ShapeView], results=list[ResultView]
    )
):
    """An exploration with all results so far. Times are Unix seconds."""

    @classmethod
    def seen_by(cls, viewer: Viewer, exploration: Exploration, farm: Farm) -> ExplorationView:
        """Return the view of an exploration for a user who may read it. It contains the ids and
        states of the jobs that the user may see."""
        shapes = [
            ShapeView(
                name=name, description=description, **dataclasses.asdict(exploration.areas[name])
            )
            for name, description in exploration.shapes.items()
        ]
        return cls(
            **dataclasses.asdict(exploration.about),
            shapes=shapes,
            models=list(exploration.models),
            results=_results_seen_by(viewer, exploration, farm),
            may_change=viewer.changes_of(exploration.about.owner),
        )


def _results_seen_by(viewer: Viewer, exploration: Exploration, farm: Farm) -> list[ResultView]:
    """Return a result for each pair of a model and a shape, with the job if the user may see it."""
    states = {
        job: standing.state
        for job, standing in farm.explorations.job_standings(exploration.jobs.values()).items()
        if viewer.sees_of(standing.owner, standing.private)
    }
    rows = {(row["model"], row["shape"]): row for row in rows_so_far(exploration)}
    results = []
    for model in exploration.models:
        for shape in exploration.shapes:
            row = rows.get((model, shape), {"on_front": False})
            job = exploration.jobs.get((model, shape))
            seen = {"job": job, "state": states[job]} if job in states else {}
            values = {"model": model, "shape": shape, **row, **seen}
            results.append(ResultView(**{name: values.get(name) for name in _RESULT_FIELDS}))
    return results


class ExplorationPage(BaseModel):
    """A page of explorations, the newest first."""

    explorations: list[SummaryView]
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")


@router.post("", status_code=201, responses=documented(400, 429, 503))
def add_exploration(
    body: ExplorationRequest, farm: FarmDep, owner: OwnerDep, viewer: ViewerDep
) -> ExplorationView:
    """Store a new exploration without results. `farrier explore` adds the results as they come. 429
    if the user already has 500 explorations."""
    accelerators = body.accelerators()
    exploration = farm.explorations.add(
        body.name,
        {name: to_json(shape) for name, shape in accelerators.items()},
        {name: area_of(shape) for name, shape in accelerators.items()},
        body.models,
        owner=owner,
        private=body.private,
    )
    return ExplorationView.seen_by(viewer, exploration, farm)


@router.get("", responses=documented(400, 503))
def list_explorations(
    farm: FarmDep,
    viewer: ViewerDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[
        str, Query(max_length=64, description="The `next` of the previous page.")
    ] = "",
) -> ExplorationPage:
    """Return a page of the explorations that the caller may read, the newest first."""
    page, following = farm.explorations.page(viewer.explorations(), limit=limit, after=after)
    return ExplorationPage(explorations=[SummaryView.of(each) for each in page], next=following)


@router.get("/{exploration_id}", responses=documented(404, 503))
def get_exploration(
    exploration_id: ExplorationId, farm: FarmDep, viewer: ViewerDep
) -> ExplorationView:
    """Return an exploration with all results so far, and the present states of its jobs."""
    return ExplorationView.seen_by(viewer, farm.explorations.get(exploration_id), farm)


@router.delete("/{exploration_id}", status_code=204, responses=documented(403, 404, 503))
def delete_exploration(exploration_id: ExplorationId, farm: FarmDep) -> None:
    """Delete an exploration with its results. Its jobs stay."""
    farm.explorations.remove(exploration_id)


@router.put("/{exploration_id}/area", status_code=204, responses=documented(400, 403, 404, 503))
def set_area(exploration_id: ExplorationId, body: AreaRequest, farm: FarmDep) -> None:
    """Store the result of the synthesis of a shape, instead of an earlier one."""
    _check_has(farm.explorations.get(exploration_id), body.shape)
    area = ShapeArea(body.cells.model_dump(), body.mhz, body.part)
    farm.explorations.set_area(exploration_id, body.shape, area)


@router.put("/{exploration_id}/result", status_code=204, responses=documented(400, 403, 404, 503))
def set_result(exploration_id: ExplorationId, body: ResultRequest, farm: FarmDep) -> None:
    """Store the job or the figures of a model on a shape, instead of earlier ones. The id of a job
    that does not exist any more is accepted, and shown to nobody."""
    _check_has(farm.explorations.get(exploration_id), body.shape, body.model)
    candidate = body.model, body.shape
    if body.job is not None:
        farm.explorations.set_job(exploration_id, candidate, body.job)
    if body.figures is not None:
        farm.explorations.set_figures(exploration_id, candidate, body.figures.model_dump())


@router.get(
    "/{exploration_id}/chart",
    response_class=Response,
    responses={200: {"content": {"image/svg+xml": {}}}, **documented(404, 409, 503)},
)
def get_chart(exploration_id: ExplorationId, farm: FarmDep) -> Response:
    """Return the Pareto chart of the results so far as an SVG: the cycles of each model against
    each figure of area. 409 before the first result."""
    rows = rows_so_far(farm.explorations.get(exploration_id))
    if not rows:
        raise ConflictError(
            f"the exploration {exploration_id} has no results yet",
            hint="the first result comes when its first job has ended",
        )
    return _file(chart(rows), "image/svg+xml", "pareto.svg")


@router.get(
    "/{exploration_id}/description",
    response_class=Response,
    responses={200: {"content": {"application/toml": {}}}, **documented(400, 404, 503)},
)
def get_description(
    exploration_id: ExplorationId,
    farm: FarmDep,
    shape: Annotated[str, Query(max_length=_LONGEST_NAME, description="The name of the shape.")],
) -> Response:
    """Return the description of a shape as a TOML file, for `--target` and `farrier hardware`."""
    exploration = farm.explorations.get(exploration_id)
    if shape not in exploration.shapes:
        raise NotFoundError(
            f"the exploration {exploration_id} has no shape {shape!r}",
            hint=f"GET /v1/explorations/{exploration_id} lists its shapes",
        )
    text = to_toml(from_json(exploration.shapes[shape]))
    name = re.sub(r"[^\w.-]", "_", shape, flags=re.ASCII)
    return _file(text, "application/toml", f"{name}.toml")


def rows_so_far(exploration: Exploration) -> list[dict[str, Any]]:
    """Return the results of an exploration in the format of `pareto.json`."""
    figures = {
        (model, shape): Figures(**exploration.figures[model, shape])
        for model in exploration.models
        for shape in exploration.shapes
        if (model, shape) in exploration.figures
    }
    areas = {name: each.area for name, each in exploration.areas.items()}
    clocks = {name: each.mhz for name, each in exploration.areas.items()}
    return rows_of(figures, areas, clocks)


def _file(text: str, media_type: str, name: str) -> Response:
    """Return an answer that browsers save under `name`, which must not contain special
    characters."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type=media_type, headers=headers)


def _check_name(shape: str) -> None:
    """Check the name of a shape, which no schema bounds because it is part of a description. Raises
    UsageError."""
    if len(shape) > _LONGEST_NAME or not re.search(_NAME, shape):
        raise UsageError(
            f"{shape[:_LONGEST_NAME]!r} cannot be the name of a shape",
            hint=f"a name is a line of 1 to {_LONGEST_NAME} printable characters",
        )


def _check_distinct(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"two {what} have the name {name[:_LONGEST_NAME]!r}", hint="rename one of them"
            )


def _check_has(exploration: Exploration, shape: str, model: str | None = None) -> None:
    """Raise UsageError unless the exploration has this shape and, unless it is None, this
    model."""
    if shape not in exploration.shapes:
        raise UsageError(
            f"the exploration {exploration.about.id} has no shape {shape!r}",
            hint="its shapes are those with which it was created",
        )
    if model is not None and model not in exploration.models:
        raise UsageError(
            f"the exploration {exploration.about.id} has no model {model!r}",
            hint="its models are those with which it was created",
        )
