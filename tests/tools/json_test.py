#!/usr/bin/env python3
"""What axccl-info and axccl-plan print as JSON (docs/json.md), and that their tables fit 100 columns:
json_test.py AXCCL_INFO AXCCL_PLAN MACHINE_FILE DOCUMENT"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

INFO, PLAN, MACHINE, DOCUMENT = sys.argv[1:5]


def run(program, *arguments, status=0, **environment):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment})
    assert done.returncode == status, (arguments, done.stdout, done.stderr)
    return done.stdout


def documented(heading):
    """The keys that a section of the document lists."""
    with open(DOCUMENT) as file:
        section = re.search(rf"^## `{re.escape(heading)}.*?`\n(.*?)(?=^## |\Z)", file.read(), re.M | re.S).group(1)
    return set(re.findall(r"^\| `(\w+)`", section, re.M))


class Json(unittest.TestCase):
    def of(self, heading, program, *arguments, optional=(), **keywords):
        answer = json.loads(run(program, *arguments, "--json", **keywords))
        self.assertEqual(set(answer) | set(optional), documented(heading) | set(optional), arguments)
        return answer

    def test_info(self):
        answer = self.of("axccl-info", INFO, "--ranks", "2")
        self.assertEqual(answer["axccl"], run(INFO, "--version").split()[-1])
        self.assertEqual([rank["rank"] for rank in answer["ranks"]], [0, 1])
        self.assertEqual(answer["ranks"][0]["links"][0], "self")
        self.assertGreater(answer["ranks"][1]["init_us"], 0)
        names = [parameter["name"] for parameter in answer["parameters"]]
        self.assertIn("NCCL_ALGO", names)
        set_here = json.loads(run(INFO, "--json", NCCL_ALGO="ring"))
        self.assertEqual(set_here["ranks"], [])
        algo = set_here["parameters"][names.index("NCCL_ALGO")]
        self.assertEqual((algo["value"], algo["source"]), ("ring", "environment"))

    def test_the_log_goes_elsewhere(self):
        """And the list of parameters ends without a warning."""
        of_plan = ("explain", "--op", "all_reduce", "--ranks", "2", "--bytes", "1M")
        for level in ("VERSION", "WARN", "INFO"):
            for program, *arguments in ((INFO, "--ranks", "2"), (INFO, "--topology"), (PLAN, *of_plan)):
                done = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True, timeout=60,
                                      env={**os.environ, "NCCL_DEBUG": level, "NCCL_MAX_CTAS": "none"})
                json.loads(done.stdout)
                self.assertNotIn("axcclParamGetByIndex", done.stderr)
                if level != "VERSION" and arguments == ["--ranks", "2"]:
                    self.assertIn("NCCL WARN NCCL_MAX_CTAS=none", done.stderr)
        self.assertNotIn("NCCL WARN", run(INFO, NCCL_DEBUG="WARN"))
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            json.loads(run(INFO, "--json", "--ranks", "2", NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=log))
            with open(log) as file:
                self.assertIn("NCCL INFO", file.read())

    def test_a_full_disk_fails(self):
        for arguments in (["--json"], ["--topology", "--json"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([INFO, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr),
                             (1, "axccl-info: cannot write to standard output: No space left on device\n"))

    def test_topology(self):
        answer = self.of("axccl-info --topology", INFO, "--topology", "--ranks", "3", NCCL_TOPO_FILE=MACHINE)
        again = run(INFO, "--topology", "--format", "file", NCCL_TOPO_FILE=MACHINE)
        self.assertEqual(len(answer["nodes"]), len(re.findall(r"^node ", again, re.M)))
        self.assertEqual(len(answer["nics"]), len(re.findall(r"^nic ", again, re.M)))
        self.assertEqual(len(answer["ranks"]), 3)
        for core in answer["packages"][0]["groups"][0]["cores"]:
            self.assertTrue(core["processors"])
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "topology.json")
            run(INFO, "--topology", "--ranks=3", "--json", f"--output={file}", NCCL_TOPO_FILE=MACHINE)
            with open(file) as written:
                self.assertEqual(json.load(written), answer)
        run(INFO, "--topology", "--json", "--format", "svg", status=2)

    def test_list(self):
        answer = self.of("axccl-plan list", PLAN, "list", "--op", "all_reduce")
        self.assertEqual([c["name"] for c in answer["collectives"]], ["all_reduce"])
        collective = answer["collectives"][0]
        names = collective["algorithms"] + collective["multicast_algorithms"] + collective["chunked_algorithms"]
        self.assertEqual(run(PLAN, "list", "--op", "all_reduce").split()[1:], names)

    def test_verify(self):
        ring = ("--op", "all_reduce", "--algo", "ring", "--ranks", "4")
        answer = self.of("axccl-plan verify", PLAN, "verify", *ring, optional=["error"])
        self.assertIs(answer["right"], True)
        self.assertEqual(answer["hash"], run(PLAN, "hash", *ring).strip())
        self.assertIs(answer["group_order"], False)
        with tempfile.NamedTemporaryFile("w", suffix=".plan") as file:
            # The last operation of a lane is left out: what a peer waits for never comes.
            lines = run(PLAN, "show", *ring).splitlines(keepends=True)
            wrong = None
            for i in reversed(range(len(lines))):
                file.seek(0)
                file.truncate()
                file.writelines(lines[:i] + lines[i + 1:])
                file.flush()
                done = subprocess.run([PLAN, "verify", file.name, "--json"], capture_output=True, text=True)
                if done.returncode == 1 and done.stdout:
                    wrong = json.loads(done.stdout)
                    break
            self.assertIs(wrong["right"], False)
            self.assertIn(wrong["error"], done.stderr)
        run(PLAN, "show", "--json", *ring, status=2)

    def test_simulate(self):
        pipeline = ("communication", "computation_us", "overlap", "bulk_us", "bulk_algorithm")
        what = ("simulate", "--op", "all_gather", "--ranks", "4", "--bytes", "1M")
        answer = self.of("axccl-plan simulate", PLAN, *what, "--algo", "ring", optional=pipeline)
        self.assertIn(f"time           {answer['time_us']:.6g} us", run(PLAN, *what, "--algo", "ring"))
        self.assertNotIn("overlap", answer)
        answer = self.of("axccl-plan simulate", PLAN, *what, "--algo", "chunked_direct", "--slices", "4")
        self.assertGreater(answer["communication"]["time_us"], 0)
        self.assertGreater(answer["overlap"], 0)

    def test_explain(self):
        what = ("explain", "--op", "all_reduce", "--ranks", "4", "--bytes", "1M")
        answer = self.of("axccl-plan explain", PLAN, *what, optional=["network_figures"])
        text = run(PLAN, *what)
        self.assertIn(f"chosen: {answer['chosen']['algorithm']}, {answer['chosen']['lanes']} lanes", text)
        self.assertEqual(answer["chosen"]["reason"], "fastest")
        self.assertEqual(len(answer["candidates"]), 8)
        excluded = json.loads(run(PLAN, *what, "--json", NCCL_ALGO="ring"))
        self.assertEqual({c["algorithm"]: c.get("excluded") for c in excluded["candidates"]}["tree"],
                         "excluded by NCCL_ALGO")

    def test_tables_fit_100_columns(self):
        texts = [run(INFO, "--ranks", "16"),
                 run(PLAN, "list"),
                 run(PLAN, "explain", "--op", "all_reduce", "--machines", "8x4", "--bytes", "64G", "--network", "fixed"),
                 run(PLAN, "explain", "--op", "all_reduce", "--ranks", "64", "--bytes", "8", "--access", "none"),
                 run(PLAN, "simulate", "--op", "all_gather", "--ranks", "4", "--bytes", "1M", "--algo", "ring")]
        for text in texts:
            for line in text.splitlines():
                # A path may have any length.
                self.assertTrue(len(line) <= 100 or line.startswith(("machine: ", "network: ")), line)


unittest.main(argv=sys.argv[:1])
