"""A few steps of training with DDP and FSDP2, compared with one process that trains on the whole batch.

The reference is computed by every rank for itself, so nothing is exchanged for the comparison but what FSDP2 gathers.
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


def batch(ranks, device):
    """Inputs and targets of all ranks."""
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(ranks * SAMPLES, LENGTH, WIDTH, generator=generator).to(device) for _ in range(2)]


def train(model, inputs, targets):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def part_of(rank, tensors):
    return [tensor[rank * SAMPLES:(rank + 1) * SAMPLES] for tensor in tensors]


def compare(what, found, expected):
    """Returns the largest difference. `found`, `expected`: names and parameters."""
    worst = 0.0
    for (name, mine), (_, reference) in zip(found, expected, strict=True):
        worst = max(worst, (mine - reference).abs().max().item())
        if not worst <= TOLERANCE:  # NaN, too
            raise AssertionError(f"{what}: after {STEPS} steps {name} is off by {worst}")
    return worst


def ddp(device):
    """The wrapped model, and a function that names its parameters."""
    model = DistributedDataParallel(Model().to(device), device_ids=[device.index] if device.type == "cuda" else None)
    return model, model.module.named_parameters


def fsdp2(device, ranks):
    model = Model().to(device)
    mesh = init_device_mesh(device.type, (ranks,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, lambda: [(name, parameter.full_tensor()) for name, parameter in model.named_parameters()]


def check(rank, ranks, device):
    """The largest differences, as text."""
    everything = batch(ranks, device)
    reference = Model().to(device)
    start = [(name, parameter.detach().clone()) for name, parameter in reference.named_parameters()]
    train(reference, *everything)
    moved = max((a - b).abs().max().item() for (_, a), (_, b) in zip(start, reference.named_parameters(), strict=True))
    assert moved > 100 * TOLERANCE, f"training moves parameters by {moved} only, so that nothing would be noticed"
    kinds = [("DDP", lambda: ddp(device))]
    if fully_shard is not None:
        kinds.append(("FSDP2", lambda: fsdp2(device, ranks)))
    found = []
    for name, make in kinds:
        model, parameters = make()
        train(model, *part_of(rank, everything))
        with torch.no_grad():
            found.append(f"{name} within {compare(name, parameters(), reference.named_parameters()):.1g}")
    return ", ".join(found) + ("" if fully_shard is not None else ", no FSDP2 in this PyTorch")
