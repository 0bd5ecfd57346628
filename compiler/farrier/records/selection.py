"""Select records by device class, device, task, age, outcome, and rule version."""

from __future__ import annotations

import dataclasses

from farrier.records.record import RuleId, TuningRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """The records that meet all criteria; a criterion that is None or False admits all records.

    `since` (inclusive) and `before` (exclusive) are Unix seconds. `failed` selects records of
    failed candidates, `rules` selects records that belong to none of these rules, and `device`
    selects records with a time of that device.
    """

    device_class: str | None = None
    task: str | None = None
    since: float | None = None
    before: float | None = None
    failed: bool = False
    rules: frozenset[RuleId] | None = None
    device: str | None = None

    def admits(self, record: TuningRecord) -> bool:
        """Check whether a record meets the criteria."""
        return (
            (self.device_class is None or record.device_class == self.device_class)
            and (self.task is None or record.task == self.task)
            and (self.since is None or record.created >= self.since)
            and (self.before is None or record.created < self.before)
            and not (self.failed and record.samples_ns)
            and (self.rules is None or record.made_by not in self.rules)
            and (self.device is None or self.device in record.measured_by)
        )


ALL = Selection()
