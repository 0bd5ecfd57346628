"""A listing of a compiled model for people: its kernels, their code, and the graph of their calls.

`listing.py` creates it from a model and its artifact, `rebuild.py` compiles the code again for that
purpose, and `archive.py` reads and writes the file that stores it, independently of both.
"""
