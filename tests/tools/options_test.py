#!/usr/bin/env python3
"""Every program reads its options alike, and fails when its output is lost: options_test.py VERSION PROGRAM...

The options are those that a program's --help lists, so one that is added is tested, too."""

import os
import re
import signal
import subprocess
import sys

failures = 0


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)


def expect(right, program, arguments, ran):
    global failures
    if not right:
        failures += 1
        print(f"{program} {' '.join(arguments)}: exit {ran.returncode}\n{(ran.stdout or '')[:500]}{ran.stderr[:500]}")


def refused(program, arguments, *texts):
    """One line, which contains one of the texts."""
    ran = run(program, *arguments)
    right = ran.returncode == 2 and ran.stderr.count("\n") == 1 and any(text in ran.stderr for text in texts)
    right = right and ran.stdout == ""
    right = right and ran.stderr.startswith(os.path.basename(program) + ": ")
    expect(right, program, arguments, ran)


def check_output(program):
    """Lost output is a failure, with a line that says so; what a reader did not want to read is not."""
    def run_into(output, **how):
        return subprocess.run([program, "--help"], stdout=output, stderr=subprocess.PIPE, text=True, timeout=20, **how)

    name = os.path.basename(program)
    with open("/dev/full", "w") as full:
        lost = run_into(full)
    expect(lost.returncode > 0 and lost.stderr == f"{name}: cannot write to standard output: No space left on device\n",
           program, ["--help", ">/dev/full"], lost)
    closed = run_into(None, preexec_fn=lambda: os.close(1))
    expect(closed.returncode > 0 and closed.stderr == f"{name}: cannot write to standard output: Bad file descriptor\n",
           program, ["--help", ">&-"], closed)
    for ignored in (False, True):  # SIGPIPE
        reader, writer = os.pipe()
        os.close(reader)
        gone = run_into(writer, restore_signals=not ignored)
        os.close(writer)
        expect(gone.returncode == (0 if ignored else -signal.SIGPIPE) and gone.stderr == "", program, ["--help", "|:"], gone)


def check(program, version):
    name = os.path.basename(program)
    help_text = run(program, "--help")
    expect(help_text.returncode == 0 and help_text.stderr == "", program, ["--help"], help_text)
    short = run(program, "-h")
    expect(short.returncode == 0 and short.stdout == help_text.stdout, program, ["-h"], short)
    ran = run(program, "--version")
    expect((ran.returncode, ran.stdout) == (0, f"{name} (AxCCL) {version}\n"), program, ["--version"], ran)

    check_output(program)

    # Words with which the options of a program that takes a command can be read.
    before = {"axccl-program": ["check"], "axccl-plan": ["list"], "strided_perf": ["all"], "floor_perf": ["all_reduce"]}
    command = before.get(name, [])
    options = set(re.findall(r"--[a-z][a-z_-]+", help_text.stdout))
    for option in sorted(options - {"--help", "--version", "--quick"}):
        if name == "axccl-program" and option not in PROGRAM_OPTIONS:
            continue
        # A letter too many: near to this option, and as near to one that is longer by another letter.
        near = [f": {option}q: did you mean {other}?\n" for other in options if other in (option, option + other[-1])]
        refused(program, [*command, option + "q"], *near)
        refused(program, [*command, option + "q=1"], *near)
    refused(program, [*command, "--verbosely"], ": --verbosely: no such option; --help lists them")
    refused(program, [*command, "--help=1"], ": --help=1: --help takes no value")
    refused(program, [*command, "--hel"], ": --hel: did you mean --help?")


# Those of axccl-program's commands that are not about training, which have options of their own.
PROGRAM_OPTIONS = {"--inputs", "--seed", "--outputs", "--against", "--tolerance", "--processes", "--report", "--blas",
                   "--repeat", "--trace", "--fabric", "--model", "--trips", "--branch", "--svg", "--ranks"}
# The same wrong value in every form; what the program answers to it.
FORMS = {
    "axccl-info": ("--ranks", "none", "--ranks none: expected a number of ranks", []),
    "axccl-plan": ("--lanes", "none", "--lanes 'none' is not a number", ["show"]),
    "axccl-program": ("--seed", "none", "--seed is 'none'; give a number", ["run"]),
    "all_reduce_perf": ("--iters", "none", "option -n (--iters): 'none' is not a whole number", []),
    "overlap_perf": ("--rounds", "none", "option -N (--rounds) none: pass a number", []),
}


def main():
    version, programs = sys.argv[1], sys.argv[2:]
    for program in programs:
        check(program, version)
        option, value, text, command = FORMS.get(os.path.basename(program), (None, None, None, None))
        if option is not None:
            refused(program, [*command, option, value], text)
            refused(program, [*command, f"{option}={value}"], text)
            refused(program, [*command, option], "needs a value")
    if failures:
        sys.exit(f"{failures} wrong answers")
    print(f"{len(programs)} programs")


main()
