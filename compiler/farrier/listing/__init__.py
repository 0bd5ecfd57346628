"""What a compiled model consists of, to be read: its kernels, their code, the graph of their calls.

`listing.py` makes it of a model and its artifact, `rebuild.py` the code once more, and `archive.py`
is the file that it is kept in, which is read without any of that.
"""
