"""A few steps of training with DDP, FSDP2 and SyncBatchNorm, compared with one process that trains on the whole batch, on the
CPU.

Every rank computes the reference for itself, so nothing is exchanged for the comparison but what FSDP2 gathers.
"""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    try:
        from torch.distributed._composable.fsdp import fully_shard  # PyTorch 2.4 and 2.5
    except ImportError:
        fully_shard = None

WIDTH, LAYERS, SAMPLES, LENGTH = 32, 2, 4, 8  # SAMPLES: of a rank, of LENGTH tokens
STEPS, RATE = 5, 0.1
# The gradients of a batch's parts are summed in another order than in one process, which costs a few of the 2^-24 that a
# float32 is rounded by, in each step; later steps keep the error. Measured: below 1e-6. A step with only one rank's gradients
# differs by more than 1e-3.
TOLERANCE = 2e-5


class Model(nn.Module):
    """A transformer; the same on every rank."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
                                    for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens):
        for layer in self.layers:
            tokens = layer(tokens)
        return self.head(tokens)


class Normalized(nn.Module):
    """Normalises over the batch, so that samples of one rank count in the results of another."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.before, self.norm, self.after = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(LENGTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens):
        return self.after(self.norm(self.before(tokens)).relu())


def batch(ranks):
    """Inputs and targets of all ranks."""
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(ranks * SAMPLES, LENGTH, WIDTH, generator=generator) for _ in range(2)]


def train(model, inputs, targets, groups=None):
    optimizer = torch.optim.SGD(groups or model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def part_of(rank, tensors, device):
    return [tensor[rank * SAMPLES:(rank + 1) * SAMPLES].to(device) for tensor in tensors]


def compare(what, found, expected):
    """Returns the largest difference. `found`, `expected`: names and tensors."""
    worst = 0.0
    for (name, mine), (_, reference) in zip(found, expected, strict=True):
        worst = max(worst, (mine.detach().cpu() - reference.detach()).abs().max().item())
        if not worst <= TOLERANCE:  # NaN, too
            raise AssertionError(f"{what}: after {STEPS} steps {name} is off by {worst}")
    return worst


def state(model):
    """Names and tensors: parameters, and the statistics of a normalisation."""
    return [*model.named_parameters(), *((name, buffer.float()) for name, buffer in model.named_buffers())]


def ddp(model, device):
    """The wrapped model, and a function that names its parameters."""
    model = DistributedDataParallel(model.to(device), device_ids=[device.index] if device.type == "cuda" else None)
    return model, lambda: state(model.module)


def sync_batch_norm(model, device):
    return ddp(nn.SyncBatchNorm.convert_sync_batchnorm(model), device)


def fsdp2(model, device, ranks):
    model = model.to(device)
    mesh = init_device_mesh(device.type, (ranks,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, lambda: [(name, parameter.full_tensor()) for name, parameter in model.named_parameters()]


def train_reference(make, train_it):
    """A model of one process after training, which must have moved it."""
    model = make()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    train_it(model)
    moved = max((a - b).abs().max().item() for a, b in zip(start, model.parameters(), strict=True))
    assert moved > 100 * TOLERANCE, f"training moves parameters by {moved} only, so that nothing would be noticed"
    return model


def check(rank, ranks, device):
    """The largest differences, as text."""
    everything = batch(ranks)
    kinds = [("DDP", Model, lambda model: ddp(model, device))]
    if fully_shard is not None:
        kinds.append(("FSDP2", Model, lambda model: fsdp2(model, device, ranks)))
    if device.type == "cuda":  # PyTorch has no other
        kinds.append(("SyncBatchNorm", Normalized, lambda model: sync_batch_norm(model, device)))
    references = {kind: train_reference(kind, lambda model: train(model, *everything)) for kind in (Model, Normalized)}
    found = []
    for name, kind, wrap in kinds:
        model, parameters = wrap(kind())
        train(model, *part_of(rank, everything, device))
        with torch.no_grad():
            found.append(f"{name} within {compare(name, parameters(), state(references[kind])):.1g}")
    return ", ".join(found) + ("" if fully_shard is not None else ", no FSDP2 in this PyTorch")
