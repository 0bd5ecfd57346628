"""A compiled model for readers: its kernels, their code, the graph of their calls.

`listing.py` makes it from a model and its artifact, `rebuild.py` compiles the code again for it,
and `archive.py` is the file that stores it, which can be read without any of that.
"""
