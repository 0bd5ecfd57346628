"""Models that a framework exported, compiled without it and compared with its results.

    python -m tests.frontends.compared FOLDER

A folder has models (`.pt2`, `.mlir`), and next to each its inputs and results in an `.npz`.
"""

import sys
from pathlib import Path

import numpy as np

import farrier

MOST = 1e-5  # Of the range of an output.


def difference(path):
    """Return the greatest difference, as a share of an output's range."""
    arrays = np.load(path.with_suffix(".npz"))
    artifact = farrier.compile(path, verify=False)
    session = artifact.session()
    names = [spec.name for spec in artifact.manifest.inputs]
    worst = 0.0
    for number in range(sum(key.endswith(" in 0") for key in arrays.files)):
        inputs = {name: arrays[f"{number} in {n}"] for n, name in enumerate(names)}
        for n, result in enumerate(session.run(inputs).values()):
            want = arrays[f"{number} out {n}"].astype(np.float64)
            assert result.shape == want.shape, (result.shape, want.shape)
            span = max(np.ptp(want), np.abs(want).max()) or 1.0
            worst = max(worst, float(np.abs(result.astype(np.float64) - want).max() / span))
    return worst


if __name__ == "__main__":
    paths = sorted(path for path in Path(sys.argv[1]).iterdir() if path.suffix in (".pt2", ".mlir"))
    shares = {path.stem: difference(path) for path in paths}
    assert not {"torch", "jax"} & sys.modules.keys()
    for stem, share in shares.items():
        print(f"{stem:16} {share:.1e}{'' if share <= MOST else '  too much'}")
    right = sum(share <= MOST for share in shares.values())
    print(f"{right} passed, {len(shares) - right} failed")
    sys.exit(right < len(shares))
