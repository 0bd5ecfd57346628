"""A fork server whose children have the queue of `queue_device` as well."""

from __future__ import annotations

import queue_device

from farrier_device import fork_server


def main(argv):
    queue_device.register()
    fork_server.main(argv)
