"""The example of docs/programs.md, from JAX to host ranks. Skipped (77) where there is no jax.

  from_jax_test.py SOURCE_FOLDER AXCCL_PROGRAM
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def main(source, program):
    if importlib.util.find_spec("jax") is None:
        print("SKIPPED: no jax here (PyPI)")
        return 77
    with open(os.path.join(source, "docs", "programs.md")) as file:
        example = re.search(r"```python\n(.*?)```", file.read(), re.S).group(1)
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "mlp")
        with open(name + ".py", "w") as file:
            file.write(example)
        for devices in (2, 4, 8):
            run(sys.executable, os.path.join(source, "tools", "axccl-program", "from_jax"), name + ".py", "--devices",
                str(devices))
            with open(name + ".axp", "w") as file:
                file.write(run(program, "import", name + ".mlir"))
            assert run(program, "check", name + ".axp") == "right\n"
            inputs = (name + ".axp", "--inputs", name + ".json", "--against")
            assert run(program, "run", *inputs, name + ".json", "--tolerance", "1e-5") == f"equal to {name}.json\n"
            for how in ((), ("--processes",)):
                assert run(program, "run", *inputs, "reference", *how) == "equal to reference\n"
    print("2, 4 and 8 devices: right")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
