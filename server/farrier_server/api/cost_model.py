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

    pairs: float = Field(
        description="The fraction of pairs of candidates that are ranked in the right order."
    )
    regret: float = Field(
        description="The additional time of the candidate that is ranked first, as a fraction of "
        "the best known time."
    )
    top5: float = Field(
        description="The best known time divided by the best time of the five candidates that are "
        "ranked first."
    )

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
        description="The accuracy by ranking: of the `trained` model, of the `analytic` model, "
        "and of the versions that the trained model had to surpass."
    )
    unseen: dict[str, dict[str, FiguresView]] = Field(
        description="The accuracy by device class: of a model that was `trained` without the "
        "records of that class, and of the `analytic` model."
    )
    records: int = Field(description="The number of records on which the model was trained.")
    tasks: int = Field(description="The number of tasks of these records.")
    held_out: int = Field(
        description="The number of tasks that were excluded from the training, to measure the "
        "accuracy."
    )
    set_aside: int = Field(
        description="The number of records that were left out, because their times differ too much "
        "from those of comparable records."
    )
    shown: list[SetAsideView] = Field(description="Some of the records that were left out.")
    damaged: dict[str, str] = Field(
        description="The reasons why definitions of tasks cannot be read, by task."
    )

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
    created: float = Field(description="The time of the training in Unix seconds.")
    in_use: bool = Field(description="True if new jobs use this version.")
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

    in_use: int = Field(
        description="The number of the version that new jobs use; 0 for the built-in model."
    )
    versions: list[ModelVersionView] = Field(description="The stored versions, the oldest first.")
    trained: float | None = Field(
        description="The time of the last training in Unix seconds; null before the first training."
    )
    last: TrainingView | None = Field(
        description="The outcome of the last training; null before the first training."
    )

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
            description="The number of a version; 0 for the built-in model. By default, the "
            "version before the one in use.",
        ),
    ] = None,
) -> CostModelView:
    """Use another version of the cost model, from the next job on. The replaced version is not used
    again, unless a later training yields the same version and selects it."""
    return CostModelView.of(farm.cost_models.roll_back(to))
