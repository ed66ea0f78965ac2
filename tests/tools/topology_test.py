"""axccl-info --topology, from its command line to its output. Usage: topology_test.py AXCCL_INFO MACHINES"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TOOL, MACHINES = sys.argv.pop(1), sys.argv.pop(1)


def run(*arguments, machine=None, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "AXCCL_"))}
    if machine is not None:
        environment["NCCL_TOPO_FILE"] = os.path.join(MACHINES, machine)
    environment.update(variables)
    return subprocess.run([TOOL, *arguments], env=environment, capture_output=True, text=True, timeout=60)


class Topology(unittest.TestCase):
    def test_draws_this_machine(self):
        done = run("--topology", "--ranks", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("package 0", done.stdout)
        # Ranks only get processors that this process may use.
        rows = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
        self.assertEqual([row[0] for row in rows], ["0", "1"])
        for row in rows:
            first = int(row[1].split(",")[0].split("-")[0])
            self.assertIn(first, os.sched_getaffinity(0))

    def test_draws_the_machine_of_a_file(self):
        done = run("--topology", "--ranks", "4", machine="two_packages")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Example 9654 Processor: 2 packages, 4 nodes", done.stdout)
        self.assertIn("   2  16-23,48-55  2      eth1\n", done.stdout)

    def test_svg_is_xml(self):
        for machine in sorted(os.listdir(MACHINES)):
            done = run("--topology", "--format", "svg", "--ranks", "3", machine=machine)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(xml.etree.ElementTree.fromstring(done.stdout).attrib["width"], "1200")

    def test_file_format_is_what_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            written = os.path.join(folder, "machine")
            self.assertEqual(run("--topology", "--format", "file", "--output", written).returncode, 0)
            again = run("--topology", "--format", "file", machine=written)
            with open(written) as file:
                self.assertEqual(again.stdout, file.read())

    # A machine that this one is not: its parts are drawn, and that they are not here is said once.
    def test_draws_the_machine_of_nccls_file(self):
        cloud = os.path.join("..", "nccl", "cloud.xml")
        done = run("--topology", "--ranks", "2", machine=cloud)
        if "expat" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("AuthenticAMD family 23 model 49: 2 packages, 2 nodes, 32 cores", done.stdout)
        self.assertIn("GPU 000b:00:00.0 (PCI, 252 Gbit/s)", done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("cloud.xml: 2 of 2 GPUs and 2 of 2 NICs of the file are not on this machine", done.stderr)
        answer = json.loads(run("--topology", "--json", machine=cloud).stdout)
        self.assertEqual([(gpu["address"], gpu["node"]) for gpu in answer["gpus"]], [("000a:00:00.0", 0), ("000b:00:00.0", 1)])
        self.assertEqual(answer["nics"][1], {"name": "010b:00:00.0", "kind": "infiniband", "megabits_per_second": 0, "node": 1})

    def test_failures_say_why(self):
        with tempfile.NamedTemporaryFile("w") as nccl:
            nccl.write('<system version="1">\n<cpu numaid="first"/></system>')
            nccl.flush()
            cases = [
                (("--topology", "--format", "png"), {}, 2, "--format png: expected text, svg or file"),
                (("--format", "svg"), {}, 2, "go with --topology"),
                (("--topology", "--ranks", "5000"), {}, 2, "at most 4096"),
                (("--ranks", "65"), {}, 2, "at most 64"),
                (("--topology", "--output"), {}, 2, "--output needs a value"),
                (("--topo",), {}, 2, "--topo: did you mean --topology?"),
                (("--topology",), {"machine": "/nowhere"}, 1, "open(/nowhere): No such file"),
                (("--topology",), {"machine": nccl.name}, 1, nccl.name + ": "),
                (("--topology", "--output", "/nowhere/at/all"), {}, 1, "open(/nowhere/at/all) to write"),
            ]
            for arguments, keywords, status, message in cases:
                done = run(*arguments, **keywords)
                self.assertEqual(done.returncode, status, arguments)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_goes_on_without_hwloc(self):
        done = run("--topology", HWLOC_XMLFILE="/nowhere")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("package 0", done.stdout)


if __name__ == "__main__":
    unittest.main()
