"""The report: Markdown to read, JSON to compute with."""

import dataclasses
import datetime
import json
import os

from gpu_check.steps import Figure, Outcome, Table, number_text


NAME = "gpu-check"


def markdown_table(table):
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.header) + " |", "|" + "---|" * len(table.header)]
    lines += ["| " + " | ".join(cell_text(cell) for cell in row) + " |" for row in table.rows]
    return lines


def cell_text(cell):
    if cell is None:
        return "-"
    text = number_text(cell) if isinstance(cell, float) else str(cell)
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(title, bars, outcomes):
    lines = [f"# {title}", "", *markdown_table(bars), "", "| part | state | seconds | |", "|---|---|---:|---|"]
    lines += [f"| {o.name} | {'**FAILED**' if o.state == 'failed' else o.state} | {o.seconds:.0f} | "
              f"{cell_text(o.summary.splitlines()[0] if o.summary else '')} |" for o in outcomes]
    for outcome in outcomes:
        more_text = "\n" in outcome.summary
        if not (outcome.notes or outcome.tables or more_text):
            continue
        lines += ["", f"## {outcome.name}"]
        if more_text:
            lines += ["", "```", outcome.summary, "```"]
        if outcome.notes:
            lines += ["", *[f"- {note}" for note in outcome.notes]]
        for table in outcome.tables:
            lines += ["", *markdown_table(table)]
    return "\n".join(lines) + "\n"


def title(software):
    return f"{NAME}, {'software GPU (times mean nothing)' if software else 'GPU'}, {datetime.date.today()}"


def read(path):
    """The outcomes of a report that `write` has written, or none if there is no such file."""
    if not os.path.exists(path + ".json"):
        return []
    with open(path + ".json") as file:
        parts = json.load(file)["parts"]
    return [Outcome(**{**part, "tables": [Table(**table) for table in part["tables"]],
                       "figures": [Figure(**figure) for figure in part["figures"]]}) for part in parts]


def write(path, title, bars, outcomes):
    """Writes both files; `path` has no extension. Returns their paths."""
    paths = [path + ".md", path + ".json"]
    with open(paths[0], "w") as file:
        file.write(markdown(title, bars, outcomes))
    with open(paths[1], "w") as file:
        json.dump({"title": title, "bars": dataclasses.asdict(bars), "parts": [dataclasses.asdict(o) for o in outcomes]}, file, indent=1)
        file.write("\n")
    return paths
