"""As `daemons`, on a machine whose kernel allows no namespace."""

from __future__ import annotations

import daemons

from farrier_device import namespaces


def main(argv):
    namespaces.enter = lambda libc: False
    daemons.main(argv)
