"""A row that takes over 2 s is named on a terminal meanwhile, and nowhere else: perf_status_test.py ALL_REDUCE_PERF"""
import os
import pty
import re
import subprocess
import sys
import unittest

PERF = sys.argv.pop(1)
SIZE = 16 << 20


def command(iterations):
    return [PERF, "-t", "2", "-b", str(SIZE), "-e", str(SIZE), "-n", str(iterations), "-w", "0", "-c", "0"]


def seconds_of_one():
    done = subprocess.run(command(20), capture_output=True, text=True, timeout=60)
    row = next(line.split() for line in done.stdout.splitlines() if line.split()[:1] == [str(SIZE)])
    return float(row[5]) * 1e-6


# Twice 2 s for out of place and in place together, by what one call takes.
ITERATIONS = max(20, int(2.0 / seconds_of_one()))


class Status(unittest.TestCase):
    def test_is_on_a_terminal_until_the_row_ends(self):
        ours, theirs = pty.openpty()
        perf = subprocess.Popen(command(ITERATIONS), stdout=subprocess.PIPE, stderr=theirs, text=True)
        os.close(theirs)
        text = b""
        try:
            while some := os.read(ours, 4096):
                text += some
        except OSError:  # the other end is closed
            pass
        output = perf.communicate(timeout=60)[0]
        self.assertEqual(perf.returncode, 0, text)
        self.assertRegex(text, rb"\r\x1b\[K# 16777216 bytes for [2-9] s: [a-z -]+")
        self.assertTrue(text.endswith(b"\r\x1b[K"), text[-80:])  # erased
        self.assertNotIn("\x1b", output)
        self.assertEqual(len(re.findall(rf"^ +{SIZE} ", output, re.M)), 1)

    def test_is_not_in_a_file(self):
        done = subprocess.run(command(ITERATIONS), capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main()
