#!/usr/bin/env python3
"""axccl.torch beyond torch_check.py: every function of a backend on lists, strides, types and sizes that frameworks use,
messages with tags, futures, deadlines, failures, the allocator, and how a program is told what it did wrong.

    python3 tests/clients/torch_cpu_check.py [--ranks 3] [TEST...]
"""

import argparse
import datetime
import os
import signal
import socket
import sys
import time
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TYPES = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
         torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool, torch.complex64, torch.complex128,
         torch.float8_e4m3fn, torch.float8_e5m2]
SEED = int(os.environ.get("AXCCL_TEST_SEED", "0")) or int.from_bytes(os.urandom(3), "little")


def fill(rank, shape, dtype=torch.float32, salt=0):
    """Small integers, so that sums are exact in every type; no two ranks have the same from four elements on."""
    size = 1
    for length in shape:
        size *= length
    place = torch.arange(size)
    return ((place * 5 + rank + place // 3 * (rank // 3) + salt) % 3).to(dtype).reshape(shape)


def same(found, expected, what=""):
    left, right = found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)
    assert torch.equal(left, right), f"{what}: found {found}, expected {expected}"


def strided(tensor, spoil=99):
    """The same elements with gaps and another order of dimensions in memory, and all of that memory."""
    memory = torch.full([2 * length for length in reversed(tensor.shape)], spoil, dtype=torch.float32).to(tensor.dtype)
    view = memory[tuple(slice(None, None, 2) for _ in tensor.shape)].permute(*reversed(range(tensor.dim())))
    view.copy_(tensor)
    return view, memory


def total(ranks, shape, dtype=torch.float32, salt=0):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return sum(fill(r, shape, dtype, salt).to(wide) for r in range(ranks)).to(dtype)


def raises(kind, words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return str(error)
    raise AssertionError(f"no {kind.__name__} with {words}")


# ---- what every function does ----


def test_types(rank, ranks):
    for dtype in TYPES:
        x = fill(rank, (5, 3), dtype)
        outs = [torch.zeros(5, 3).to(dtype) for _ in range(ranks)]
        dist.all_gather(outs, x)
        for r in range(ranks):
            same(outs[r], fill(r, (5, 3), dtype), f"all_gather {dtype}")
        if dtype != torch.bool:
            dist.all_reduce(x)
            same(x, total(ranks, (5, 3), dtype), f"all_reduce {dtype}")


def test_strides(rank, ranks):
    """Some ranks pass strided tensors, others dense ones."""
    for odd in (rank % 2 == 1, True):
        shape = (4, 3, 2)
        make = strided if odd else lambda t: (t.clone(), None)
        x, memory = make(fill(rank, shape))
        dist.all_reduce(x)
        same(x, total(ranks, shape), "all_reduce")
        if memory is not None:
            assert (memory == 99).sum() == memory.numel() - x.numel(), "gaps were written"
        x, _ = make(fill(rank, shape))
        dist.broadcast(x, ranks - 1)
        same(x, fill(ranks - 1, shape), "broadcast")
        x, _ = make(fill(rank, shape))
        dist.reduce(x, 0)
        same(x, total(ranks, shape) if rank == 0 else fill(rank, shape), "reduce")
        outs = [make(torch.zeros(shape))[0] for _ in range(ranks)]
        dist.all_gather(outs, make(fill(rank, shape))[0])
        for r in range(ranks):
            same(outs[r], fill(r, shape), "all_gather")
        out, _ = make(torch.zeros((4 * ranks, 3)))
        dist.all_gather_into_tensor(out, make(fill(rank, (4, 3)))[0])
        same(out, torch.cat([fill(r, (4, 3)) for r in range(ranks)]), "all_gather_into_tensor")
        out, _ = make(torch.zeros((4, 3)))
        dist.reduce_scatter_tensor(out, make(fill(rank, (4 * ranks, 3)))[0])
        same(out, total(ranks, (4 * ranks, 3))[4 * rank:4 * rank + 4], "reduce_scatter_tensor")
        out, _ = make(torch.zeros((2 * ranks, 3)))
        dist.all_to_all_single(out, make(fill(rank, (2 * ranks, 3)))[0])
        same(out, torch.cat([fill(r, (2 * ranks, 3))[2 * rank:2 * rank + 2] for r in range(ranks)]), "all_to_all_single")


def test_lists(rank, ranks):
    """Parts of different sizes, which gloo refuses."""
    sizes = [(r + 1, 2) for r in range(ranks)]
    outs = [torch.zeros(s) for s in sizes]
    dist.all_gather(outs, fill(rank, sizes[rank]))
    for r in range(ranks):
        same(outs[r], fill(r, sizes[r]), "all_gather")
    out = torch.zeros(sizes[rank])
    dist.reduce_scatter(out, [fill(rank, s, salt=r) for r, s in enumerate(sizes)])
    same(out, total(ranks, sizes[rank], salt=rank), "reduce_scatter")
    outs = [torch.zeros(r + 2 * rank + 1) for r in range(ranks)]
    dist.all_to_all(outs, [fill(rank, (rank + 2 * r + 1,)) for r in range(ranks)])
    for r in range(ranks):
        same(outs[r], fill(r, (r + 2 * rank + 1,)), "all_to_all")
    for root in range(ranks):
        outs = [torch.zeros(s) for s in sizes] if rank == root else None
        dist.gather(fill(rank, sizes[rank]), outs, dst=root)
        for r in range(ranks if rank == root else 0):
            same(outs[r], fill(r, sizes[r]), "gather")
        out = torch.zeros(sizes[rank])
        dist.scatter(out, [fill(root, s, salt=r) for r, s in enumerate(sizes)] if rank == root else None, src=root)
        same(out, fill(root, sizes[rank], salt=rank), "scatter")


def test_gather_single(rank, ranks):
    """PyTorch 2.14 and newer; the output is flat, or one part longer in front."""
    if not hasattr(dist, "gather_single"):
        print("this PyTorch has no gather_single")
        return
    for root in range(ranks):
        shapes = ((3, 2), (3 * ranks, 2)), ((3, 2), (ranks, 3, 2)), ((0,), (0,)), ((70001,), (70001 * ranks,))
        for shape, out_shape in shapes:
            for make in (torch.clone, lambda t: strided(t)[0]):
                out = make(torch.zeros(out_shape)) if rank == root else None
                work = dist.gather_single(make(fill(rank, shape)), out, dst=root, async_op=True)
                work.wait()
                if rank == root:
                    expected = torch.cat([fill(r, shape).reshape(-1) for r in range(ranks)])
                    assert torch.equal(out.reshape(-1), expected), f"gather_single: found {out}, expected {expected}"
    if rank == 0:
        raises(ValueError, ["gather_single", "the other 2"], dist.gather_single, torch.zeros(2), torch.zeros(2 * ranks + 1))
        dist.gather_single(torch.zeros(2), torch.zeros(2 * ranks))
    else:
        dist.gather_single(torch.zeros(2))


def test_operators(rank, ranks):
    x = fill(rank, (6,)) + 1
    inputs = torch.stack([fill(r, (6,)) + 1 for r in range(ranks)])
    for op, expected in ((dist.ReduceOp.PRODUCT, inputs.prod(0)), (dist.ReduceOp.MIN, inputs.amin(0)),
                         (dist.ReduceOp.MAX, inputs.amax(0)), (dist.ReduceOp.AVG, inputs.mean(0)),
                         (dist._make_nccl_premul_sum(0.5), inputs.sum(0) * 0.5)):
        found = x.clone()
        dist.all_reduce(found, op)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    bits = torch.tensor([rank + 1, 7, 1 << rank])
    everyone = [torch.tensor([r + 1, 7, 1 << r]) for r in range(ranks)]
    for op, fold in ((dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or),
                     (dist.ReduceOp.BXOR, torch.bitwise_xor)):
        found, expected = bits.clone(), everyone[0]
        for one in everyone[1:]:
            expected = fold(expected, one)
        dist.all_reduce(found, op)
        same(found, expected, f"{op}")


def test_coalesced(rank, ranks):
    import warnings

    shapes = [(3,), (2, 2), (0,), (5,)]
    xs = [fill(rank, s) for s in shapes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_reduce_coalesced(xs)
    for x, s in zip(xs, shapes):
        same(x, total(ranks, s), "all_reduce_coalesced")
    xs = [fill(rank, s) for s in shapes]
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    for x, s in zip(xs, shapes):
        same(x, total(ranks, s), "coalescing manager")
    outs = [torch.zeros(ranks * 3), torch.zeros(ranks * 5)]
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_gather_into_tensor(outs[0], fill(rank, (3,)))
        dist.all_gather_into_tensor(outs[1], fill(rank, (5,)))
    manager.wait()
    for out, size in zip(outs, (3, 5)):
        same(out, torch.cat([fill(r, (size,)) for r in range(ranks)]), "coalesced gathers")
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    lists = [[torch.zeros(s) for s in shapes] for _ in range(ranks)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_gather_coalesced(lists, [fill(rank, s) for s in shapes])
    for r in range(ranks):
        for found, s in zip(lists[r], shapes):
            same(found, fill(r, s), "all_gather_coalesced")
    assert group.supports_coalescing


def test_objects(rank, ranks):
    everyone = [None] * ranks
    dist.all_gather_object(everyone, {"rank": rank, "text": "x" * rank})
    assert everyone == [{"rank": r, "text": "x" * r} for r in range(ranks)], everyone
    box = [f"from {rank}"]
    dist.broadcast_object_list(box, src=ranks - 1)
    assert box == [f"from {ranks - 1}"], box


def test_messages(rank, ranks):
    """All receive before they send, with tags in opposite orders."""
    works, received = [], {}
    for peer in range(ranks):
        for tag in range(3):
            if peer != rank:
                received[peer, tag] = torch.zeros(4)
                works.append(dist.irecv(received[peer, tag], peer, tag=tag))
    for peer in range(ranks):
        for tag in reversed(range(3)):
            if peer != rank:
                works.append(dist.isend(torch.full((4,), float(100 * rank + 10 * peer + tag)), peer, tag=tag))
    for work in works:
        work.wait()
    for (peer, tag), found in received.items():
        same(found, torch.full((4,), float(100 * peer + 10 * rank + tag)), "isend")


def test_any_source(rank, ranks):
    if rank == 0:
        sources = []
        for _ in range(2 * (ranks - 1)):
            x = torch.zeros(3)
            sources.append(dist.recv(x))
            same(x, torch.full((3,), float(sources[-1])), "recv from any source")
        assert sorted(sources) == sorted(2 * list(range(1, ranks))), sources
    else:
        for _ in range(2):
            dist.send(torch.full((3,), float(rank)), 0)


def test_futures(rank, ranks):
    """Callbacks that wait for other futures, as PowerSGD's hook has them; and many futures at once."""
    works = [dist.all_reduce(torch.full((1000,), float(rank + i)), async_op=True) for i in range(20)]

    def then(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    futures = [work.get_future() for work in works]
    first = [future.then(lambda f: f.value()[0][0].item()) for future in futures]
    for i, future in enumerate(first):
        assert future.wait() == sum(range(ranks)) + ranks * i, i
    nested = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(then)
    same(nested.wait(), torch.full((4,), float(ranks * ranks)), "nested future")
    dist.barrier()


def test_dropped_works(rank, ranks):
    """Nobody waits for these, and their tensors have no other owner."""
    for i in range(200):
        dist.all_reduce(torch.ones(1 << (i % 14)), async_op=True)
    x = torch.ones(3)
    dist.all_reduce(x)
    same(x, torch.full((3,), float(ranks)), "after works that nobody waited for")


def test_functional(rank, ranks):
    import torch.distributed._functional_collectives as functional

    x = functional.all_reduce(fill(rank, (5,)), "sum", list(range(ranks)))
    same(torch.ones(1) * x, total(ranks, (5,)), "functional all_reduce")
    x = functional.all_gather_tensor(fill(rank, (5, 2)), 1, list(range(ranks)))
    same(x.clone(), torch.cat([fill(r, (5, 2)) for r in range(ranks)], 1), "functional all_gather along 1")


def test_groups(rank, ranks):
    """Many groups, made and destroyed."""
    before = len(os.listdir("/proc/self/fd"))
    for i in range(20):
        group = dist.new_group(list(range(ranks)))
        x = torch.ones(2)
        dist.all_reduce(x, group=group)
        same(x, torch.full((2,), float(ranks)), f"group {i}")
        dist.destroy_process_group(group)
    after = len(os.listdir("/proc/self/fd"))
    assert after <= before + 4, f"descriptors leak: {before} before, {after} after"
    dist.barrier()


def test_split(rank, ranks):
    """What torch.distributed.split_group does to the group of each device. Before 2.15, that function itself wants a GPU's."""
    world, timeout = dist.group.WORLD, datetime.timedelta(seconds=30)
    if torch.__version__ < (2, 9):  # splits groups of its own backends only
        return
    if torch.__version__ < (2, 15):
        raises(RuntimeError, ["No device associated"], dist.split_group, world, [[0]])
    else:
        dist.all_reduce(x := torch.ones(1), group=dist.split_group(world, [list(range(r, ranks, 2)) for r in (0, 1)]))
        same(x, torch.tensor([float(len(range(rank % 2, ranks, 2)))]), "all_reduce of a part that split_group made")
    # Two parts, one of them in an order of its own.
    mine = [r for r in reversed(range(ranks)) if r % 2 == rank % 2]
    part = world.split_group(mine, timeout, None, f"part {rank % 2}", "of a test")
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x, group=part)
    same(x, torch.tensor([sum(r + 1.0 for r in mine)]), "all_reduce of a part")
    assert part.size() == len(mine) and part._get_backend(torch.device("cpu")).name() == "axccl", part
    # Some ranks are in no part, and take part in the call.
    first = world.split_group([0], timeout, None, "first", "of a test")
    assert (first is not None) == (rank == 0), first
    if rank == 0:
        dist.all_reduce(x, group=first)
    assert world._get_backend(torch.device("cpu")).supports_splitting
    dist.barrier()


def test_allocators_differ(rank, ranks):
    """Each rank may have its tensors where it likes."""
    import axccl.torch

    if rank == 0:
        axccl.torch.use_allocator()
    for size in (100, 1 << 18):
        x, outs = fill(rank, (size,)), [torch.zeros(size) for _ in range(ranks)]
        dist.all_gather(outs, x)
        for r in range(ranks):
            same(outs[r], fill(r, (size,)), "all_gather")
        dist.all_reduce(x)
        same(x, total(ranks, (size,)), "all_reduce")
    axccl.torch.stop_using_allocator()
    dist.barrier()


def test_allocator(rank, ranks):
    import axccl.torch

    axccl.torch.use_allocator()
    try:
        x = torch.full((1 << 20,), float(rank))
        dist.all_reduce(x)
        same(x, torch.full((1 << 20,), float(sum(range(ranks)))), "all_reduce of reachable memory")
        x.resize_(1 << 21)
        child = os.fork()
        if child == 0:
            x.fill_(5)
            y = torch.ones(1 << 18) + x[:1 << 18]
            os._exit(0 if y.sum().item() == 6 * (1 << 18) else 1)
        assert os.waitpid(child, 0)[1] == 0, "a forked child cannot use its tensors"
        before = resident()
        for i in range(10_000):
            torch.empty((64 << 10) + 4096 * (i % 32), dtype=torch.uint8).fill_(1)
        assert resident() < before + (64 << 20), (before, resident())
    finally:
        axccl.torch.stop_using_allocator()
    dist.barrier()


def resident():
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- what a program is told ----


def test_refused(rank, ranks):
    raises(TypeError, ["all_gather_into_tensor", "must agree"], dist.all_gather_into_tensor,
           torch.zeros(2 * ranks, dtype=torch.int32), torch.zeros(2))
    raises(ValueError, ["all_gather_into_tensor", "the other 2"], dist.all_gather_into_tensor, torch.zeros(2 * ranks + 1),
           torch.zeros(2))
    raises(ValueError, ["all_to_all_single", "split sizes of input"], dist.all_to_all_single, torch.zeros(ranks),
           torch.zeros(ranks), None, [2] * ranks)
    raises(ValueError, ["all_to_all_single", "gives 2", "room for 1"], dist.all_to_all_single, torch.zeros(ranks),
           torch.zeros(2 * ranks))
    raises(TypeError, ["all_reduce", "to_dense"], dist.all_reduce, torch.zeros(3).to_sparse())
    raises(dist.DistBackendError, ["all_reduce", "bool"], dist.all_reduce,
           torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG)
    following, tag = (rank + 1) % ranks, -5
    raises(ValueError, ["recv", "tag is -5"], dist.batch_isend_irecv,
           [dist.P2POp(dist.isend, torch.ones(2), following), dist.P2POp(dist.irecv, torch.ones(2), following, tag=tag)])
    x = torch.full((2,), float(rank))
    dist.broadcast(x, ranks - 1)
    same(x, torch.full((2,), ranks - 1.0), "a broadcast after refused coalesced calls")
    x = torch.ones(2)  # and the group still works
    dist.all_reduce(x)
    same(x, torch.full((2,), float(ranks)), "after refused calls")


def test_mismatch(rank, ranks):
    """On a group of its own, which is lost with it."""
    group = dist.new_group(list(range(ranks)))
    dist.barrier()  # or a late rank would meet the error while it makes the group
    words = ["mismatch", "count 3", "count 4"] if ranks == 2 else ["mismatch"]
    raises(dist.DistBackendError, words, dist.all_reduce, torch.ones(3 + rank % 2), group=group)
    dist.barrier()


def test_deadline(rank, ranks):
    import axccl.torch

    group = dist.new_group(list(range(ranks)), timeout=datetime.timedelta(seconds=1))
    start = time.monotonic()
    if rank == 0:
        raises(dist.DistBackendError, ["waited 1 s for rank 1", "of axcclCommSetTimeout"], dist.barrier, group=group)
        assert 0.9 < time.monotonic() - start < 10
    dist.barrier()
    group = dist.new_group(list(range(ranks)))
    if rank == 0:
        text = raises(dist.DistBackendError, ["waited 0.5 s", "of the call's options"], axccl.torch.monitored_barrier, group,
                      datetime.timedelta(seconds=0.5))
        if ranks > 2:
            missing = ", ".join(str(r) for r in range(1, ranks)) if ranks < 4 else f"1-{ranks - 1}"
            assert f"not called by ranks {missing}" in text, text
    dist.barrier()
    # wait() with a limit leaves the work alone.
    if rank == 0:
        x = torch.zeros(2)
        work = dist.irecv(x, 1, tag=5)
        raises(dist.DistBackendError, ["not done after 200 ms"], work.wait, datetime.timedelta(milliseconds=200))
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(2), 0, tag=5)
    if rank == 0:
        work.wait()
        same(x, torch.ones(2), "after a wait that gave up")


def test_interrupt(rank, ranks):
    """Ctrl-C while a call waits: KeyboardInterrupt at once, and an error on the others."""
    group = dist.new_group(list(range(ranks)))
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        start = time.monotonic()
        raises(KeyboardInterrupt, [], dist.all_reduce, torch.ones(2), group=group)
        assert time.monotonic() - start < 3
        raises(dist.DistBackendError, ["aborted"], dist.all_reduce, torch.ones(2), group=group)
    dist.barrier()
    group = dist.new_group(list(range(ranks)))
    if rank == 0:
        work = dist.irecv(torch.zeros(2), 1, group=group)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        start = time.monotonic()
        raises(KeyboardInterrupt, [], dist.destroy_process_group, group)
        assert time.monotonic() - start < 3
        raises(dist.DistBackendError, ["abort"], work.wait)
    dist.barrier()


def test_abort(rank, ranks):
    group = dist.new_group(list(range(ranks)))
    if rank == 0:
        work = dist.irecv(torch.zeros(2), 1, group=group)
        group._get_backend(torch.device("cpu")).abort()
        raises(dist.DistBackendError, ["abort"], work.wait)
    dist.barrier()


def test_training(rank, ranks):
    """DDP with hooks, and FSDP2 on mixed precision, run; their values are compared in torch_training.py."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook as power

    torch.manual_seed(0)
    for hook, state in ((None, None), (default_hooks.bf16_compress_hook, None),
                        (power.powerSGD_hook, power.PowerSGDState(None, start_powerSGD_iter=2))):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Linear(32, 1)))
        if hook is not None:
            model.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(4):
            model(fill(rank, (4, 8), salt=step)).sum().backward()
            optimizer.step()
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        outs = [torch.zeros_like(mine) for _ in range(ranks)]
        dist.all_gather(outs, mine)
        for other in outs:
            same(other, mine, "parameters of the ranks")


def after_death(rank, ranks, how):
    """The last rank dies; the others learn it in the call that they are in, and go on without it."""
    group = dist.new_group(list(range(ranks)))
    dist.barrier(group)
    if rank == ranks - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "destroy":  # a call that fails while the group is being closed
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        dist.destroy_process_group(group)
        raises(dist.DistBackendError, [], work.wait)
        return
    start = time.monotonic()
    call = {"all_reduce": lambda: dist.all_reduce(torch.ones(1000), group=group), "barrier": lambda: dist.barrier(group),
            "recv": lambda: dist.recv(torch.ones(5), ranks - 1, group=group),
            "wait": lambda: dist.all_reduce(torch.ones(3), group=group, async_op=True).wait()}[how]
    raises(dist.DistBackendError, [f"rank {ranks - 1} (pid ", "died"], call)
    took = time.monotonic() - start
    assert took < 10, f"after {took:.1f} s"
    if not hasattr(dist, "shrink_group"):
        return
    smaller = dist.shrink_group([ranks - 1], group=group, shrink_flags=1)  # SHRINK_ABORT
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x, group=smaller)
    same(x, torch.tensor([ranks * (ranks - 1) / 2]), "all_reduce of the ranks that are left")
    dist.destroy_process_group(smaller)


def dying_process(rank, ranks, port, how):
    import axccl.torch  # noqa: F401

    try:
        init(rank, ranks, port)
        after_death(rank, ranks, how)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # the default group has lost a rank


def check_deaths(ranks):
    """Each in processes of its own."""
    for how in ("all_reduce", "barrier", "recv", "wait", "destroy"):
        port = free_port()
        context = mp.get_context("spawn")
        processes = [context.Process(target=dying_process, args=(rank, ranks, port, how)) for rank in range(ranks)]
        for one in processes:
            one.start()
        for one in processes:
            one.join(120)
        codes = [one.exitcode for one in processes]
        assert codes == [0] * (ranks - 1) + [-signal.SIGKILL], f"a rank dies in {how}: exit codes {codes}"
        print(f"a rank dies in {how}: the others go on", flush=True)


def unlike_process(rank, ranks, port, start, backends, sizes):
    """A rank whose backend or number of ranks is not that of the others: an error on all, soon."""
    import axccl.torch  # noqa: F401

    try:
        store = dist.TCPStore("127.0.0.1", port, None, rank == 0, datetime.timedelta(seconds=60), wait_for_workers=False)
        start.wait()
        began = time.monotonic()
        words = []
        if len(set(backends)) > 1 and backends[rank] == "axccl":
            words = ["uses the backend gloo", "uses axccl", "pass the same backend"]
        elif len(set(sizes)) > 1:
            words = [str(size) for size in set(sizes)]
        error = dist.DistBackendError if backends[rank] == "axccl" else RuntimeError
        text = raises(error, words, dist.init_process_group, backends[rank], store=store, rank=rank, world_size=sizes[rank],
                      timeout=datetime.timedelta(seconds=60))
        took = time.monotonic() - began
        print(f"  rank {rank} ({backends[rank]}, {sizes[rank]} ranks) after {took:.2f} s: {text}", flush=True)
        assert took < 10, f"after {took:.1f} s"
        start.wait()  # the store is rank 0's
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def check_unlike(ranks):
    """Each in processes of its own."""
    for backends, sizes in ([["axccl"] * (ranks - 1) + ["gloo"], [ranks] * ranks],
                            [["gloo"] + ["axccl"] * (ranks - 1), [ranks] * ranks],
                            [["axccl"] * (ranks - 1) + ["cpu:gloo"], [ranks] * ranks],
                            [["axccl"] * ranks, [ranks] * (ranks - 1) + [ranks + 1]]):
        port = free_port()
        context = mp.get_context("spawn")
        start = context.Barrier(ranks)
        processes = [context.Process(target=unlike_process, args=(rank, ranks, port, start, backends, sizes))
                     for rank in range(ranks)]
        for one in processes:
            one.start()
        for one in processes:
            one.join(120)
        codes = [one.exitcode for one in processes]
        assert codes == [0] * ranks, f"backends {backends}, sizes {sizes}: exit codes {codes}"
        print(f"backends {backends}, sizes {sizes}: an error on all", flush=True)


TESTS = [value for name, value in list(globals().items()) if name.startswith("test_")]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def init(rank, ranks, port):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("axccl", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60))


def process(rank, ranks, port, names):
    import axccl.torch  # noqa: F401

    try:
        init(rank, ranks, port)
        for test in TESTS:
            if not names or test.__name__[5:] in names:
                start = time.monotonic()
                test(rank, ranks)
                dist.barrier()
                if rank == 0:
                    print(f"{test.__name__[5:]:16s} {time.monotonic() - start:6.2f} s", flush=True)
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    known = {test.__name__[5:] for test in TESTS}
    unknown = set(arguments.tests) - known
    if unknown:
        parser.error(f"no test {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    import axccl.torch  # noqa: F401  compiled here, not by several processes

    mp.spawn(process, (arguments.ranks, free_port(), arguments.tests), nprocs=arguments.ranks)
    if not arguments.tests:
        check_unlike(arguments.ranks)
    if arguments.ranks > 2 and not arguments.tests:
        check_deaths(arguments.ranks)
    print(f"all right on {arguments.ranks} ranks, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
