"""Boards without an operating system, which a line connects to this machine.

A program stays on a board and answers frames (`frames`, and the compiler's `targets/bare/firmware`,
which says what each operation takes). A `Line` carries bytes and may lose some; a `Link` sends an
operation until it is answered; a `Board` has the operations. `devices.board` measures with them.
"""
