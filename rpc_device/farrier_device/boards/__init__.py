"""Boards without an operating system, which are connected to this machine by a line such as a
serial port.

A resident program on the board answers frames (`frames`; `targets/bare/firmware` of the compiler
defines the operations). A `Line` carries bytes and may lose some; a `Link` repeats an operation
until the board answers; a `Board` offers the operations as methods. `devices.board` uses them to
measure.
"""
