#!/usr/bin/env python3
"""PyTorch's own tests of torch.distributed, those in its wheel (DistributedTest), with a backend of choice.

    python3 tests/clients/torch_distributed_test.py --backend axccl --compare gloo [--ranks 4] [TEST...]
    softgpu run --devices 2 python3 tests/clients/torch_distributed_test.py --backend nccl --ranks 2 [TEST...]

On the CPU, or with nccl on the devices there are. The tests list backends by name; where gloo is named, axccl is named, too.
Prints every test that fails on the backend, and whether it also fails on the other one. Exit status 1 if one fails on the
former alone that is not known to (KNOWN, KNOWN_SINCE_2_15).
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# What fails, and why that is right.
KNOWN = {
    "test_ddp_uneven_inputs": "on the software GPU, its convolutions of large images take longer than its time limit",
    "test_ddp_model_diff_shape_across_ranks": "rank 1 leaves after its error, while rank 0 broadcasts to it; the root of NCCL "
                                              "does not wait for that, AxCCL's does and reports it",
    "test_ddp_logging_data_cpu": "PyTorch logs every backend but its own as \"custom\"",
    "test_monitored_barrier_gloo": "asks for gloo's text",
    "test_monitored_barrier_gloo_rank_0_timeout": "asks for gloo's text",
    "test_monitored_barrier_gloo_subgroup": "asks for gloo's text",
    "test_sparse_all_reduce_sum": "sparse tensors are not served, and the error says so",
}
# Likewise from PyTorch 2.15 on, whose backend nccl is a new one (TORCH_DIST_USE_NCCL2=0 selects the one of before).
KNOWN_SINCE_2_15 = {
    **dict.fromkeys([
        "test_all_gather_cuda", "test_all_gather_cuda_complex", "test_all_reduce_sum_cuda", "test_all_reduce_sum_cuda_async",
        "test_all_reduce_sum_cuda_complex", "test_all_to_all_single_equal_split_cuda",
        "test_all_to_all_single_equal_split_cuda_complex", "test_all_to_all_single_equal_split_full_group_cuda",
        "test_broadcast_cuda", "test_reduce_sum_cuda", "test_reduce_sum_cuda_twice", "test_send_recv_nccl_autograd_profiler",
    ], "asks the profiler for events nccl:..., which the new backend calls otherwise"),
    **dict.fromkeys(["test_all_gather_object_default_pg", "test_all_gather_object_subgroup", "test_barrier_cuda"],
                    "passes with the backend of before; the ranks have the same current device, which the new one heeds"),
    **dict.fromkeys(["test_ddp_profiling_torch_profiler", "test_send_recv_nccl_torch_profiler"],
                    "on the software GPU, CUPTI of CUDA 13.2 calls itself without end"),
}

RUNNER = """
import os, sys, unittest, torch
if {backend!r} == "axccl":
    import axccl.torch
    torch.distributed.monitored_barrier = axccl.torch.monitored_barrier  # PyTorch's serves gloo alone
available = torch.cuda.is_available
if {backend!r} == "nccl":  # PyTorch forbids devices to the ranks, which are forked, if this process has asked for one
    torch.cuda.is_available = lambda: False
    torch.cuda.device_count = lambda: {devices}
sys.path.insert(0, {folder!r})
from torch.testing._internal import common_distributed, common_utils
for feature in common_distributed.DistTestCases.backend_feature.values():
    if "gloo" in feature and isinstance(feature, set):
        feature.add("axccl")
common_distributed.DistTestCases.backend_feature["plugin"].add("axccl")
import patched_distributed_test as tests
class Ranks(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
    @classmethod
    def _run(cls, *arguments, **named):
        torch.cuda.is_available = available
        for module in (common_utils, common_distributed, tests):
            if hasattr(module, "TEST_CUDA"):
                module.TEST_CUDA = available()
        super()._run(*arguments, **named)
class Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        self.stream.flush()
if __name__ == "__main__":
    names = {names!r} or unittest.TestLoader().getTestCaseNames(Ranks)
    names = [name for name in names if name not in {left_out!r}]
    suite = unittest.TestSuite(Ranks(name) for name in names)
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(suite)
    import json
    report = {{"failed": sorted(test.id().split(".")[-1] for test, _ in result.failures + result.errors),
               "skipped": {{test.id().split(".")[-1]: why for test, why in result.skipped}}, "ran": result.testsRun}}
    with open({report!r}, "w", encoding="utf-8") as file:
        json.dump(report, file)
"""


def patched(source):
    """The tests with axccl wherever they name gloo as a choice of backends."""
    source = re.sub(r'BACKEND != "gloo"', 'BACKEND not in ("gloo", "axccl")', source)
    source = re.sub(r'BACKEND == "gloo"', 'BACKEND in ("gloo", "axccl")', source)
    return re.sub(r'([\[{(] *|, *)"gloo"( *[\]},])', r'\1"gloo", "axccl"\2', source)


def known():
    import torch

    return {**KNOWN, **KNOWN_SINCE_2_15} if torch.__version__ >= (2, 15) else KNOWN


def run(backend, ranks, names, left_out=()):
    import torch

    original = pathlib.Path(torch.__file__).parent / "testing/_internal/distributed/distributed_test.py"
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "patched_distributed_test.py").write_text(patched(original.read_text(encoding="utf-8")),
                                                                       encoding="utf-8")
        report = os.path.join(folder, "report.json")
        script = pathlib.Path(folder, "runner.py")
        text = RUNNER.format(backend=backend, folder=folder, names=names, left_out=set(left_out), report=report,
                             devices=ranks)
        script.write_text(text, encoding="utf-8")
        for name in ("barrier", "test_dir", "init_dir"):
            os.makedirs(os.path.join(folder, name))
        environment = dict(os.environ, BACKEND=backend, WORLD_SIZE=str(ranks), TEMP_DIR=folder, MASTER_ADDR="127.0.0.1",
                           MASTER_PORT="29531", OMP_NUM_THREADS="1")
        if backend != "nccl":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        subprocess.run([sys.executable, str(script)], env=environment, check=False)
        with open(report, encoding="utf-8") as file:
            return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="axccl")
    parser.add_argument("--compare", default="")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="TEST")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    ours = run(arguments.backend, arguments.ranks, arguments.tests, arguments.leave_out)
    print(f"{arguments.backend}: {ours['ran']} tests, {len(ours['failed'])} failed, {len(ours['skipped'])} skipped")
    theirs = {"failed": [], "skipped": ours["skipped"]}
    if arguments.compare:
        theirs = run(arguments.compare, arguments.ranks, arguments.tests, arguments.leave_out)
        print(f"{arguments.compare}: {theirs['ran']} tests, {len(theirs['failed'])} failed, {len(theirs['skipped'])} skipped")
    alone = []
    for test in ours["failed"]:
        why = f"fails on {arguments.compare}, too" if test in theirs["failed"] else known().get(test, "")
        if not why:
            alone.append(test)
        print(f"  {test}: {why or 'fails here alone'}")
    for test in sorted(set(ours["skipped"]) - set(theirs["skipped"])):
        print(f"  {test}: skipped here alone: {ours['skipped'][test]}")
    for test in sorted(set(theirs["skipped"]) - set(ours["skipped"])):
        print(f"  {test}: runs here alone")
    sys.exit(1 if alone else 0)


if __name__ == "__main__":
    main()
