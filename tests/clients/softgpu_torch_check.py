#!/usr/bin/env python3
"""PyTorch on the software GPU, in one process: order of streams and devices, views, out=, random numbers, captures, what only
CUDA has, mixed precision and optimizers.

    softgpu run --devices 2 python3 tests/clients/softgpu_torch_check.py [CHECK...]

Needs two devices. softgpu_operators.py compares all operators, torch_check.py runs several ranks.
"""

import contextlib
import sys
import traceback
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

LONG = 200_000_000  # cycles by which a stream is late: 0.2 s


def equal(found, expected):
    assert torch.equal(found.cpu(), expected.cpu()), f"{found} in place of {expected}"


def raises(words, call):
    """`call` fails with a sentence that has all of the words."""
    try:
        call()
    except (RuntimeError, NotImplementedError) as error:
        text = str(error)
        assert all(word in text for word in words), f"{words} are not in: {text}"
        return
    raise AssertionError(f"no error with {words}")


@contextlib.contextmanager
def runs(*names):
    """What is inside runs these operators of aten."""
    seen = set()

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.add(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    with Mode():
        yield
    assert set(names) <= seen, f"{set(names) - seen} did not run; what ran: {seen}"


def check_order_of_streams():
    """An operator comes after what its stream waits for, and no operator waits for other streams."""
    source, ones = torch.zeros(1000).pin_memory(), torch.ones(1000).pin_memory()
    buffer = torch.zeros(1000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        buffer.copy_(ones, non_blocking=True)
        late = side.record_event()
    other = torch.full((3,), 2.0, device="cuda") * 2
    assert not late.query(), "an operator waited for another stream"
    torch.cuda.current_stream().wait_event(late)
    equal(buffer + 1, torch.full((1000,), 2.0))
    equal(other, torch.full((3,), 4.0))
    del source


def check_order_of_devices():
    """The streams of the operands' devices count, whatever device is current."""
    torch.cuda.set_device(0)
    ones = torch.ones(1000).pin_memory()
    first, second = torch.zeros(1000, device="cuda:0"), torch.zeros(1000, device="cuda:1")
    for late, buffer in ((0, first), (1, second)):
        with torch.cuda.device(late):
            torch.cuda._sleep(LONG)
            buffer.copy_(ones, non_blocking=True)
        with torch.cuda.device(1 - late):
            total = buffer + 1
        assert total.device == buffer.device
        equal(total, torch.full((1000,), 2.0))
    with torch.cuda.device(1):
        torch.cuda._sleep(LONG)
        second.copy_(torch.full((1000,), 5.0).pin_memory(), non_blocking=True)
    strided = torch.zeros(1000, 2, device="cuda:0")[:, 0]
    strided.copy_(second)  # between devices, by a kernel of the CPU
    equal(strided, torch.full((1000,), 5.0))
    with torch.cuda.device(1):
        torch.cuda._sleep(LONG)
        second.copy_(torch.full((1000,), 8.0).pin_memory(), non_blocking=True)
    for found, expected in zip(torch._foreach_add([first, second], 1), (2.0, 9.0), strict=True):  # takes several devices
        equal(found, torch.full((1000,), expected))
    raises(["same device", "cuda:0", "cuda:1"], lambda: first + second)
    raises(["same device", "cuda:0", "cpu"], lambda: first + torch.ones(1000))


def check_views():
    base = torch.arange(12.0, device="cuda").reshape(3, 4)
    for view in (base[1], base.t(), base[:, ::2], base.unfold(1, 2, 1), base.view(-1), base.diagonal(), base.expand(2, 3, 4)):
        assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    base[1].fill_(7)
    base.t()[0].mul_(2)
    equal(base, torch.tensor([[0, 1, 2, 3], [14, 7, 7, 7], [16, 9, 10, 11.0]]))
    same = base.add_(0)
    assert same is base or same.data_ptr() == base.data_ptr()
    assert base.contiguous().data_ptr() == base.data_ptr()
    complex_ = torch.view_as_complex(torch.ones(3, 2, device="cuda"))
    complex_.real.fill_(4)
    equal(complex_.conj(), torch.full((3,), 4 - 1j))


def check_views_by_kernels():
    """Results of kernels that share memory with an operand, though no schema says so."""
    compressed = torch.tensor([[0, 2.0], [3, 0]], device="cuda").to_sparse_csr()
    listed = compressed.to_sparse()
    assert listed._values().data_ptr() == compressed.values().data_ptr()
    listed._values().mul_(2)
    equal(compressed.to_dense(), torch.tensor([[0, 4.0], [6, 0]]))


def check_out():
    a = torch.arange(6.0, device="cuda").reshape(2, 3)
    out = torch.empty(2, 3, device="cuda")
    assert torch.add(a, 1, out=out) is out
    equal(out, a.cpu() + 1)
    with torch.inference_mode():  # without autograd, which returns its argument, whatever the kernel does
        inferred = torch.empty(2, 3, device="cuda")
        assert torch.ops.aten.add.out(a.clone(), 2, out=inferred) is inferred
    equal(inferred, a.cpu() + 2)
    grown = torch.empty(0, device="cuda")
    torch.matmul(a, a.t(), out=grown)
    equal(grown, a.cpu() @ a.cpu().t())
    assert grown.shape == (2, 2)
    wide = torch.full((2, 6), 9.0, device="cuda")
    torch.mul(a, 2, out=wide[:, ::2])
    equal(wide[:, ::2], a.cpu() * 2)
    equal(wide[:, 1::2], torch.full((2, 3), 9.0))
    values, indices = torch.empty(0, device="cuda"), torch.empty(0, dtype=torch.long, device="cuda")
    torch.max(a, 1, out=(values, indices))
    equal(indices, torch.tensor([2, 2]))


def check_out_of_16_bits():
    """Where the CPU's kernel takes no 16 bits, it computes in float32."""
    for dtype in (torch.float16, torch.bfloat16):
        a = torch.linspace(1.5, 4, 6).reshape(2, 3).to(dtype)
        raises(["not implemented for"], lambda: torch.special.zeta(a, a))  # noqa: B023
        expected, b = torch.special.zeta(a.float(), a.float()).to(dtype), a.cuda()
        equal(torch.special.zeta(b, b), expected)
        wide = torch.full((2, 6), 9.0, device="cuda", dtype=dtype)
        for out in (torch.empty_like(b), torch.empty(0, device="cuda", dtype=dtype), wide[:, ::2]):
            assert torch.special.zeta(b, b, out=out) is out
            equal(out, expected)
        equal(wide[:, 1::2], torch.full((2, 3), 9.0, dtype=dtype))


def check_random():
    torch.manual_seed(3)
    first = torch.randn(5, device="cuda")
    state = torch.cuda.get_rng_state()
    second = torch.randn(5, device="cuda")
    assert not torch.equal(first, second)
    torch.cuda.set_rng_state(state)
    equal(torch.randn(5, device="cuda"), second)
    torch.manual_seed(3)
    equal(first, torch.randn(5))  # a new seed: the first numbers are those of the CPU
    on_host = torch.get_rng_state()
    torch.cuda.manual_seed(9)
    numbers = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(9)
    equal(torch.rand(4, device="cuda"), numbers)
    equal(torch.get_rng_state(), on_host)  # the generator of the CPU stays where it is
    own = torch.Generator(device="cuda")
    own.manual_seed(5)
    numbers = torch.rand(4, device="cuda", generator=own)
    own.manual_seed(5)
    equal(torch.rand(4, device="cuda", generator=own), numbers)
    raises(["generator"], lambda: torch.rand(4, device="cuda", generator=torch.Generator()))
    weight = torch.randn(64, 64, device="cuda", requires_grad=True)
    gradients = []
    for run in (lambda w: checkpoint(lambda x: F.dropout(x @ x, 0.5), w, use_reentrant=False), lambda w: F.dropout(w @ w, 0.5)):
        torch.manual_seed(1)
        run(weight).square().sum().backward()
        gradients.append(weight.grad.clone())
        weight.grad = None
    equal(*gradients)


def warm_up(step):
    """As CUDA graphs want it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)


def check_capture():
    """A step of training, replayed, does what it does when it runs."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4)).cuda()
    inputs = torch.randn(16, 8, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    warm_up(step)
    saved = [p.detach().clone() for p in model.parameters()]
    momenta = [optimizer.state[p]["momentum_buffer"].clone() for p in model.parameters()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for p, before in zip(model.parameters(), saved, strict=True):
        equal(p, before)  # nothing runs while it is captured
    graph.replay()
    after, loss = [p.detach().clone() for p in model.parameters()], captured.clone()
    with torch.no_grad():
        for p, before, momentum in zip(model.parameters(), saved, momenta, strict=True):
            p.copy_(before)
            optimizer.state[p]["momentum_buffer"].copy_(momentum)
    equal(step(), loss)
    for p, expected in zip(model.parameters(), after, strict=True):
        equal(p, expected)


def check_capture_of_random():
    inputs = torch.ones(100, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = F.dropout(inputs, 0.5)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out), "each replay must draw anew"
    for target in (first, out):
        torch.manual_seed(4)
        graph.replay()
        target.copy_(out.clone())
    equal(first, out)


def check_capture_refused():
    inputs = torch.ones(10, device="cuda")

    def capture():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            inputs.nonzero()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raises(["aten::nonzero", "cannot be captured", "outside of the CUDA graph"], capture)
    equal(inputs.nonzero().flatten(), torch.arange(10))


def check_dropout():
    """What each of its operators draws, it draws again from the same seed; and it scales what it keeps."""
    x, ones = torch.randn(1000, device="cuda", requires_grad=True), torch.ones(1000, device="cuda")
    for call in (lambda: torch._fused_dropout(x, 0.75), lambda: torch.native_dropout(x, 0.25, True)):
        torch.cuda.manual_seed(6)
        out, mask = call()
        assert 650 < int(mask.sum()) < 850
        torch.testing.assert_close(out, x * mask / 0.75)
        torch.testing.assert_close(torch.autograd.grad(out, x, ones)[0], mask / 0.75)
        torch.cuda.manual_seed(6)
        equal(call()[1], mask)
    equal(torch.native_dropout(x, 0.25, False)[0], x)
    with runs("native_dropout", "native_dropout_backward"):
        F.dropout(x, 0.5).sum().backward()
    with runs("_masked_scale"):
        torch._masked_scale(ones, mask.byte(), 2.0)


def check_recurrent():
    for kind, operators in ((nn.LSTM, ("_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl")),
                            (nn.GRU, ("_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward")), (nn.RNN, ())):
        torch.manual_seed(0)
        host = kind(8, 16, 2, batch_first=True)
        device = kind(8, 16, 2, batch_first=True).cuda()
        device.load_state_dict(host.state_dict())
        inputs = torch.randn(4, 7, 8)
        expected = host(inputs)[0]
        expected.square().sum().backward()
        with runs(*operators):
            found = device(inputs.cuda())[0]
            found.square().sum().backward()
        torch.testing.assert_close(found.cpu(), expected)
        for a, b in zip(host.parameters(), device.parameters(), strict=True):
            torch.testing.assert_close(b.grad.cpu(), a.grad)


def attend(backend, tensors, mask, causal):
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(*tensors, attn_mask=mask, is_causal=causal)
    leaves = [tensor for tensor in (*tensors, mask) if tensor is not None]
    return [out, *torch.autograd.grad(out.float().square().sum(), leaves)]


def check_attention():
    for backend, dtype in ((SDPBackend.EFFICIENT_ATTENTION, torch.float32), (SDPBackend.FLASH_ATTENTION, torch.float16)):
        tensors = [torch.randn(2, 4, 16, 32, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
        mask = torch.randn(2, 4, 16, 16, device="cuda", dtype=dtype, requires_grad=True)
        for used, causal in ((None, False), (None, True), (mask, False)):
            if used is not None and backend == SDPBackend.FLASH_ATTENTION:
                continue
            for a, b in zip(attend(backend, tensors, used, causal), attend(SDPBackend.MATH, tensors, used, causal), strict=True):
                torch.testing.assert_close(a, b, atol=1e-5 if dtype == torch.float32 else 1e-2, rtol=1e-2)
    for backend, name in ((SDPBackend.EFFICIENT_ATTENTION, "efficient"), (SDPBackend.FLASH_ATTENTION, "flash")):
        with sdpa_kernel(backend):
            raises([f"aten::_scaled_dot_product_{name}_attention with dropout", "software GPU", "leave the backends"],
                   lambda: F.scaled_dot_product_attention(*tensors, dropout_p=0.5))


def check_refused():
    """Each refusal names the operator and what to do."""
    a, aten = torch.randn(1, 2, 16, 32, device="cuda", dtype=torch.float16), torch.ops.aten
    quantized = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8).cuda()
    for operator, remedy, call in (
        ("_cudnn_init_dropout_state", "leave torch.backends.cudnn.enabled False",
         lambda: torch._cudnn_init_dropout_state(0.5, True, 1, dtype=torch.uint8, device="cuda")),
        ("_flash_attention_forward", "call torch.nn.functional.scaled_dot_product_attention",
         lambda: aten._flash_attention_forward(a, a, a, None, None, 16, 16, 0.0, False, False)),
        ("_scaled_dot_product_cudnn_attention", "leave its backends flash, efficient and cuDNN off",
         lambda: aten._scaled_dot_product_cudnn_attention(a, a, a, None, True)),
        ("_cslt_compress", "keep the weights dense", lambda: torch._cslt_compress(torch.ones(64, 64, device="cuda").half())),
        ("_convert_weight_to_int4pack", "convert the weights",
         lambda: torch._convert_weight_to_int4pack(torch.zeros(64, 64, device="cuda", dtype=torch.uint8), 2)),
        ("_conv_depthwise2d", "call torch.nn.functional.conv2d", lambda: aten._conv_depthwise2d(
            a, torch.ones(2, 1, 3, 3, device="cuda").half(), [3, 3], None, [1, 1], [0, 0], [1, 1])),
        ("quantize_per_tensor", "run this part on the CPU",
         lambda: torch.quantize_per_tensor(torch.randn(4, device="cuda"), 0.1, 0, torch.qint8)),
        ("dequantize", "run this part on the CPU", quantized.dequantize),
    ):
        raises([f"aten::{operator}", "does not run on the software GPU", remedy], call)
    equal(quantized.cpu().dequantize(), quantized.clone().cpu().dequantize())  # they can be moved


def check_nested():
    parts = [torch.randn(2, 4, 8), torch.randn(3, 4, 8)]
    results = []
    for device in ("cpu", "cuda"):
        strided = torch.nested.nested_tensor([part.to(device) for part in parts])
        ragged = torch.nested.nested_tensor([part.to(device) for part in parts], layout=torch.jagged, requires_grad=True)
        heads = ragged.transpose(1, 2)
        out = F.scaled_dot_product_attention(heads, heads, heads)
        padded = [torch.nested.to_padded_tensor(nested, 0.0) for nested in (
            strided * 2 + strided, strided.softmax(-1), F.gelu(strided), strided.clone().mul_(3),
            strided.transpose(1, 2).contiguous(), ragged.detach() + 1)]
        gradient = torch.autograd.grad(out.values().square().sum(), ragged)[0]
        results.append([*padded, out.values(), gradient.values()])
    for expected, found in zip(*results, strict=True):
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), expected)


def check_sync_batch_norm():
    """Its five operators, against batch_norm."""
    torch.manual_seed(0)
    x, grad = torch.randn(6, 4, 5), torch.randn(6, 4, 5)
    weight, bias = torch.randn(4), torch.randn(4)
    host = x.clone().requires_grad_()
    scale, shift, mean, var = weight.clone().requires_grad_(), bias.clone().requires_grad_(), torch.zeros(4), torch.ones(4)
    expected = F.batch_norm(host, mean, var, scale, shift, True, 0.1, 1e-5)
    expected.backward(grad)
    x, grad, weight, bias, ours, our_var = (t.cuda() for t in (x, grad, weight, bias, torch.zeros(4), torch.ones(4)))
    stats = [torch.batch_norm_stats(part, 1e-5) for part in (x[:2], x[2:])]
    counts = torch.tensor([10.0, 20.0], device="cuda")
    joined, invstd = torch.batch_norm_gather_stats_with_counts(
        x, torch.stack([s[0] for s in stats]), torch.stack([s[1] for s in stats]), ours, our_var, 0.1, 1e-5, counts)
    out = torch.batch_norm_elemt(x, weight, bias, joined, invstd, 1e-5)
    sums, products, of_weight, of_bias = torch.batch_norm_backward_reduce(grad, x, joined, invstd, weight, True, True, True)
    of_input = torch.batch_norm_backward_elemt(grad, x, joined, invstd, weight, sums, products, counts.int())
    for found, wanted in ((out, expected), (ours, mean), (our_var, var), (of_weight, scale.grad), (of_bias, shift.grad),
                          (of_input, host.grad)):
        torch.testing.assert_close(found.cpu(), wanted.detach(), atol=1e-5, rtol=1e-4)


def check_mixed_precision():
    for dtype in (torch.float16, torch.bfloat16):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(288, 10)).cuda()
        optimizer, scaler = torch.optim.Adam(model.parameters(), lr=0.01), torch.amp.GradScaler("cuda")
        inputs, target = torch.randn(4, 3, 8, 8, device="cuda"), torch.randint(0, 10, (4,), device="cuda")
        losses = []
        for _ in range(8):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype):
                out = model(inputs)
                assert out.dtype == dtype
                loss = F.cross_entropy(out, target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        assert losses[-1] < losses[0] / 2, losses


def check_autocast():
    """Products are of 16 bits, and what needs 32 has them, as autocast lists them for a device."""
    x, weight, bias = torch.randn(4, 8), torch.randn(8, 8), torch.randn(8)
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype):
            out = F.linear(x.cuda(), weight.cuda(), bias.cuda())
            norm, loss = F.layer_norm(out, (8,)), F.mse_loss(out, torch.zeros(4, 8, device="cuda", dtype=dtype))
        expected = F.linear(*(tensor.to(dtype) for tensor in (x, weight, bias)))
        equal(out, expected)
        equal(norm, F.layer_norm(expected.float(), (8,)))
        equal(loss, F.mse_loss(expected.float(), torch.zeros(4, 8)))
        assert (out.dtype, norm.dtype, loss.dtype) == (dtype, torch.float32, torch.float32)


def check_widening():
    """Autocast's softmax of 16 bits has a result of 32."""
    for function in (torch.softmax, torch.log_softmax):
        narrow = torch.randn(4, 9, device="cuda", dtype=torch.float16, requires_grad=True)
        wide = narrow.detach().float().requires_grad_()
        with torch.autocast("cuda"):
            out = function(narrow, 1)
        assert out.dtype == torch.float32
        equal(out, function(wide, 1))
        for result in (out, function(wide, 1)):
            result.square().sum().backward()
        equal(narrow.grad, wide.grad.half())


def check_optimizers():
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop):
        for way in ("foreach", "fused"):
            if way == "fused" and kind in (torch.optim.Adagrad, torch.optim.RMSprop):
                continue  # PyTorch has none for CUDA
            results = []
            for device in ("cpu", "cuda"):
                torch.manual_seed(0)
                parameters = [nn.Parameter(torch.randn(7, 3).to(device)), nn.Parameter(torch.randn(5).to(device))]
                optimizer = kind(parameters, lr=0.1, **{way: True})
                for _ in range(3):
                    optimizer.zero_grad()
                    sum((p * 3).square().sum() for p in parameters).backward()
                    optimizer.step()
                results.append(parameters)
            for a, b in zip(*results, strict=True):
                equal(b, a)


def check_sparse():
    table = nn.Embedding(10, 4, sparse=True).cuda()
    before = table.weight.detach().clone()
    table(torch.tensor([1, 2, 2], device="cuda")).sum().backward()
    torch.optim.SGD(table.parameters(), lr=1.0).step()
    expected = before.cpu()
    expected[1] -= 1
    expected[2] -= 2
    equal(table.weight, expected)


def main():
    warnings.simplefilter("ignore")
    if torch.cuda.device_count() < 2:
        sys.exit("There are not two devices; start this with softgpu run --devices 2.")
    checks = {name[len("check_"):]: check for name, check in globals().items() if name.startswith("check_")}
    failed = []
    for name in sys.argv[1:] or checks:
        torch.cuda.set_device(0)
        try:
            checks[name]()
        except Exception:  # noqa: BLE001  each is reported
            traceback.print_exc()
            failed.append(name)
        torch.cuda.synchronize()
    print(f"{len(sys.argv[1:] or checks)} checks: " + (f"{', '.join(failed)} failed" if failed else "all right"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
