"""The conversion of a scheduled loop function (a kernel) to hardware, as an Amaranth module.

source.py     a file of Python with the kernel and its schedule → a loop function
regions.py    the function → regions, each a pipeline, in serial loops
banks.py      buffers → registers and banks of memory
pipeline.py   a region → values and writes, each with the cycle in which it happens
module.py     regions → Amaranth; imported only where `farrier[hardware]` is installed
lockstep.py   Verilator against the interpreter of loops
"""
