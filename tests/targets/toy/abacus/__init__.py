"""A backend of another package: a machine that counts with beads, and is Python.

Its code is the scheduled loops as text, and the interpreter of the IR runs them. It has two spaces
of memory: that of the host, a table, and that of a frame of beads, a device with a queue of its
own. Kernels of floats alone run on the frame, all others on the table. The backend states what any
backend has to: a target, passes, a rule, objects, a library, a runner, a way to load.
"""

from abacus.backend import BACKEND, AbacusBackend

__all__ = ["BACKEND", "AbacusBackend"]
