"""The examples of the docstrings, and that everything public has one."""

import ast
import doctest
import inspect
import re
import unittest
from pathlib import Path

import numpy as np

import axccl
import axccl._environment
import harness  # noqa: F401 (the deadline)


def _documented(name, thing):
    yield name, inspect.getdoc(thing)
    if inspect.isclass(thing):
        for member in vars(thing):
            if not member.startswith("_") and callable(getattr(thing, member)):
                yield from _documented(f"{name}.{member}", getattr(thing, member))


def everything():
    yield "axccl", axccl.__doc__
    for name in axccl.__all__:
        yield from _documented(name, getattr(axccl, name))
    yield "Communicator.timeout", axccl.Communicator.timeout.__doc__
    for function in (axccl._environment.place, axccl._environment.meeting_point):
        yield function.__name__, function.__doc__


# An enumeration, a class whose methods have the examples, and what exceptions have from their base.
WITHOUT_EXAMPLE = ("Channel", "Code", "with_traceback", "add_note")


class Documentation(unittest.TestCase):
    def test_examples(self):
        runner, parser = doctest.DocTestRunner(), doctest.DocTestParser()
        for name, text in everything():
            if name.startswith("Code.") or name.endswith(WITHOUT_EXAMPLE):
                continue
            with self.subTest(name):
                self.assertIn(">>>", text or "")
                log = []
                runner.run(parser.get_doctest(text, {"np": np, "axccl": axccl}, name, None, 0), out=log.append)
                self.assertFalse(log, "".join(log))

    def test_stubs(self):
        """_core.pyi has what the extension module has, with its parameters in their order."""
        stub = ast.parse(Path(axccl.__file__).with_name("_core.pyi").read_text(encoding="utf-8"))
        for scope, module in [(stub, axccl._core), *((c, getattr(axccl._core, c.name)) for c in stub.body
                                                     if isinstance(c, ast.ClassDef))]:
            known = {node.name: node for node in scope.body if hasattr(node, "name")}
            known |= {node.target.id: node for node in scope.body if isinstance(node, ast.AnnAssign)}
            there = {name for name in vars(module) if not name.startswith("_")}
            self.assertEqual({name for name in known if not name.startswith("_")}, there)
            for name, node in known.items():
                signature = getattr(getattr(module, name, None), "__nb_signature__", None)
                if signature is None or not isinstance(node, ast.FunctionDef) or name.startswith("__"):
                    continue
                names = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
                text = signature[0][0]
                self.assertEqual(names, re.findall(r"[(,] (\w+)(?=[:,)])", text.replace("(", "( ", 1)), text)


if __name__ == "__main__":
    unittest.main()
