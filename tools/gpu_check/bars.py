"""The requirements for the library on a GPU: each case, what was measured, the bar, and whether it is reached.

Parts and the steps of a packed folder return figures (steps.Figure); the worst one of a case counts. A bar is reached if it
is in everything that was to measure the case; otherwise the row names what is missing.
"""

import dataclasses
import re

from gpu_check.steps import Table, number_text

FLOOR = ", ranks of one process, 256 MiB to 1 GiB: floor / time"


@dataclasses.dataclass(frozen=True)
class Bar:
    """`case`: the figures' name. `least`: values from `limit` on are good, else those up to it. `timed`: meaningless on the
    software GPU. `of`: in the steps of a packed folder, which "<part> of ..." measure the case."""
    case: str
    text: str
    part: str
    limit: float
    least: bool = False
    unit: str = ""
    timed: bool = True
    of: str = ".*"

    def is_measured_by(self, name):
        return name == self.part or re.fullmatch(f"{self.part} of {self.of}", name) is not None

    def figures(self, outcome):
        return [figure for figure in outcome.figures if figure.case == self.case]

    def reached(self, value):
        return value >= self.limit if self.least else value <= self.limit

    def worst(self, figures):
        return (min if self.least else max)(figures, key=lambda figure: figure.value)

    def show(self, value):
        return f"{number_text(value)}{' ' if self.unit else ''}{self.unit}"

    def limit_text(self):
        return f"{'>=' if self.least else '<='} {self.show(self.limit)}"


BARS = [
    *[Bar("floor of " + operation, operation + FLOOR, "benchmark", 0.8, least=True)
      for operation in ("all_reduce", "all_gather", "reduce_scatter", "alltoall")],
    Bar("8 bytes in a graph", "all_reduce of 8 B, 8 ranks in one process, in a CUDA graph", "benchmark", 8, unit="us", of="8 ranks"),
    Bar("dim 1 to dim 0", "all_gather along dim 1 against dim 0 of as many bytes: time / time", "dimensions", 1.1, unit="x"),
    Bar("torch to dim 1", "all_gather and PyTorch's transposing copy, against all_gather along dim 1: time / time", "dimensions",
        1.8, least=True, unit="x"),
    Bar("strided copies to dim 1", "the same with the driver's strided copies in place of PyTorch's", "dimensions", 1.8,
        least=True, unit="x"),
    Bar("enqueue, call", "host time to enqueue an all_reduce of 8 B, a call of a rank", "enqueue", 4, unit="us"),
    Bar("enqueue, group", "the same in groups of all ranks of a thread", "enqueue", 4, unit="us"),
    *[Bar("overlap, " + engine, f"a product and a collective in a pipeline by {text}: the longer part alone / both", "overlap", limit,
          least=True, of=f".*, {engine}") for engine, text, limit in (("copy", "copy engines", 0.9), ("kernel", "a kernel", 0.8))],
    *[Bar("two processes, " + operation, operation + " of 256 MiB, two processes that share a GPU under MPS: time in one / time",
          "processes", 0.7, least=True) for operation in ("all_reduce", "all_gather")],
    Bar("spills", "functions of the interpreter kernel with spills, but for what calls save", "resources", 0,
        timed=False),
    Bar("occupancy", "occupancy of the interpreter kernel in blocks of 512 threads", "resources", 0.5, least=True, timed=False),
]


def why_missing(bar, name, outcome):
    """Why a part or step, which was to measure the case, has no figure of it or may lack some; nothing if it has them."""
    what = f"{'part' if name == bar.part else 'step'} {name}"
    if outcome is None:
        return f"{what} was not run"
    notes = "; ".join(outcome.notes)
    if outcome.state != "passed":
        return f"{what} {'has' if outcome.state == 'failed' else 'was'} {outcome.state}: {notes or outcome.summary}"
    return "" if bar.figures(outcome) else notes or f"{what} has no figure of this case"


def row_of(bar, outcomes, software, planned):
    measuring = {outcome.name: outcome for outcome in outcomes if bar.is_measured_by(outcome.name)}
    names = [name for name in planned if bar.is_measured_by(name)] or [bar.part]
    missing = [why.splitlines()[0] for why in (why_missing(bar, name, measuring.get(name)) for name in names) if why]
    figures = [figure for outcome in measuring.values() for figure in bar.figures(outcome)]
    if not figures:
        return [bar.text, f"not measured: {missing[0]}", bar.limit_text(), "not known"]
    worst = bar.worst(figures)
    of_several = f", worst of {len(figures)}" if len(figures) > 1 else ""
    verdict = "yes" if bar.reached(worst.value) else "**no**"
    if software and bar.timed:
        verdict = "not known: times of the software GPU mean nothing"
    elif verdict == "yes" and missing:
        verdict = f"not known: {missing[0]}"
    return [bar.text, f"{bar.show(worst.value)} ({worst.where}{of_several})", bar.limit_text(), verdict]


def table(outcomes, software, planned=()):
    """`planned`: the names of the steps, if they are those of a packed folder."""
    return Table("Bars", ["case", "measured", "bar", "reached"], [row_of(bar, outcomes, software, planned) for bar in BARS])
