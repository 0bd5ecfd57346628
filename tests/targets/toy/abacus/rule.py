"""The one rule: how many steps of each innermost loop are written out."""

from __future__ import annotations

from farrier.ir.choices import with_usual_choices
from farrier.ir.loop import Function
from farrier.ir.work import statements_run
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.nest import loops
from farrier.space import Estimate, Knob, Space

RULE = RuleId("beads", version=1)
_HERTZ = 1e6


def space(program, target, threads):
    """The space of any program."""
    is_nest = isinstance(program, Function)
    function = with_usual_choices(program) if is_nest else to_loops(program)
    innermost = [loop for loop in loops(function.body) if not loops(loop.body)]
    work = max(1.0, statements_run(function.body, 1))

    def estimate(columns):
        seconds = work * (1 + 1 / columns["steps"]) / _HERTZ
        return Estimate(seconds, {"overhead": seconds})

    def schedule(decisions):
        result, steps = Schedule(function), decisions["steps"]
        for loop in innermost:
            is_known = isinstance(loop.extent, int) and loop.extent > steps
            if steps > 1 and is_known and loop.extent % steps == 0:
                _, inner = result.split(loop.var, steps)
                result.unroll(inner)
        return result

    return Space(
        RULE, (Knob("steps", (1, 2, 4)),), lambda columns: columns["steps"] > 0, estimate, schedule
    )
