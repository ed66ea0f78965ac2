"""Exceptions."""

from __future__ import annotations

import enum
from typing import Any


class Code(enum.IntEnum):
    """What kind of error it is: the library's ncclResult_t."""

    SYSTEM_ERROR = 2  # the operating system refused something
    INTERNAL_ERROR = 3  # a defect of the library
    INVALID_ARGUMENT = 4  # one argument is wrong by itself; nothing happened
    INVALID_USAGE = 5  # the call is wrong here and now, or not served
    REMOTE_ERROR = 6  # a peer died, aborted or reported an error
    TIMEOUT = 8  # a deadline passed


class Error(RuntimeError):
    """An error of the library, with its text.

    `code` is the kind of error.

    >>> comm = axccl.local(1).run(lambda comm: comm)[0]
    >>> try:
    ...     comm.barrier()
    ... except axccl.Error as error:
    ...     print(error.code.name, error)
    INVALID_USAGE barrier: the communicator is closed; make a new one
    """

    code: Code | int

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = Code(code) if code in Code.__members__.values() else code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), int(self.code))


class ArgumentError(Error, ValueError):
    """An argument that is wrong by itself. Nothing happened, and the communicator goes on.

    >>> try:
    ...     axccl.local(1).run(lambda comm: comm.all_gather(np.ones(3), axis=1))
    ... except ValueError as error:
    ...     print(error)
    all_gather: argument axis is 1; an array of 1 dimensions has axes -1..0
    """
