"""Divide tuning into rounds: the first is short, and each takes twice as long as the one before."""

from __future__ import annotations

import dataclasses
import math

from farrier.options import CompileOptions

_LEAST_S = 10.0  # The least seconds of a round: its race alone takes some seconds.
_LEAST_TRIALS = 64


def rounds_of(options: CompileOptions) -> list[CompileOptions]:
    """Return the options of the rounds into which the budget and the trials are divided. Each round
    has twice as much as the one before: 300 s are divided into rounds of 20, 40, 80 and 160 s. If
    there is too little for two rounds, there is one round."""
    forms = max(1, len(options.hot))  # The forms of the model share a round.
    enough = []
    if options.budget_s:
        enough.append(options.budget_s / (_LEAST_S * forms))
    if options.trials:
        enough.append(options.trials / (_LEAST_TRIALS * forms))
    count = max(1, int(math.log2(min(enough) + 1)))
    return [_round(options, number, 2**count - 1) for number in range(count)]


def _round(options: CompileOptions, number: int, whole: int) -> CompileOptions:
    """Return the options of round `number`, counted from 0. The budget and the trials are divided
    into `whole` equal parts, of which this round gets 2**number. Each round has another seed."""
    part, before = 2**number, 2**number - 1
    budget_s, trials = options.budget_s, options.trials
    return dataclasses.replace(
        options,
        budget_s=None if budget_s is None else budget_s * part / whole,
        trials=None
        if trials is None
        else trials * (before + part) // whole - trials * before // whole,
        seed=options.seed + number,
    )
