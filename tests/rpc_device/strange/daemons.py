"""A fork server whose children raise no wall and leave processes behind, as a library might where
no seccomp forbids it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
import time

from farrier_device import fork_server, wire


def main(argv):
    fork_server.serve(argv, run)


def run(place):
    """Greet, leave two daemons, say that they are there, and obey."""
    with socket.socket(fileno=place.descriptor) as sock:
        wire.send(sock, {"ready": "+".join(place.layers) or "none"})
        for is_in_session in (True, False):
            if not os.fork():
                daemon(sock, is_in_session)
        wire.receive(sock)


def daemon(sock, is_in_session):
    """Leave the session and the parent, ignore what can be ignored, and spin."""
    if not is_in_session:
        os.setsid()
    if os.fork():
        os._exit(0)
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG: nothing
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=spin, daemon=True).start()
    wire.send(sock, {"here": True})
    time.sleep(0.1)
    if is_in_session:
        os.kill(os.getpid(), signal.SIGSTOP)
    spin()


def spin():
    while True:
        pass
