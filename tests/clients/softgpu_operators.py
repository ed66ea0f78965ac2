#!/usr/bin/env python3
"""PyTorch's operators on the software GPU, compared with the CPU: those of PyTorch's own database (OpInfo) with float32.

    softgpu run python3 tests/clients/softgpu_operators.py [--samples 3] [--list] [OPERATOR...]

For each operator some of the database's samples: the operator itself, on strided inputs, in place, and with out= of the right
shape, strided, and empty (so that it must grow). The kernels are the CPU's, so results must be the same to the bit, with the
same shapes and strides; views must be views of their inputs on both, and out= must be what is returned. Random numbers are
compared after the same seed. softgpu_operators.txt lists what may fail, and why; exit status 1 if anything else does, or if
something listed no longer fails.
"""

import argparse
import math
import pathlib
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_flatten, tree_map

KNOWN = pathlib.Path(__file__).with_suffix(".txt")
SEED = 7


def to_cuda(tree):
    """The same values on the device, with the same strides; what shares memory on the host does so there."""
    storages = {}

    def move(value):
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            return value.detach().cuda().requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor):
            key = value.untyped_storage().data_ptr()
            if key == 0 or key not in storages:
                storages[key] = value.untyped_storage().cuda()
            moved = torch.empty(0, dtype=value.dtype, device="cuda")
            moved.set_(storages[key], value.storage_offset(), value.size(), value.stride())
            return (moved.conj() if value.is_conj() else moved).requires_grad_(value.requires_grad)
        if isinstance(value, torch.device) or value == "cpu":
            return torch.device("cuda")
        return value

    return tree_map(move, tree)


def copied(tree):
    """Own memory, same strides."""
    def copy(value):
        if not isinstance(value, torch.Tensor):
            return value
        if value.layout != torch.strided:
            return value.detach().clone()
        made = torch.empty(0, dtype=value.dtype, device=value.device)
        made.set_(value.untyped_storage().clone(), value.storage_offset(), value.size(), value.stride())
        return made.conj() if value.is_conj() else made

    return tree_map(copy, tree)


def bits(tensor):
    """As integers, so that NaNs of the same bits are equal."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().flatten().clone(memory_format=torch.contiguous_format)
    return tensor.view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)


class Differs(Exception):
    pass


def same(host, device, what, strides=True):
    left, right = tree_flatten(host)[0], tree_flatten(device)[0]
    if len(left) != len(right):
        raise Differs(f"{what}: {len(right)} results in place of {len(left)}")
    for a, b in zip(left, right, strict=True):
        if not isinstance(a, torch.Tensor):
            both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
            if a != b and not both_nan and a != "cpu" and not isinstance(a, torch.device):
                raise Differs(f"{what}: {b!r} in place of {a!r}")
            continue
        if b.device.type != "cuda" and a.dim() > 0:
            raise Differs(f"{what}: the result is on {b.device}")
        if (a.dtype, a.layout, a.shape) != (b.dtype, b.layout, b.shape):
            raise Differs(f"{what}: {b.dtype} {tuple(b.shape)} in place of {a.dtype} {tuple(a.shape)}")
        if a.layout != torch.strided:
            a, b = a.to_dense(), b.cpu().to_dense()
        elif strides and a.numel() > 0 and a.stride() != b.stride():
            raise Differs(f"{what}: strides {b.stride()} in place of {a.stride()}")
        if not torch.equal(bits(a), bits(b)):
            raise Differs(f"{what}: other values, by up to {(a.detach() - b.detach().cpu()).abs().max().item()}"
                          if a.is_floating_point() else f"{what}: other values")


def inside(results, inputs):
    """Of each result whether it shares memory with an input."""
    owners = {t.untyped_storage().data_ptr() for t in tree_flatten(inputs)[0]
              if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.numel()}
    return [t.untyped_storage().data_ptr() in owners for t in tree_flatten(results)[0]
            if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.numel()]


def attempt(call):
    """The result, or the exception: both devices must refuse the same calls."""
    torch.manual_seed(SEED)
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001  whatever an operator raises
        return None, error


def both(what, call, arguments, inputs_after=True):
    """Runs `call` on copies of the arguments on either device."""
    on_host = copied(arguments)
    on_device = to_cuda(on_host)
    host, refused = attempt(lambda: call(on_host))
    if refused is not None:
        return  # the database has samples that only CUDA takes
    device, failure = attempt(lambda: call(on_device))
    if failure is not None:
        raise Differs(f"{what}: {type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}")
    same(host, device, what)
    if inside(host, on_host) != inside(device, on_device):
        raise Differs(f"{what}: {inside(device, on_device)} are views of inputs in place of {inside(host, on_host)}")
    if inputs_after:
        same(on_host, on_device, f"{what}, inputs afterwards")


def call_with_out(op, name, make_out):
    def call(arguments):
        out = tree_map(make_out, arguments[3])
        result = op(arguments[0], *arguments[1], **arguments[2], out=out)
        for returned, given in zip(tree_flatten(result)[0], tree_flatten(out)[0], strict=True):
            if isinstance(given, torch.Tensor) and returned.data_ptr() != given.data_ptr():
                raise AssertionError(f"{name}: out= is not what is returned")
        return out

    return call


def strided_out(tensor):
    """Every other element of a larger tensor."""
    if tensor.dim() == 0:
        return torch.full_like(tensor, 3)
    wide = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), 3, dtype=tensor.dtype, device=tensor.device)
    return wide[..., ::2]


def check_out(op, sample, arguments):
    expected, refused = attempt(lambda: op(sample.input, *sample.args, **sample.kwargs))
    leaves = tree_flatten(expected)[0]
    if refused is not None or not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return
    for name, make in (("out=", lambda t: torch.full_like(t, 3)), ("strided out=", strided_out),
                       ("growing out=", lambda t: torch.empty(0, dtype=t.dtype, device=t.device))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            both(name, call_with_out(op, name, make), [*arguments, expected], inputs_after=False)


def check_sample(op, sample):
    """The first difference, if there is one."""
    arguments = [sample.input, sample.args, sample.kwargs]
    both("call", lambda a: op(a[0], *a[1], **a[2]), arguments)
    strided = tree_map(lambda v: noncontiguous_like(v.detach()) if isinstance(v, torch.Tensor) and v.layout == torch.strided
                       else v, arguments)
    both("strided inputs", lambda a: op(a[0], *a[1], **a[2]), strided)
    in_place = op.inplace_variant
    if in_place is not None and not sample.broadcasts_input:
        both("in place", lambda a: in_place(a[0], *a[1], **a[2]), arguments)
    if op.supports_out:
        check_out(op, sample, arguments)


def check(op, count):
    """How many samples were compared, and the first difference."""
    made = []
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=False):
        made.append(sample)
        if len(made) == count:
            break
    for sample in made:
        try:
            check_sample(op, sample)
        except (Differs, RuntimeError) as difference:  # RuntimeError: a result cannot be read
            return len(made), str(difference).splitlines()[0]
    return len(made), ""


def read_known():
    """name -> reason."""
    known = {}
    for line in KNOWN.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(": ", 1)
            known[name] = reason
    return known


def full_name(op):
    return f"{op.name} ({op.variant_test_name})" if op.variant_test_name else op.name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--list", action="store_true", help="print every operator")
    parser.add_argument("operators", nargs="*")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if not torch.cuda.is_available():
        sys.exit("There is no device; start this with softgpu run.")
    torch.set_num_threads(1)
    known, wrong, operators, samples, failures = read_known(), [], 0, 0, 0
    for op in op_db:
        if torch.float32 not in op.supported_dtypes("cpu") or (arguments.operators and op.name not in arguments.operators):
            continue
        compared, difference = check(op, arguments.samples)
        operators, samples, failures = operators + 1, samples + compared, failures + bool(difference)
        name = full_name(op)
        if arguments.list or (difference and name not in known):
            print(f"{name}: {difference or 'same'}", flush=True)
        if bool(difference) != (name in known):
            wrong.append(name)
    print(f"{operators} operators, {samples} samples: {failures} operators differ, "
          f"{sum(name not in known for name in wrong)} of them not listed in {KNOWN.name}")
    for name in wrong:
        if name in known:
            print(f"{name} is listed, but does not differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
