"""The example of docs/programs.md, and others, from JAX to host ranks. Skipped (77) where there is no jax.

  from_jax_test.py SOURCE_FOLDER AXCCL_PROGRAM
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile


# Replicated weights are donated and one argument is not used; without collectives, no id says how many ranks there are.
UPDATE = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def example():
    mesh = Mesh(np.array(jax.devices()), ("i",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("i"))
    step = jax.jit(lambda weight, unused, rate, x: (weight * rate, x * 2), donate_argnums=(0,),
                   in_shardings=(whole, rows, whole, rows), out_shardings=(whole, rows))
    return step, (jnp.arange(8.0), jnp.ones((8, 2)), 0.5, jnp.arange(32.0).reshape(8, 4))
"""
# XLA groups devices by the second axis as the first one of a mesh in another order.
LOOP = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def example():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("rows", "columns"))
    step = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda i, sum: sum + x[i].sum(), jnp.float32(0)),
                   in_shardings=(NamedSharding(mesh, P("rows", "columns")),))
    return step, (jnp.arange(128.0).reshape(8, 16),)
"""
KEY = """
import jax

def example():
    return jax.jit(jax.random.uniform), (jax.random.key(0),)
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def from_jax(source, name, devices):
    tool = os.path.join(source, "tools", "axccl-program", "from_jax")
    return sys.executable, tool, name + ".py", "--devices", devices


def write(name, text):
    with open(name, "w") as file:
        file.write(text)


def check_facts_of_modules(source, program, folder):
    name = os.path.join(folder, "update")
    write(name + ".py", UPDATE)
    for devices in ("1", "4"):
        run(*from_jax(source, name, devices))
        text = run(program, "import", name + ".mlir")
        write(name + ".axp", text)
        assert text.startswith(f"axccl-program 1\nranks {devices}\n"), text
        arguments = re.findall(r"argument .*", text)
        assert [argument.endswith(" donated") for argument in arguments] == [True, False, False], text
        assert run(program, "run", name + ".axp", "--inputs", name + ".json", "--against",
                   name + ".json") == f"equal to {name}.json\n"
    write(name + ".py", KEY)
    done = subprocess.run(from_jax(source, name, "1"), capture_output=True, text=True, timeout=240)
    assert done.returncode == 2 and "argument 0 is a key of jax.random.key" in done.stderr, done.stderr


def check_groups_of_both_axes(source, program, folder):
    name = os.path.join(folder, "loop")
    write(name + ".py", LOOP)
    run(*from_jax(source, name, "4"))
    write(name + ".axp", run(program, "import", name + ".mlir"))
    assert run(program, "run", name + ".axp", "--inputs", name + ".json", "--against",
               name + ".json") == f"equal to {name}.json\n"


def main(source, program):
    if importlib.util.find_spec("jax") is None:
        print("SKIPPED: no jax here (PyPI)")
        return 77
    with open(os.path.join(source, "docs", "programs.md")) as file:
        example = re.search(r"```python\n(.*?)```", file.read(), re.S).group(1)
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "mlp")
        check_facts_of_modules(source, program, folder)
        check_groups_of_both_axes(source, program, folder)
        write(name + ".py", example)
        for devices in ("2", "4", "8"):
            run(*from_jax(source, name, devices))
            write(name + ".axp", run(program, "import", name + ".mlir"))
            assert run(program, "check", name + ".axp") == "right\n"
            inputs = (name + ".axp", "--inputs", name + ".json", "--against")
            assert run(program, "run", *inputs, name + ".json", "--tolerance", "1e-5") == f"equal to {name}.json\n"
            for how in ((), ("--processes",)):
                assert run(program, "run", *inputs, "reference", *how) == "equal to reference\n"
    print("1, 2, 4 and 8 devices: right")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
