"""Random models with open dims and a hot size: every dumped stage reads back."""

from __future__ import annotations

import random

import hypothesis
from hypothesis import strategies as st
from random_models import random_model
from test_open_dims import opened

from farrier.errors import InvalidModelError, UnresolvedShapeError
from tests.ir.dumps import dumped


@hypothesis.settings(max_examples=12, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_random_models_with_open_dims(tmp_path_factory, seed):
    rng = random.Random(seed)
    data, shapes, sizes = opened(random_model(rng, most=6), rng)
    try:
        dumped(tmp_path_factory.mktemp("ir"), data, shapes, [sizes] if sizes else (), "space")
    except (InvalidModelError, UnresolvedShapeError):
        hypothesis.reject()
