"""The states of a model as a user declares them: an output of one call is an input of the next.

    states = { INPUT: OUTPUT [':' field ',' ...] }       --state INPUT=OUTPUT[:field,...]
    field  = 'axis=' number      the axis along which it grows; what the shapes say, by default
           | 'capacity=' number  the most it may hold along that axis; by default it grows
           | 'initial=' number   what the elements of one of fixed size are at first; 0 by default

A `*` in both names stands for one text in both: `past_key_values.*=present.*:capacity=4096`.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence

from farrier.errors import UsageError
from farrier.options.shapes import MAX_EXTENT

HINT = "--state past_key=present_key:capacity=1024"
_FIELD = re.compile(r"(axis|capacity|initial)=([^,=]+)")
_DECLARED = re.compile(r"(?P<output>.+?)(?::(?P<fields>(?:axis|capacity|initial)=.*))?", re.DOTALL)
_SHOWN = 4  # The most pairs that an error lists.
# Words of an input's name, with the word in their place in the output's name: exporters of Hugging
# Face's models, ONNX Runtime's generators, and recurrent models.
_WORDS = (
    ("past_key_values", "present_key_values"),
    ("past_key_values", "present"),
    ("past", "present"),
    ("in", "out"),
    ("input", "output"),
    ("prev", "next"),
    ("old", "new"),
    ("h0", "hn"),
    ("c0", "cn"),
)
_WORD = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"


@dataclasses.dataclass(frozen=True, slots=True)
class HeldState:
    """An input of the model, and the output that replaces it in the next call.

    The state grows along `axis`, or has a fixed size if that is None; `capacity` limits its extent
    there (0: limited by memory alone). Initially it has no elements along `axis`, or all its
    elements are `initial`. With `in_place` a call reads and writes one buffer, in which `axis` is
    the outermost axis, so that the slices follow each other in memory.
    """

    input: str
    output: str
    axis: int | None = None
    capacity: int = 0
    initial: float = 0.0
    in_place: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Suggestion:
    """An input and an output that may be declared as one state."""

    input: str
    output: str


def parse_states(texts: Sequence[str]) -> dict[str, str]:
    """Parse `["past=present:capacity=1024"]` to `{"past": "present:capacity=1024"}`; raises
    UsageError."""
    states: dict[str, str] = {}
    for text in texts:
        name, equals, declared = text.partition("=")
        if not (name and equals and declared):
            raise UsageError(f"cannot read the state {text!r}", hint=HINT)
        if name in states:
            raise UsageError(f"the state {name!r} is declared twice", hint="--state names it once")
        parse_state(name, declared)
        states[name] = declared
    return states


def parse_state(name: str, declared: str) -> HeldState:
    """Parse the declaration of the state of input `name`; raises UsageError."""
    whole = _DECLARED.fullmatch(declared)
    if whole is None:
        raise UsageError(f"cannot read the state {name}={declared}", hint=HINT)
    fields: dict[str, str] = {}
    for field in (whole["fields"] or "").split(",") if whole["fields"] else ():
        parts = _FIELD.fullmatch(field)
        if parts is None or parts[1] in fields:
            raise UsageError(f"cannot read {field!r} of the state {name}={declared}", hint=HINT)
        fields[parts[1]] = parts[2]
    state = HeldState(
        name,
        whole["output"],
        None if "axis" not in fields else _number(name, "axis", fields["axis"]),
        _number(name, "capacity", fields.get("capacity", "0")),
        _real(name, fields.get("initial", "0")),
    )
    if "capacity" in fields and not 0 < state.capacity <= MAX_EXTENT:
        raise UsageError(f"the capacity of the state {name} is {state.capacity}", hint=HINT)
    if name.count("*") != state.output.count("*") or name.count("*") > 1:
        raise UsageError(
            f"the state {name}={state.output} has a * in one of its names alone, or several",
            hint="--state 'past_key_values.*=present.*'",
        )
    return state


def paired(
    declared: Mapping[str, str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    seen: Sequence[Suggestion],
) -> list[HeldState]:
    """Return the states of a model with these inputs and outputs, in the order of its inputs.

    A declaration with `*` stands for all pairs whose names match it. `seen` are all pairs of inputs
    and outputs with suitable types, which an error message may suggest. Raises UsageError for a
    name that the model lacks, and for a name in two states.
    """
    states: dict[str, HeldState] = {}
    for name, text in declared.items():
        pattern = parse_state(name, text)
        fitting = _fitting(pattern, inputs, outputs) if "*" in name else [pattern]
        if not fitting:
            raise UsageError(f"no input and output fit {name}={pattern.output}", hint=_known(seen))
        for state in fitting:
            for side, names in ((state.input, inputs), (state.output, outputs)):
                if side not in names:
                    kind = "input" if names is inputs else "output"
                    raise UsageError(f"the model has no {kind} {side!r}", hint=_known(seen))
            if state.input in states:
                raise UsageError(f"the input {state.input} is in two states", hint="name it once")
            states[state.input] = state
    taken = [state.output for state in states.values()]
    for output in taken:
        if taken.count(output) > 1:
            raise UsageError(f"the output {output} is in two states", hint="name it once")
    return sorted(states.values(), key=lambda state: inputs.index(state.input))


def suggested(seen: Collection[Suggestion]) -> tuple[Suggestion, ...]:
    """Return the pairs in `seen` whose names look like one value before and after a call, such as
    `past` and `present`; at most one pair for each input."""
    outputs = {pair.output for pair in seen}
    pairs: dict[str, Suggestion] = {}
    for pair in seen:
        if pair.input not in pairs and pair.output in _renamed(pair.input) & outputs:
            pairs[pair.input] = pair
    return tuple(pairs.values())


def _renamed(name: str) -> set[str]:
    """Return the names that the output for the next value of the input `name` may have: `"past_k" →
    {"present_k", …}`."""
    names = set()
    for before, after in _WORDS:
        names.add(re.sub(_WORD.format(before), after, name))
        names.add(name.replace(f"{before}_", f"{after}_", 1))
        names.add(re.sub(rf"_{before}(?![A-Za-z0-9])", f"_{after}", name))
    return names - {name}


def _fitting(
    state: HeldState, inputs: Sequence[str], outputs: Sequence[str]
) -> Sequence[HeldState]:
    before, behind = state.input.split("*")
    fitting = []
    for name in inputs:
        if len(name) < len(before) + len(behind):
            continue
        if name.startswith(before) and name.endswith(behind):
            text = name[len(before) : len(name) - len(behind)]
            output = state.output.replace("*", text)
            if output in outputs:
                fitting.append(dataclasses.replace(state, input=name, output=output))
    return fitting


def _known(seen: Sequence[Suggestion]) -> str:
    pairs = suggested(seen)
    if not pairs:
        return "`farrier inspect` lists the inputs and outputs"
    shown = " ".join(f"--state {state.input}={state.output}" for state in pairs[:_SHOWN])
    rest = len(pairs) - _SHOWN
    return shown + (f" and {rest} more" if rest > 0 else "")


def _number(name: str, field: str, text: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        raise UsageError(f"the {field} of the state {name} is {text!r}", hint=HINT)
    return int(text)


def _real(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"the initial value of the state {name} is {text!r}", hint=HINT)
    return value
