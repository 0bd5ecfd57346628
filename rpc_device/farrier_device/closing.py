"""The base class of objects that hold a resource until they are closed, for example by a `with`
statement."""

from __future__ import annotations

import abc
from typing import Self


class Closing(abc.ABC):
    """A context manager that calls `close` at its end."""

    __slots__ = ()

    @abc.abstractmethod
    def close(self) -> None:
        """Release the resource."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
