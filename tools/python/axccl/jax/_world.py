"""The communicator: one rank for each of JAX's CPU devices, of all processes."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import os
import threading
from typing import Any

import jax

from axccl import _core, _environment
from axccl._errors import ArgumentError, Code, Error
from axccl.jax import _build, _internals

_SECONDS_TO_MEET = 600
_TEXT = 4096

library = _build.load()
library.axccl_jax_join.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int),
                                   ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_double, ctypes.c_char_p,
                                   ctypes.c_size_t]
library.axccl_jax_abandon.argtypes = []
jax.ffi.register_ffi_target("axccl_jax_run", jax.ffi.pycapsule(library.axccl_jax_run), platform="cpu")

_lives = itertools.count()  # communicators that this process has joined, the same in all processes
_current: World | None = None


class World:
    """The ranks of all processes. Devices are in JAX's order, so a device always has the same rank."""

    def __init__(self, size: int, ranks: dict[Any, int]) -> None:
        self.size = size
        self._ranks = ranks

    def local_devices(self) -> set[Any]:
        """This process's devices that have a rank."""
        return {device for device in self._ranks if device.process_index == jax.process_index()}

    def rank(self, device: Any) -> int | None:
        """The rank of a device; None if it has none."""
        return self._ranks.get(device)


def current(call: str) -> World:
    """The communicator of this process."""
    if _current is None:
        raise Error(f"{call}: there is no communicator; call axccl.jax.init() before", Code.INVALID_USAGE)
    return _current


def _meeting_of_jax() -> bytes:
    """The id of a new communicator, by jax.distributed's store."""
    client: Any = _internals.distributed_client()
    if client is None:
        raise Error("init: JAX has several processes, but jax.distributed.initialize() was not called in this one; "
                    "call it before", Code.INVALID_USAGE)
    key = f"axccl/jax/{next(_lives)}"
    if jax.process_index() == 0:
        client.key_value_set_bytes(key, _core.unique_id())
    return client.blocking_key_value_get_bytes(key, _SECONDS_TO_MEET * 1000)


def _meeting_of_launcher() -> tuple[int, int, bytes]:
    """Rank, size and id by a launcher's variables; a process by itself without them."""
    if not any(rank in os.environ and size in os.environ for rank, size in _environment._LAUNCHERS):
        return 0, 1, _core.unique_id()
    rank, size = _environment.place(os.environ)
    if size == 1:
        return 0, 1, _core.unique_id()
    return rank, size, _environment.launched_id("axccl.jax.init")


def _join(*arguments: Any) -> str:
    """Joins, and returns the text of the error; "" if there is none. What interrupts this thread ends the waiting."""
    text = ctypes.create_string_buffer(_TEXT)
    failed = []
    ended = threading.Event()

    def join() -> None:
        try:
            failed.append(library.axccl_jax_join(*arguments, text, _TEXT) != 0)
        finally:
            ended.set()

    thread = threading.Thread(target=join, name="axccl.jax.init", daemon=True)
    try:
        thread.start()
        ended.wait()
    except BaseException:
        while thread.ident is not None and not ended.is_set():
            with contextlib.suppress(KeyboardInterrupt):  # one more changes nothing
                library.axccl_jax_abandon()
                ended.wait(0.1)
        library.axccl_jax_leave()
        raise
    return text.value.decode(errors="replace") if failed[0] else ""


def init(*, timeout: float | None = None) -> None:
    """Makes the communicator: every CPU device of every process becomes a rank. All processes call it.

    With several processes of jax.distributed, its devices are the ranks, in the order of jax.devices("cpu"). Without
    it, processes of torchrun, mpirun or srun meet as those of axccl.Communicator.from_env() do; then each has a JAX of
    its own, with equally many devices, and the ranks of a process follow those of the one before. timeout: seconds that a
    call may wait for others (600).

    >>> axccl.jax.init()
    >>> axccl.jax.size()
    1
    >>> axccl.jax.shutdown()
    """
    global _current  # pylint: disable=global-statement
    seconds = -1.0 if timeout is None else float(timeout)
    if timeout is not None and not seconds >= 0:  # before the ranks meet: an error after that is one of all of them
        raise ArgumentError(f"init: argument timeout is {timeout}; pass seconds, or 0 to wait forever",
                            Code.INVALID_ARGUMENT)
    if _current is not None:
        raise Error("init: the communicator is there already; call axccl.jax.shutdown() before", Code.INVALID_USAGE)
    local = jax.local_devices(backend="cpu")
    if jax.process_count() > 1:
        devices = sorted(jax.devices("cpu"), key=lambda device: (device.process_index, device.id))
        ranks = {device: rank for rank, device in enumerate(devices)}
        size, meeting = len(devices), _meeting_of_jax()
    else:
        process, processes, meeting = _meeting_of_launcher()
        ranks = {device: process * len(local) + rank for rank, device in enumerate(local)}
        size = processes * len(local)
    ids = (ctypes.c_int * len(local))(*(device.id for device in local))
    mine = (ctypes.c_int * len(local))(*(ranks[device] for device in local))
    error = _join(meeting, size, ids, mine, len(local), seconds)
    if error:
        raise Error(f"init: {error}", Code.SYSTEM_ERROR)
    _internals.clear_tokens()  # of calls that were made without a communicator
    _current = World(size, ranks)


def shutdown() -> None:
    """Ends the communicator when the calls of this process have ended. No effect without one.

    An error of such a call is not raised here, but where its result is used.
    """
    global _current  # pylint: disable=global-statement
    if _current is None:
        return
    _current = None
    try:
        jax.effects_barrier()
    except Exception:  # pylint: disable=broad-except
        pass  # a call failed; the next communicator starts afresh
    _internals.clear_tokens()
    library.axccl_jax_leave()


def size() -> int:
    """The number of ranks.

    >>> axccl.jax.init()
    >>> axccl.jax.size() == jax.device_count("cpu")
    True
    >>> axccl.jax.shutdown()
    """
    return current("size").size


def rank(device: Any = None) -> int:
    """The rank of a device, by default of the first one of this process.

    >>> axccl.jax.init()
    >>> axccl.jax.rank()
    0
    >>> axccl.jax.shutdown()
    """
    one = jax.local_devices(backend="cpu")[0] if device is None else device
    found = current("rank").rank(one)
    if found is None:
        raise Error(f"rank: argument device is {one}, which has no rank; pass one of jax.devices('cpu')",
                    Code.INVALID_ARGUMENT)
    return found


atexit.register(shutdown)
