"""The cost model that ships with Farrier, for farms that have no measurements yet.

`python -m bench.tuning.pretrain` trains it; docs/tuning/tuning.md has the results of its
evaluation.
"""

from __future__ import annotations

import functools
import gzip
from importlib import resources

from farrier.cost_model.model import CostModel

PRETRAINED = "pretrained.json.gz"


@functools.cache
def pretrained() -> CostModel:
    """Return the shipped cost model, to be used as a base."""
    file = resources.files(__package__).joinpath(PRETRAINED)
    return CostModel.load(gzip.decompress(file.read_bytes()), "the one that ships")
