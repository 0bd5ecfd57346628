"""The hardware of an accelerator, generated from its description in Amaranth, which emits Verilog.

`core.py` combines the modules in the other files. It is imported only if `farrier[hardware]` is
installed; otherwise `emit.py` reports what to install.
"""
