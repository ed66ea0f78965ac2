#!/usr/bin/env python3
"""That softgpu_torch_check.py notices faults: changes of the extension for PyTorch, each of which must make a check fail.

    python3 tests/clients/softgpu_torch_mutation_test.py --build build [MUTANT...]

All changes are compiled at once into an extension of its own, in BUILD/softgpu/mutants; SOFTGPU_MUTANT chooses one of them.
Without one, all checks that take part must pass.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tools/softgpu/torch"

# name -> the check that must fail
MUTANTS = {
    "no synchronisation": "order_of_streams",
    "no synchronisation but of the current device": "order_of_devices",
    "no synchronisation but of the first operand's device": "order_of_devices",
    "no synchronisation of a copy's source": "order_of_devices",
    "a copy in place of a view": "views_by_kernels",
    "out= not written": "out",
    "out= not made larger": "out",
    "out= not returned": "out",
    "out= not written in 16 bits": "out_of_16_bits",
    "nested tensors by the kernels of CUDA": "nested",
}

# (file, text that occurs once, what takes its place)
CHANGES = [
    ("operators.cc", "SynchronizeStreams(devices_of_call_);",
     'if (!Mutant("no synchronisation")) SynchronizeStreams(Mutant("no synchronisation but of the current device")'
     " ? uint64_t{1} << c10::cuda::current_device() : devices_of_call_);"),
    ("operators.cc", "devices_of_call_ |= uint64_t{1} << tensor.get_device();",
     'if (devices_of_call_ == 0 || !Mutant("no synchronisation but of the first operand\'s device"))'
     " devices_of_call_ |= uint64_t{1} << tensor.get_device();"),
    ("operators.cc", "uint64_t{1} << to.get_device() | uint64_t{1} << from.get_device()",
     "uint64_t{1} << to.get_device() |"
     ' (Mutant("no synchronisation of a copy\'s source") ? 0 : uint64_t{1} << from.get_device())'),
    ("views.cc", "if (host.unsafeGetStorageImpl() != result.storage().unsafeGetStorageImpl()) continue;",
     'if (host.unsafeGetStorageImpl() != result.storage().unsafeGetStorageImpl() || Mutant("a copy in place of a view"))'
     " continue;"),
    ("operators.cc", "{ return views.ToHost(tensor); }",
     '{ const bool out = op.schema().arguments()[i - first].is_out() && Mutant("out= not written");'
     " return out ? views.ToHost(tensor).clone() : views.ToHost(tensor); }"),
    ("operators.cc", "if (tensor.defined() && tensor.is_cuda()) views.TakeOver(tensor);",
     'if (tensor.defined() && tensor.is_cuda() && !Mutant("out= not made larger")) views.TakeOver(tensor);'),
    ("operators.cc", "const int argument = signature_.returned_argument[i];",
     'const int argument = Mutant("out= not returned") ? -1 : signature_.returned_argument[i];'),
    ("call.cc", "from.copy_(to);", 'if (!Mutant("out= not written in 16 bits")) from.copy_(to);'),
    ("operators.cc", "ReplaceAll({c10::DispatchKey::NestedTensorCUDA, c10::DispatchKey::NestedTensorCPU});",
     'if (!Mutant("nested tensors by the kernels of CUDA"))'
     " ReplaceAll({c10::DispatchKey::NestedTensorCUDA, c10::DispatchKey::NestedTensorCPU});"),
]

CHOICE = """#include <cstdlib>
#include <cstring>
static bool Mutant(const char* name) {
  const char* const chosen = std::getenv("SOFTGPU_MUTANT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
"""


def make_mutants(folder):
    """The sources with all changes."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCE, folder)
    for name in sorted({name for name, _, _ in CHANGES}):
        path = folder / "csrc" / name
        text = path.read_text(encoding="utf-8")
        for file, before, after in CHANGES:
            if file == name:
                if text.count(before) != 1:
                    sys.exit(f"{name} does not have exactly one '{before}' to mutate")
                text = text.replace(before, after)
        path.write_text(CHOICE + text, encoding="utf-8")
    for name in MUTANTS:
        if not any(f'Mutant("{name}")' in after for _, _, after in CHANGES):
            sys.exit(f"no change is called '{name}'")


def failing(build, folder, mutant, checks):
    """The checks that fail."""
    site = os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = dict(os.environ, SOFTGPU_MUTANT=mutant, AXCCL_CACHE_DIR=str(folder.parent / "mutants_built"))
    command = [str(ROOT / "tools/softgpu/run"), "--build", build, "--devices", "2", "env", f"PYTHONPATH={site}",
               sys.executable, "-B", str(ROOT / "tests/clients/softgpu_torch_check.py"), *checks]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = re.search(r"^\d+ checks: (?:(.*) failed|all right)$", done.stdout, re.MULTILINE)
    if found is None or (done.returncode == 0) != (found[1] is None):
        sys.exit(f"'{mutant or 'none'}': the checks ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return found[1].split(", ") if found[1] else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("mutants", nargs="*", metavar="MUTANT")
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.build).resolve() / "softgpu/mutants"
    make_mutants(folder)
    chosen = arguments.mutants or list(MUTANTS)
    wrong = failing(arguments.build, folder, "", sorted({MUTANTS[name] for name in chosen}))
    if wrong:
        sys.exit(f"without a mutant, {', '.join(wrong)} failed")
    survived = [name for name in chosen if not failing(arguments.build, folder, name, [MUTANTS[name]])]
    print(f"{len(chosen)} mutants: " + (f"{', '.join(survived)} not noticed" if survived else "all noticed"))
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
