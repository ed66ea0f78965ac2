"""DTensor, tensor parallelism and pipelining, beside torch_training.py, compared with one process on the CPU.

Every rank computes the reference for itself. DTensor's values are small integers, so that sums are exact.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from torch_training import RATE, STEPS, compare, train, train_reference

HEAD, LAYERS, SAMPLES = 8, 2, 4  # HEAD: the width of one head of attention; there are as many heads as ranks


# ---- DTensor ----


def same(what, found, expected):
    assert torch.equal(found.cpu(), expected), f"{what}: {found} in place of {expected}"


def local_part(whole, placement, rank, ranks):
    """What a rank has of a tensor; of dimensions that do not divide by the ranks, the last ones have less, or nothing."""
    if not placement.is_shard():
        return whole
    parts = torch.chunk(whole, ranks, placement.dim)
    return parts[rank] if rank < len(parts) else whole.narrow(placement.dim, 0, 0)


def make_source(placement, shape, rank, mesh, device):
    """A tensor that is placed so, and its values."""
    whole = (torch.arange(shape[0] * shape[1]) % 11).float().reshape(shape)
    if not placement.is_partial():
        return distribute_tensor(whole.to(device), mesh, [placement]), whole
    part = (whole * (rank + 1)).to(device)  # the sum of all parts is the tensor
    ranks = mesh.size()
    return DTensor.from_local(part, mesh, [placement], run_check=False), whole * (ranks * (ranks + 1) // 2)


def check_redistribute(rank, ranks, device):
    """From each placement to each other, also of sizes that do not divide by the ranks."""
    mesh = init_device_mesh(device.type, (ranks,))
    placed = [Replicate(), Shard(0), Shard(1)]
    for shape in ((4 * ranks, 2 * ranks), (2 * ranks + 1, 3)):
        for before in (*placed, Partial()):
            source, whole = make_source(before, shape, rank, mesh, device)
            for after in placed:
                what = f"{shape} from {before} to {after}"
                moved = source.redistribute(mesh, [after])
                assert moved.placements == (after,), f"{what}: {moved.placements}"
                same(f"{what}, the part of rank {rank}", moved.to_local(), local_part(whole, after, rank, ranks))
                same(f"{what}, gathered", moved.full_tensor(), whole)


def check_product(rank, ranks, device):
    """A product over the sharded dimension is a sum of all ranks' products, and so are its gradients."""
    mesh = init_device_mesh(device.type, (ranks,))
    a, b = ((torch.arange(6 * 4 * ranks) % k).float().reshape(shape)
            for k, shape in ((7, (6, 4 * ranks)), (5, (4 * ranks, 6))))
    left = distribute_tensor(a.to(device), mesh, [Shard(1)]).requires_grad_()
    right = distribute_tensor(b.to(device), mesh, [Shard(0)]).requires_grad_()
    product = left @ right
    assert product.placements == (Partial(),), product.placements
    same("product of shards", product.full_tensor(), a @ b)
    product.redistribute(mesh, [Replicate()]).sum().backward()
    ones = torch.ones(6, 6)
    same("gradient of the left factor", left.grad.full_tensor(), ones @ b.t())
    same("gradient of the right factor", right.grad.full_tensor(), a.t() @ ones)


# ---- tensor parallelism ----


class Block(nn.Module):
    """Attention and MLP of a transformer, whose heads and columns may be those of one rank."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        def heads(layer):
            return layer(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)

        found = F.scaled_dot_product_attention(heads(self.query), heads(self.key), heads(self.value), is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(LAYERS))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def divide(model, mesh):
    """Each rank has heads and columns of its own."""
    for block in model.blocks:
        parallelize_module(block, mesh, {"query": ColwiseParallel(), "key": ColwiseParallel(), "value": ColwiseParallel(),
                                         "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def divide_sequence(model, mesh):
    """And between these layers, tokens of its own: all-gather and reduce-scatter in place of all-reduce."""
    tokens = Shard(1)
    columns = {name: ColwiseParallel(input_layouts=tokens) for name in ("query", "key", "value", "up")}
    rows = {name: RowwiseParallel(output_layouts=tokens) for name in ("out", "down")}
    for block in model.blocks:
        parallelize_module(block, mesh, {"norm1": SequenceParallel(), "norm2": SequenceParallel(), **columns, **rows})
    return parallelize_module(model, mesh, {"first": RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens),
                                            "last": ColwiseParallel(input_layouts=tokens, output_layouts=Replicate())})


def divide_and_shard(model, mesh):
    """Heads and columns among pairs of ranks, parameters among the pairs by FSDP2."""
    divide_sequence(model, mesh["tensor"])
    for block in model.blocks:
        fully_shard(block, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


def groups(model):
    """Optimizers do not take tensors and DTensors together."""
    found = [[p for p in model.parameters() if isinstance(p, DTensor) == distributed] for distributed in (True, False)]
    return [{"params": parameters} for parameters in found if parameters]


def whole(model):
    """Names and parameters, gathered."""
    return [(name, p.full_tensor() if isinstance(p, DTensor) else p) for name, p in model.named_parameters()]


def check_tensor_parallel(rank, ranks, device):
    width = HEAD * ranks
    generator = torch.Generator().manual_seed(2)
    everything = [torch.randn(SAMPLES, 4 * ranks, width, generator=generator) for _ in range(2)]
    reference = train_reference(lambda: Transformer(width), lambda model: train(model, *everything))
    line = init_device_mesh(device.type, (ranks,))
    kinds = [("TP", divide, line, slice(None)), ("TP of sequences", divide_sequence, line, slice(None))]
    if ranks % 2 == 0 and ranks > 2 and SAMPLES % (ranks // 2) == 0:
        table = init_device_mesh(device.type, (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
        samples = SAMPLES // (ranks // 2)
        kinds.append(("TP and FSDP2", divide_and_shard, table, slice(rank // 2 * samples, (rank // 2 + 1) * samples)))
    found = []
    for name, change, mesh, mine in kinds:
        model = change(Transformer(width).to(device), mesh)
        train(model, *(tensor[mine].to(device) for tensor in everything), groups(model))
        with torch.no_grad():
            found.append(f"{name} within {compare(name, whole(model), reference.named_parameters()):.1g}")
    return found


# ---- pipelining ----


def make_layers(count):
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(HEAD, HEAD), nn.Tanh()) for _ in range(count)))


def train_in_stages(schedule, layers, rank, ranks, everything):
    """Only the first stage gets the inputs, and only the last one the targets."""
    optimizer = torch.optim.SGD(layers.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        inputs = everything[:1] if rank == 0 else []
        schedule.step(*inputs, **({"target": everything[1]} if rank == ranks - 1 else {}))
        optimizer.step()


def check_pipelining(rank, ranks, device):
    pieces, found = 2 * ranks, []
    for kind, stages_of_rank in ((ScheduleGPipe, 1), (Schedule1F1B, 1), (ScheduleInterleaved1F1B, 2)):
        count = ranks * stages_of_rank
        generator = torch.Generator().manual_seed(2)
        everything = [torch.randn(2 * pieces, HEAD, generator=generator) for _ in range(2)]
        reference = train_reference(lambda: make_layers(count), lambda model: train(model, *everything))  # noqa: B023
        numbers = range(rank, count, ranks)
        layers = make_layers(count).to(device)
        stages = [PipelineStage(layers[number], number, count, device) for number in numbers]
        schedule = kind(stages if stages_of_rank > 1 else stages[0], pieces, loss_fn=F.mse_loss)
        mine = nn.ModuleList(layers[number] for number in numbers)
        train_in_stages(schedule, mine, rank, ranks, [tensor.to(device) for tensor in everything])
        expected = nn.ModuleList(reference[number] for number in numbers)
        worst = compare(kind.__name__, mine.named_parameters(), expected.named_parameters())
        found.append(f"{kind.__name__[len('Schedule'):]} within {worst:.1g}")
    return found


def check(rank, ranks, device):
    """The largest differences, as text."""
    check_redistribute(rank, ranks, device)
    check_product(rank, ranks, device)
    return ", ".join([*check_tensor_parallel(rank, ranks, device), *check_pipelining(rank, ranks, device)])
