"""A row that takes over 2 s is named on a terminal meanwhile, and nowhere else: perf_status_test.py ALL_REDUCE_PERF"""
import os
import pty
import re
import subprocess
import sys
import time
import unittest

PERF = sys.argv.pop(1)
SIZE = 16 << 20


def command(iterations):
    return [PERF, "-t", "2", "-b", str(SIZE), "-e", str(SIZE), "-n", str(iterations), "-w", "0", "-c", "0"]


def on_terminal(iterations):
    """Its output, what it writes to a terminal, and how many seconds it took."""
    start = time.monotonic()
    ours, theirs = pty.openpty()
    perf = subprocess.Popen(command(iterations), stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    text = b""
    try:
        while some := os.read(ours, 4096):
            text += some
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    output = perf.communicate(timeout=60)[0]
    assert perf.returncode == 0, text
    return output, text, time.monotonic() - start


class Status(unittest.TestCase):
    def test_is_on_a_terminal_until_the_row_ends(self):
        iterations, seconds = 20, 0
        while seconds < 4:  # however fast the machine is
            output, text, seconds = on_terminal(iterations)
            last, iterations = iterations, int(iterations * min(10, max(2, 5 / seconds)))
        self.assertRegex(text, rb"\r\x1b\[K# 16777216 bytes for [2-9] s: [a-z -]+")
        self.assertTrue(text.endswith(b"\r\x1b[K"), text[-80:])  # erased
        self.assertNotIn("\x1b", output)
        self.assertEqual(len(re.findall(rf"^ +{SIZE} ", output, re.M)), 1)

        done = subprocess.run(command(last), capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))  # no terminal


if __name__ == "__main__":
    unittest.main()
