"""Races of engines that run the same model: each in a process of its own, in turn.

`farrier bench` races any number of engines on a machine of the user's, and a device of a farm races
a compiled model with one baseline. Both stand on this package:

    engines/        the table of engines, and an adapter for each
    process.py      the process of an engine: it loads a model, and runs it by the clock
    lane.py         the same from its keeper's side: loaded, timed, stopped between its turns
    turns.py        how many runs are a round, the turns, and the ratio of two entrants
    arrays.py       tensors in files, which start on a cache line where an engine reads them
    error.py        the difference of outputs
    limit.py        how an engine is kept to the instructions of an older processor

An engine's process takes the same messages from both, over a socket (`process.py`). The start of
the process and the place of the comparison differ, for good reasons:

-   A device runs the model of a stranger. The process raises walls before it takes an order
    (`enclosed.py`), so it runs engines that start no other process. It compares the outputs itself,
    because the agent has no numpy.
-   `farrier bench` runs the model of its user, with engines that call compilers and that may be
    installed in another environment. The process has no walls and runs under the Python of that
    environment (`farrier.bench.lane`). It hands over the outputs, because the engine to compare
    with may start after it.

The modules that such a Python imports (`process`, `arrays`, `error`, `limit`) import each other and
`farrier_device.wire` relatively: the process imports this package under another name, because that
environment may have another version of Farrier, and a race of its artifacts runs that one.
"""
