"""The importer of StableHLO beside jaxlib's parser. Skipped (77) where there is no jax.

  stablehlo_peer_test.py SOURCE_FOLDER AXCCL_PROGRAM

The pretty and the generic form that jaxlib prints of a module give the same program. What of mutated modules is imported
and passes the checks, jaxlib accepts: 1,000 of them, 10,000 with AXCCL_TEST_FULL. Modules are the seeds of the fuzzer
and, where AXCCL_VECTORS is set, the programs of JAX. AXCCL_TEST_SEED replays.
"""
import glob
import importlib.util
import os
import random
import re
import subprocess
import sys

TOKENS = re.compile(r'[A-Za-z_][\w.$]*|%[\w]+|@[\w.]+|\d+|"[^"]*"|->|\s+|.', re.S)


def read(path):
    with open(path) as file:
        return file.read()


def load_modules(source):
    paths = glob.glob(os.path.join(source, "tests", "fuzz", "corpus", "stablehlo", "*"))
    if "AXCCL_VECTORS" in os.environ:
        programs = os.path.join(os.environ["AXCCL_VECTORS"], "stablehlo_programs", "*.mlir")
        paths += [path for path in glob.glob(programs) if ".pre." not in path]
    assert paths, "no modules"
    return {path: read(path) for path in sorted(paths)}


class Importer:
    def __init__(self, program):
        self.program = program

    def run(self, command, text):
        done = subprocess.run((self.program, command, "-"), input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1), f"{command} ended with {done.returncode}: {done.stderr}"
        return done.stdout if done.returncode == 0 else None

    def accepts(self, text):
        imported = self.run("import", text)
        return imported is not None and self.run("check", imported) is not None


class Peer:
    def __init__(self):
        from jax._src.interpreters import mlir as jax_mlir
        from jaxlib.mlir import ir

        self.make_context, self.ir = jax_mlir.make_ir_context, ir

    def print(self, text, generic):
        with self.make_context():
            return self.ir.Module.parse(text).operation.get_asm(print_generic_op_form=generic)

    def why_refused(self, text):
        with self.make_context():
            try:
                self.ir.Module.parse(text)
                return None
            except Exception as error:
                return str(error)


def mutate(tokens, pool, source):
    tokens = list(tokens)
    for _ in range(source.choice((1, 1, 1, 2))):
        at = source.randrange(len(tokens))
        while not tokens[at].strip():
            at = source.randrange(len(tokens))
        how = source.randrange(6)
        if how == 0:
            del tokens[at]
        elif how == 1:
            tokens.insert(at, source.choice(pool))
        elif how == 2:
            tokens[at] = source.choice(pool)
        elif how == 3:
            tokens.insert(at, tokens[at])
        elif how == 4 and tokens[at].isdigit():
            tokens[at] = str(source.choice((0, 1, 2, 3, 7, int(tokens[at]) + 1)))
        else:
            other = source.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


# What jaxlib knows of shardings has no meaning for a program of one rank's view, and is not looked at.
IGNORED = re.compile(r"sdy|sharding|mesh", re.I)


def main(source, program):
    if importlib.util.find_spec("jax") is None:
        print("SKIPPED: no jax here (PyPI)")
        return 77
    modules, importer, peer = load_modules(source), Importer(program), Peer()
    for path, text in modules.items():
        forms = {importer.run("import", peer.print(text, generic)) for generic in (False, True)}
        assert forms == {importer.run("import", text)} and None not in forms, f"the forms of {path} differ"
    seed = int(os.environ.get("AXCCL_TEST_SEED", random.randrange(1 << 31)))
    print(f"AXCCL_TEST_SEED={seed}")
    rng = random.Random(seed)
    tokens = [TOKENS.findall(text) for text in modules.values() if len(text) < 20000]
    pool = [token for of_module in tokens for token in of_module if token.strip()]
    mutants, accepted, wrong = 10000 if "AXCCL_TEST_FULL" in os.environ else 1000, 0, 0
    for _ in range(mutants):
        text = mutate(rng.choice(tokens), pool, rng)
        if not importer.accepts(text):
            continue
        accepted += 1
        why = peer.why_refused(text)
        if why is not None and not IGNORED.search(why):
            wrong += 1
            print(f"accepted here, refused by jaxlib: {why}\n{text if wrong == 1 else ''}")
    print(f"{len(modules)} modules in both forms; {mutants} mutants, of which {accepted} are accepted, {wrong} wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
