// The docstrings of the extension module. Each has an example, which tests/clients/python runs.
#pragma once

namespace axccl::python {

inline constexpr const char* kChannel = R"(Collectives of a group of ranks; Communicator.channel makes them.

All ranks of the group make the same calls in the same order, with shapes that fit each other. A call returns when it is
done on this rank, and other threads of Python run meanwhile.

Arrays may have any strides. `x` is a NumPy array or any object with the buffer protocol or __dlpack__ (CPU tensors of
PyTorch, arrays of JAX), or a list of them, which go as one operation. `out` is where results go: as `x`, and of the
results' shapes; without it they are new NumPy arrays. Input and output may be the same where the call allows in place
(docs/python.md), and must not overlap otherwise.)";

inline constexpr const char* kAllReduce = R"(Reduces the arrays of all ranks with `op`; every rank gets the result.

op: sum, prod, max, min, avg, and, or, xor, logical_and, logical_or. In place: out=x.

>>> axccl.local(2).run(lambda comm: comm.all_reduce(np.array([1, 2]) * (comm.rank + 1)))
[array([3, 6]), array([3, 6])])";

inline constexpr const char* kAllGather = R"(Concatenates the arrays of all ranks along `axis`, in order of ranks.

>>> axccl.local(2).run(lambda comm: comm.all_gather(np.full((1, 2), comm.rank), axis=1))
[array([[0, 0, 1, 1]]), array([[0, 0, 1, 1]])])";

inline constexpr const char* kReduceScatter = R"(Reduces the arrays of all ranks; rank r gets part r along `axis`.

The axis has a multiple of the number of ranks; reduce_scatter_v takes uneven parts.

>>> axccl.local(2).run(lambda comm: comm.reduce_scatter(np.arange(4)))
[array([0, 2]), array([4, 6])])";

inline constexpr const char* kAllToAll = R"(Rank r gets part r along `split_axis` of every array.

The parts are concatenated along `concat_axis`, in order of ranks. Never in place.

>>> axccl.local(2).run(lambda comm: comm.all_to_all(np.array([[0, 1]]) + 10 * comm.rank, split_axis=1, concat_axis=0))
[array([[ 0],
       [10]]), array([[ 1],
       [11]])])";

inline constexpr const char* kBroadcast = R"(The array of rank `root`, on every rank.

Without `out`, `x` is overwritten on the other ranks, and returned. With it, `x` is ignored there, and may be None.

>>> axccl.local(2).run(lambda comm: comm.broadcast(np.array([comm.rank, 7]), root=1))
[array([1, 7]), array([1, 7])])";

inline constexpr const char* kReduce = R"(As all_reduce, on rank `root`; the others get None.

On other ranks `out`, if there is one, is filled with zeros, and returned.

>>> axccl.local(2).run(lambda comm: comm.reduce(np.array([comm.rank, 5]), op="max"))
[array([1, 5]), None])";

inline constexpr const char* kGather = R"(As all_gather, on rank `root`; the others get None.

>>> axccl.local(2).run(lambda comm: comm.gather(np.array([comm.rank]), root=1))
[None, array([0, 1])])";

inline constexpr const char* kScatter = R"(Rank r gets part r along `axis` of the array of rank `root`.

Other ranks pass `out`, because only the root knows the shape; `x` is ignored there, and may be None.

>>> def scatter(comm):
...     return comm.scatter(np.arange(4) if comm.rank == 0 else None, out=np.empty(2, int))
>>> axccl.local(2).run(scatter)
[array([0, 1]), array([2, 3])])";

inline constexpr const char* kBarrier = R"(Returns when all ranks of the group have called it.

>>> axccl.local(2).run(lambda comm: comm.barrier())
[None, None])";

inline constexpr const char* kAllGatherV = R"(As all_gather, where rank r has extents[r] rows along `axis`.

extents: a number for each rank, the same on all ranks; for a list of arrays perhaps one such sequence for each.

>>> axccl.local(2).run(lambda comm: comm.all_gather_v(np.full(comm.rank + 1, comm.rank), [1, 2]))
[array([0, 1, 1]), array([0, 1, 1])])";

inline constexpr const char* kReduceScatterV = R"(As reduce_scatter, where rank r gets extents[r] rows of the result.

>>> axccl.local(2).run(lambda comm: comm.reduce_scatter_v(np.arange(3), [1, 2]))
[array([0]), array([2, 4])])";

inline constexpr const char* kGatherV = R"(As all_gather_v, on rank `root`; the others get None.

>>> axccl.local(2).run(lambda comm: comm.gather_v(np.full(comm.rank + 1, comm.rank), [1, 2]))
[array([0, 1, 1]), None])";

inline constexpr const char* kScatterV = R"(As scatter, where rank r gets extents[r] rows along `axis`.

>>> def scatter(comm):
...     return comm.scatter_v(np.arange(3) if comm.rank == 0 else None, [1, 2], out=np.empty(comm.rank + 1, int))
>>> axccl.local(2).run(scatter)
[array([0]), array([1, 2])])";

inline constexpr const char* kAllToAllV =
    R"(Rank r gets send_extents[r] rows of `x`, and receive_extents[r] rows come from it.

>>> def exchange(comm):
...     x, sent, received = [([1, 2, 3], [1, 2], [1, 1]), ([4, 5], [1, 1], [2, 1])][comm.rank]
...     return comm.all_to_all_v(np.array(x), sent, received)
>>> axccl.local(2).run(exchange)
[array([1, 4]), array([2, 3, 5])])";

inline constexpr const char* kRaggedAllToAll =
    R"(As all_to_all_v, with an offset for every part, as JAX's ragged_all_to_all.

send_extents[r] rows of `x`, from row input_offsets[r] on, go to rank r, into its `out` from row output_offsets[r] on.
Rows of `out` that no rank sends keep their values.

>>> def exchange(comm):
...     x, to = [([1, 2, 2], [0, 0]), ([3, 4, 0], [1, 2])][comm.rank]
...     sent, received = [([1, 2], [1, 1]), ([1, 1], [2, 1])][comm.rank]
...     return comm.ragged_all_to_all(np.array(x), np.zeros(4, int), [0, 1], sent, to, received)
>>> axccl.local(2).run(exchange)
[array([1, 3, 0, 0]), array([2, 2, 4, 0])])";

inline constexpr const char* kSend = R"(Sends `x` to rank `peer`, whose recv has an array of the same shape.

Returns when `x` may be written again, which may be when the peer has received it. Two ranks that send to each other use
sendrecv.

>>> def first_to_second(comm):
...     return comm.send(np.arange(3), 1) if comm.rank == 0 else comm.recv(np.empty(3, int), 0)
>>> axccl.local(2).run(first_to_second)
[None, array([0, 1, 2])])";

inline constexpr const char* kRecv = R"(Receives what rank `peer` sends into `out`, and returns it.

>>> def first_to_second(comm):
...     return comm.recv(np.empty(1), 0) if comm.rank == 1 else comm.send(np.ones(1), 1)
>>> axccl.local(2).run(first_to_second)
[None, array([1.])])";

inline constexpr const char* kSendRecv = R"(Sends `x` to rank `destination` and receives `out` from rank `source`.

>>> def swap(comm):
...     return comm.sendrecv(np.array([comm.rank]), 1 - comm.rank, np.empty(1, int), 1 - comm.rank)
>>> axccl.local(2).run(swap)
[array([1]), array([0])])";

inline constexpr const char* kPermute = R"(The target of each pair (source, target) gets the source's array.

A rank is the source of at most one pair and the target of at most one. The result of a rank that is no target is zeros.

>>> axccl.local(3).run(lambda comm: comm.permute(np.array([comm.rank + 1]), [(0, 1), (1, 2)]))
[array([0]), array([1]), array([2])])";

inline constexpr const char* kCloseChannel = R"(Ends the channel on this rank. Calls that were made are not affected.

>>> def close(comm):
...     with comm.channel() as pair:
...         return pair.all_reduce(np.ones(1))
>>> axccl.local(2).run(close)
[array([2.]), array([2.])])";

inline constexpr const char* kCommunicator =
    R"(A rank of `size` ranks, which meet by `unique_id`; a Channel of all of them.

Communicator(rank, size, unique_id, *, name=None, timeout=None) returns when all ranks have come. One rank calls
axccl.unique_id() and sends the bytes to the others. `name` appears in messages; `timeout` as the property.

>>> import threading
>>> meeting = axccl.unique_id()
>>> def rank(number):
...     with axccl.Communicator(number, 2, meeting) as comm:
...         sums.append(int(comm.all_reduce(np.array([number]))[0]))
>>> sums = []
>>> threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
>>> for thread in threads: thread.start()
>>> for thread in threads: thread.join()
>>> sums
[1, 1])";

inline constexpr const char* kTimeout = R"(Seconds that a call of this rank may wait for others; 0: forever.

After that it raises axccl.Error, and the communicator has failed. 600 unless AXCCL_TIMEOUT says otherwise.

>>> def set_timeout(comm):
...     comm.timeout = 30
...     return comm.timeout
>>> axccl.local(1).run(set_timeout)
[30.0])";

inline constexpr const char* kSplit =
    R"(A new communicator of the ranks that pass the same color, ordered by (key, rank).

All ranks call it; one that passes color=None gets None.

>>> axccl.local(3).run(lambda comm: comm.split(comm.rank % 2).size)
[2, 1, 2])";

inline constexpr const char* kMakeChannel = R"(A channel of groups of ranks: each group communicates by itself.

groups: lists of ids; without, one group of all ranks. mode: what an id is: "ranks", or on a grid of replicas
(rank = replica * partitions + partition) "cross_replica", "cross_partition" or "cross_replica_and_partition", as in
StableHLO. id: channels of different ids are independent. group_order: reductions fold in the order of the group.
All ranks of a group create it; this waits for none.

>>> axccl.local(4).run(lambda comm: int(comm.channel([[0, 1], [2, 3]]).all_reduce(np.array(comm.rank))))
[1, 1, 5, 5])";

inline constexpr const char* kMeshChannel = R"(A channel of the ranks that differ only along some axes of a mesh.

mesh: sizes by name, major to minor, of all ranks in row-major order. along: a name, or a sequence of names and of
(name, pre_size, size) for a part of an axis.

>>> axccl.local(4).run(lambda comm: int(comm.mesh_channel({"x": 2, "y": 2}, "x").all_reduce(np.array(comm.rank))))
[2, 4, 2, 4])";

inline constexpr const char* kLink = R"(How this rank reaches rank `peer`: self, inproc, shm, shm+cma, tcp, ucx.

>>> axccl.local(2).run(lambda comm: comm.link(1 - comm.rank))
['inproc', 'inproc'])";

inline constexpr const char* kClose = R"(Ends the communicator on this rank when its calls are done.

Later calls raise axccl.Error here; calls of peers that need this rank raise it there. A `with` statement calls it, or
abort if an exception other than SystemExit leaves it.

>>> def closed(comm):
...     comm.close()
...     return comm
>>> axccl.local(1).run(closed)
[<axccl.Communicator rank 0 of 1, closed>])";

inline constexpr const char* kAbort =
    R"(Ends the communicator at once. Any thread may call it; calls that wait raise axccl.Error.

>>> def aborted(comm):
...     comm.abort()
...     return comm
>>> axccl.local(1).run(aborted)
[<axccl.Communicator rank 0 of 1, closed>])";

inline constexpr const char* kUniqueId = R"(128 bytes by which the ranks of a new communicator meet.

This process must live until all have joined. With NCCL_COMM_ID=host:port in the environment all ids are the same, and
every rank may call it.

>>> len(axccl.unique_id())
128)";

}  // namespace axccl::python
