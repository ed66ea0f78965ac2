"""The examples of the docstrings, and that everything public has one."""

import doctest
import inspect
import unittest

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


if __name__ == "__main__":
    unittest.main()
