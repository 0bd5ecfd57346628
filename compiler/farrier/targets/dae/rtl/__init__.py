"""The hardware of an accelerator, by its description: Amaranth, which becomes Verilog.

`core.py` joins what the other files have. It is imported only where `farrier[hardware]` is
installed; `emit.py` says so where it is not.
"""
