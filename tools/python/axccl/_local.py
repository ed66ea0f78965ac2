"""Ranks as threads of this process."""

from __future__ import annotations

import threading
from typing import Any, Callable, Generic, TypeVar

from axccl import _core

Result = TypeVar("Result")


class _Run(Generic[Result]):
    """One run of a function on all ranks. The first error is the cause; those of aborted ranks follow from it."""

    def __init__(self, communicators: list[_core.Communicator], function: Callable[..., Result],
                 arguments: tuple[Any, ...]) -> None:
        self._communicators = communicators
        self._function = function
        self._arguments = arguments
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self.results: list[Any] = [None] * len(communicators)

    def rank(self, number: int) -> None:
        """The thread of a rank. A rank that returns leaves, so that those which still need it get an error."""
        try:
            self.results[number] = self._function(self._communicators[number], *self._arguments)
            self._communicators[number].close()
        except BaseException as error:  # pylint: disable=broad-except
            self.fail(error, number)

    def fail(self, error: BaseException, number: int | None) -> None:
        """Keeps the first error and ends the calls of all ranks."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
        if number is not None:
            _name_rank(error, number, len(self._communicators))
        for communicator in self._communicators:
            communicator.abort()

    def finish(self, threads: list[threading.Thread]) -> None:
        """Waits for the ranks, and raises the error if there is one."""
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error


def _name_rank(error: BaseException, number: int, size: int) -> None:
    try:
        error.rank = number  # type: ignore[attr-defined]
    except AttributeError:  # a class with slots
        pass
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(f"This was rank {number} of {size}.")


class local:  # pylint: disable=invalid-name
    """`size` ranks of this process, each in a thread of its own.

    >>> axccl.local(3).run(lambda comm: comm.rank)
    [0, 1, 2]
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"local: argument size is {size}; pass 1 or more")
        self.size = size

    def run(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """Calls function(communicator, *arguments) on every rank and returns the results in order of ranks.

        The first exception of a rank is raised, with its number as the attribute `rank`; the other ranks are aborted.

        >>> def fail(comm):
        ...     if comm.rank == 1: raise KeyError("key")
        ...     comm.barrier()
        >>> try:
        ...     axccl.local(2).run(fail)
        ... except KeyError as error:
        ...     print(error, error.rank)
        'key' 1
        """
        run = _Run(_core.local_communicators(self.size), function, arguments)
        threads: list[threading.Thread] = []
        try:
            for number in range(self.size):
                thread = threading.Thread(target=run.rank, args=(number,), name=f"axccl rank {number}")
                thread.start()
                threads.append(thread)
            run.finish(threads)
        except BaseException as error:  # a rank's, or an interrupt of this thread
            run.fail(error, None)
            for thread in threads:
                thread.join()
            raise
        return run.results
