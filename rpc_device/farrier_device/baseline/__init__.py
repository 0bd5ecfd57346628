"""Races between inference engines that run the same model, each in its own process, in alternating
rounds.

`farrier bench` races any number of engines on the user's machine; a device of a farm races a
compiled model with one other engine. Both use this package:

    engines/        the table of engines, and an adapter for each
    process.py      the process of an engine, which loads a model and times its runs
    lane.py         the parent's side of that process: load a model, time runs, stop between rounds
    turns.py        the number of runs in a round, the order of rounds, the ratio of two engines
    arrays.py       tensors in files, read to memory that starts on a cache line
    error.py        the difference between outputs
    limit.py        the restriction of an engine to the instructions of an older processor

In both cases an engine's process takes the same messages over a socket (`process.py`). How the
process starts and where outputs are compared differ:

-   A device runs the model of a stranger. The process therefore sandboxes itself before it takes an
    order (`enclosed.py`), and can only run engines that start no other process. It compares the
    outputs itself, because the agent has no numpy.
-   `farrier bench` runs the user's own model, with engines that call compilers and that may be
    installed in another Python environment. The process has no sandbox and runs under the Python of
    that environment (`farrier.bench.lane`). It returns the outputs, because the engine to compare
    with may start later.

The modules that run under such a Python (`process`, `arrays`, `error`, `limit`) import each other
and `farrier_device.wire` relatively: the process imports this package under another name, because
the environment may contain another version of Farrier, which a race of that version's artifacts has
to run.
"""
