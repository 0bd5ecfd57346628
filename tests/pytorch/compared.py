"""Architectures through `torch.compile`, compared with eager mode at three sizes.

`python -m tests.pytorch.compared NAME…` runs where torch and Farrier are; without names, all run.
"""

import sys

import torch

from farrier.pytorch import backend
from tests.frontends.torch.architectures import CASES

MOST = 1e-5  # Of the range of an output.


def difference(name):
    """Return the greatest difference, as a share of an output's range, and the graphs that ran in
    eager mode."""
    make, data = CASES[name]
    module = make().eval().requires_grad_(False)
    torch._dynamo.reset()
    backend.GRAPHS.clear()
    compiled = torch.compile(module, backend="farrier")
    worst = 0.0
    with torch.no_grad():
        for case in data()[0]:
            results, wanted = compiled(*case), module(*case)
            pairs = zip(results, wanted, strict=True) if isinstance(wanted, tuple) else None
            for result, want in pairs or [(results, wanted)]:
                span = max(float(want.max() - want.min()), float(want.abs().max()))
                worst = max(worst, float((result - want).abs().max()) / span)
    return worst, [graph.reason for graph in backend.GRAPHS if graph.reason]


if __name__ == "__main__":
    torch.manual_seed(0)
    failed = 0
    for chosen in sys.argv[1:] or CASES:
        share, reasons = difference(chosen)
        failed += share > MOST or bool(reasons)
        print(f"{chosen:15} {share:.1e}", *reasons, flush=True)
    print(f"{failed} failed")
    sys.exit(failed > 0)
