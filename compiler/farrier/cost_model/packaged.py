"""The cost model that ships with Farrier: what is known before anybody has measured.

`python -m bench.tuning.pretrain` made it (docs/tuning.md); the figures that it was judged by are
there.
"""

from __future__ import annotations

import functools
import gzip
from importlib import resources

from farrier.cost_model.model import CostModel

PRETRAINED = "pretrained.json.gz"


@functools.cache
def pretrained() -> CostModel:
    """That model, to be a base."""
    file = resources.files(__package__).joinpath(PRETRAINED)
    return CostModel.load(gzip.decompress(file.read_bytes()), "the one that ships")
