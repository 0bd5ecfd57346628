"""What holds a resource until it is closed: a `with` closes it at its end."""

from __future__ import annotations

import abc
from typing import Self


class Closing(abc.ABC):
    """A context whose end is `close`."""

    __slots__ = ()

    @abc.abstractmethod
    def close(self) -> None:
        """Give up what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
