"""Routes for the farm's cost model: its versions, the accuracy figures of each version, and the
rollback to another version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from farrier.records.outcome import Figures, Outcome
from farrier_farm.records.cost_models import CostModelState, ModelVersion
from farrier_server.access import ViewerDep
from farrier_server.bounds import MOST
from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/cost-model", tags=["records"])


class FiguresView(BaseModel):
    """The accuracy with which a cost model ranks the schedules of tasks that were excluded from its
    training."""

    pairs: float = Field(description="share of pairs of candidates in the right order")
    regret: float = Field(description="what its first choice takes beyond the best known")
    top5: float = Field(description="the best over the best of its first five")

    @classmethod
    def of(cls, figures: Figures) -> FiguresView:
        return cls(pairs=figures.pairs, regret=figures.regret, top5=figures.top5)


class SetAsideView(BaseModel):
    """A tuning record that the training of the cost model leaves out."""

    task: str
    rule: str
    decisions: dict[str, int]
    device_class: str
    device: str
    reason: str


class TrainingView(BaseModel):
    """The outcome of a training of the cost model."""

    reason: str
    figures: dict[str, FiguresView] = Field(
        description="by ranking: `trained`, `analytic`, and what was to be beaten"
    )
    unseen: dict[str, dict[str, FiguresView]] = Field(
        description="by device class: of one `trained` without having seen it, and `analytic`"
    )
    records: int = Field(description="that it learned from")
    tasks: int = Field(description="of which these are")
    held_out: int = Field(description="tasks that it was judged by")
    set_aside: int = Field(description="records that are far from all that compares with them")
    shown: list[SetAsideView] = Field(description="some of them")
    damaged: dict[str, str] = Field(description="definitions that cannot be read: by task, why")

    @classmethod
    def of(cls, outcome: Outcome) -> TrainingView:
        shown = [
            SetAsideView(
                task=record.task,
                rule=record.rule,
                decisions=dict(record.decisions),
                device_class=record.device_class,
                device=record.device,
                reason=record.reason,
            )
            for record in outcome.shown
        ]
        return cls(
            reason=outcome.reason,
            figures=_by_ranking(outcome.of),
            unseen={name: _by_ranking(each) for name, each in outcome.unseen.items()},
            records=outcome.records,
            tasks=outcome.tasks,
            held_out=outcome.held_out,
            set_aside=outcome.set_aside,
            shown=shown,
            damaged=dict(outcome.damaged),
        )


def _by_ranking(rankings: Mapping[str, Figures]) -> dict[str, FiguresView]:
    return {name: FiguresView.of(each) for name, each in rankings.items()}


class ModelVersionView(BaseModel):
    """A stored version of the cost model."""

    number: int
    created: float = Field(description="Unix seconds")
    in_use: bool = Field(description="whether jobs begin with it")
    training: TrainingView

    @classmethod
    def of(cls, version: ModelVersion, state: CostModelState) -> ModelVersionView:
        return cls(
            number=version.number,
            created=version.created,
            in_use=version == state.in_use,
            training=TrainingView.of(version.outcome),
        )


class CostModelView(BaseModel):
    """The versions of the cost model that is trained on the farm's records."""

    in_use: int = Field(description="version that jobs begin with; 0: the one that ships")
    versions: list[ModelVersionView] = Field(description="those kept, the oldest first")
    trained: float | None = Field(description="Unix seconds of the last training; null before it")
    last: TrainingView | None = Field(description="what came of that")

    @classmethod
    def of(cls, state: CostModelState) -> CostModelView:
        return cls(
            in_use=0 if state.in_use is None else state.in_use.number,
            versions=[ModelVersionView.of(version, state) for version in state.versions],
            trained=state.decided,
            last=None if state.outcome is None else TrainingView.of(state.outcome),
        )


@router.get("", responses=documented(503))
def get_cost_model(farm: FarmDep, viewer: ViewerDep) -> CostModelView:
    """Return the stored versions of the cost model, and the outcome of the last training. Records
    that the training left out are shown only to users who may read the shared records."""
    view = CostModelView.of(farm.cost_models.state())
    if not viewer.is_operator and not viewer.reads_public:
        for training in [view.last, *(version.training for version in view.versions)]:
            if training is not None:
                training.shown = []
    return view


@router.post("/rollback", responses=documented(404, 409, 503))
def roll_back_cost_model(
    farm: FarmDep,
    to: Annotated[
        int | None,
        Query(
            ge=0,
            le=MOST,
            description="a version; 0: the one that ships. Without it: the one before",
        ),
    ] = None,
) -> CostModelView:
    """Use another version of the cost model, from the next job on. The replaced version is not used
    again, unless a later training yields the same version and selects it."""
    return CostModelView.of(farm.cost_models.roll_back(to))
