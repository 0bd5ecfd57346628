"""One file an engine, named as the command names it.

    PACKAGES      what must be importable; imported before the clock of loading starts
    DISTRIBUTION  whose version is told
    LIMITS        by x86-64 level, how `limit.py` keeps the engine to it; not there: it cannot
    PRECISIONS    what it can be asked to multiply in; not there: f32
    load(model, inputs, threads) -> (run, named); where there are PRECISIONS, one of them comes last

`model` is the path of the file, `inputs` C-contiguous arrays by name. `run()` is one inference as a
user of the engine calls it; `named` makes of its result the outputs by name. The files need nothing
of Farrier but `farrier.py`: an engine may live in a virtual environment of its own. Those that a
device of a farm may have are in `farrier_device.engines`.
"""
