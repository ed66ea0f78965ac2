"""Random calls: shapes, types, strides, axes, groups, in place, lists; compared with NumPy, with sentinels around all
memory. The seed is printed with a failure; AXCCL_TEST_SEED repeats it."""

import unittest

import numpy as np

import arrays
import axccl
import calls
import harness


def _one(comm, make, dtype, shared, own, what):
    """A call with one array; `own` decides what is this rank's own choice."""
    op = str(shared.choice(arrays.operators(dtype)))
    in_place = shared.random() < 0.3
    call = make(shared, comm, dtype, op)
    allocate = axccl.empty if own.random() < 0.3 else None
    if call.expected is None:
        assert call.run(comm, call.x, None) is None, what
        return
    if in_place and call.own_part is not None:
        out = arrays.Strided(own, call.expected.shape, dtype, allocate)
        x = call.own_part(out.array)
        x[...] = call.x
        found = call.run(comm, x, None if make is calls.broadcast else out.array)
        assert np.shares_memory(found, out.base) or found.size == 0, what
        out.check(call.expected, what)
        return
    x, before = call.x, None
    if x is not None and own.random() < 0.7:
        before = arrays.Strided(own, x.shape, dtype, allocate)
        before.array[...] = x
        x = before.array
    if own.random() < 0.5 or (make in calls.NEEDS_OUT and x is None):
        out = arrays.Strided(own, call.expected.shape, dtype, allocate)
        found = call.run(comm, x, out.array)
        assert found is out.array, what
        out.check(call.expected, what)
    else:
        x = np.array(x) if make is calls.broadcast else x  # a copy, also of a scalar
        arrays.check_equal(call.run(comm, x, None), call.expected, what)
    if before is not None and make is not calls.broadcast:
        before.check(call.x, what + " (input)")


def _list(comm, make, dtype, shared, what):
    """A call with a list of arrays of one type."""
    op = str(shared.choice(arrays.operators(dtype)))
    shared_state = shared.integers(1 << 60)
    count = int(shared.integers(1, 4))
    # The call's other arguments must be the same for all arrays: they come from the same numbers.
    made = [make(np.random.default_rng(shared_state), comm, dtype, op) for _ in range(count)]
    if made[0].expected is None or made[0].x is None:
        found = made[0].run(comm, [call.x for call in made] if made[0].x is not None else None,
                            [np.empty_like(call.expected) for call in made] if made[0].expected is not None else None)
    elif make in (calls.ring, calls.broadcast):
        found = made[0].run(comm, [call.x.copy() for call in made], [np.empty_like(call.expected) for call in made])
    else:
        found = made[0].run(comm, [call.x for call in made], None)
    for result, call in zip(found or [], made):
        arrays.check_equal(result, call.expected, what)


def _channels(comm):
    """The communicator, a split of it, a channel of groups, and one of a mesh; all by the same rule on all ranks."""
    half = comm.size // 2 if comm.size > 1 else 1
    groups = [list(range(half)), list(range(comm.size - 1, half - 1, -1))] if comm.size > 1 else [[0]]
    return [comm, comm.split(comm.rank % 2, -comm.rank), comm.channel(groups, id=7),
            comm.mesh_channel({"x": half, "y": comm.size // half}, "y") if comm.size % half == 0 else comm.channel()]


def run(comm, seed, rounds):
    channels = _channels(comm)
    for number in range(rounds):
        which = np.random.default_rng([seed, number])
        channel = channels[int(which.integers(len(channels)))]
        make = calls.CALLS[int(which.integers(len(calls.CALLS)))]
        dtype = arrays.TYPES[int(which.integers(len(arrays.TYPES)))]
        listed = which.random() < 0.15
        what = f"AXCCL_TEST_SEED={seed}: round {number}, {make.__name__} of {dtype}, rank {comm.rank} of {comm.size}"
        shared = np.random.default_rng([seed, number, channel.group if type(channel) is axccl.Channel else comm.rank % 2
                                        if channel is channels[1] else 0])
        own = np.random.default_rng([seed, number, 1000 + comm.rank])
        try:
            if listed:
                _list(channel, make, dtype, shared, what)
            else:
                _one(channel, make, dtype, shared, own, what)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


class Random(unittest.TestCase):
    def test_threads(self):
        for size in (1, 2, 3, 4):
            harness.Threads(size).run(run, harness.SEED + size, 250)

    def test_processes(self):
        for size in (2, 3):
            harness.Processes(size).run(run, harness.SEED + 10 + size, 300)


if __name__ == "__main__":
    print("seed", harness.SEED)
    unittest.main()
