"""Versions of the cost model in Redis: published once, kept for a while, rolled back."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from farrier.errors import ConflictError, NotFoundError
from farrier.records.outcome import Figures, Outcome
from farrier_farm.farm import Farm

BETTER = Outcome(True, "it is better", {"trained": Figures(0.9, 0.1, 0.99)}, records=300)
WORSE = Outcome(False, "it is not better than version 1")


def publish(farm: Farm, number: int) -> int | None:
    turn = farm.cost_models.state().turn
    return farm.cost_models.decide(turn, 100 * number, BETTER, f"model {number}".encode())


def in_use(farm: Farm) -> int | None:
    version = farm.cost_models.in_use()
    state = farm.cost_models.state()
    assert version == state.in_use
    return None if version is None else version.number


def numbers(versions) -> list[int]:
    return [version.number for version in versions]


def test_before_the_first_training_there_is_none(farm: Farm) -> None:
    state = farm.cost_models.state()
    assert (state.in_use, state.versions, state.decided, state.outcome) == (None, (), None, None)
    assert in_use(farm) is None
    with pytest.raises(ConflictError, match="no version"):
        farm.cost_models.roll_back()
    with pytest.raises(NotFoundError, match="no version 3"):
        farm.cost_models.roll_back(3)


def test_what_is_better_is_published_and_what_is_not_is_noted(farm: Farm, audit_models) -> None:
    assert publish(farm, 1) == 1
    version = farm.cost_models.in_use()
    assert version is not None
    assert farm.blobs.verified(version.blob).read_bytes() == b"model 1"
    assert version.outcome == BETTER
    assert farm.cost_models.decide(farm.cost_models.state().turn, 150, WORSE) == 0
    state = farm.cost_models.state()
    assert (in_use(farm), state.outcome, state.records) == (1, WORSE, 150)
    assert abs(state.decided - version.created) < 60
    audit_models(["model 1"])


def test_of_several_that_decide_at_once_one_does(farm: Farm) -> None:
    state = farm.cost_models.state()

    def decide(number: int) -> int | None:
        return farm.cost_models.decide(state.turn, 1, BETTER, f"model {number}".encode())

    with ThreadPoolExecutor(8) as pool:
        decisions = list(pool.map(decide, range(8)))
    assert sorted(decisions, key=str) == [1, *[None] * 7]
    assert numbers(farm.cost_models.state().versions) == [1]


def test_the_newest_are_kept(farm: Farm, audit_models) -> None:
    kept = farm.settings.cost_models_kept
    for number in range(1, kept + 4):
        assert publish(farm, number) == number
    assert numbers(farm.cost_models.state().versions) == list(range(4, kept + 4))
    audit_models([f"model {number}" for number in range(4, kept + 4)])
    farm.client.command("DEL", *farm.client.command("KEYS", "farrier:hold:*") or ["none"])
    farm.blobs.sweep(farm.references.are_there, -1.0)
    for version in farm.cost_models.state().versions:
        assert farm.blobs.has(version.blob)


def test_a_rollback_holds_until_a_version_beats_those_rolled_back_from(farm: Farm) -> None:
    for number in (1, 2, 3):
        publish(farm, number)
    assert numbers(farm.cost_models.state().to_beat) == [3]
    assert farm.cost_models.roll_back().in_use.number == in_use(farm) == 2
    assert numbers(farm.cost_models.state().to_beat) == [2, 3]
    assert farm.cost_models.roll_back(0).in_use is None
    assert in_use(farm) is None
    assert numbers(farm.cost_models.state().to_beat) == [1, 2, 3]
    assert farm.cost_models.roll_back(3).in_use.number == 3
    farm.cost_models.roll_back(1)
    farm.cost_models.roll_back()  # No older version exists.
    assert in_use(farm) is None
    assert publish(farm, 4) == in_use(farm) == 4
    assert numbers(farm.cost_models.state().to_beat) == [4]
    with pytest.raises(NotFoundError) as raised:
        farm.cost_models.roll_back(9)
    assert "1, 2, 3, 4" in raised.value.hint


def test_what_was_trained_before_a_rollback_is_not_published(farm: Farm) -> None:
    publish(farm, 1)
    before = farm.cost_models.state()
    farm.cost_models.roll_back()
    assert farm.cost_models.decide(before.turn, 5, BETTER, b"model 2") is None
    assert in_use(farm) is None
    assert farm.cost_models.state() == dataclasses.replace(
        before, turn=before.turn + 1, in_use=None
    )


@pytest.fixture
def audit_models(farm: Farm):
    """Check that these models, and no others, are referred to."""

    def check(texts: list[str]) -> None:
        holders = {}
        for key in farm.client.command("KEYS", "farrier:refs:*"):
            digest = key.rpartition(":")[2]
            if farm.references.are_there(digest):
                holders[farm.blobs.path(digest).read_text()] = farm.client.command("SMEMBERS", key)
        versions = {
            farm.blobs.path(v.blob).read_text(): v for v in farm.cost_models.state().versions
        }
        assert holders == {
            text: {f"farrier:cost-model:version:{versions[text].number}"} for text in texts
        }

    return check
