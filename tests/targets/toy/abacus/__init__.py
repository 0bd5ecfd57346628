"""A backend of another package: a machine that counts with beads, and is Python.

Its code is the scheduled loops as text, and the interpreter of the IR runs them. It says what any
backend has to: a target, figures, passes, a rule, objects, a library, a runner, a way to load.
"""

from abacus.backend import AbacusBackend

BACKEND = AbacusBackend()
