"""The report: Markdown to read, JSON to compute with."""

import dataclasses
import json


def markdown_table(table):
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.header) + " |", "|" + "---|" * len(table.header)]
    lines += ["| " + " | ".join(cell_text(cell) for cell in row) + " |" for row in table.rows]
    return lines


def cell_text(cell):
    if cell is None:
        return "-"
    text = str(cell)
    if isinstance(cell, float):
        text = f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(title, outcomes):
    lines = [f"# {title}", "", "| part | state | seconds | |", "|---|---|---:|---|"]
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


def write(path, title, outcomes):
    """Both files; `path` has no ending. Their paths."""
    paths = [path + ".md", path + ".json"]
    with open(paths[0], "w") as file:
        file.write(markdown(title, outcomes))
    with open(paths[1], "w") as file:
        json.dump({"title": title, "parts": [dataclasses.asdict(o) for o in outcomes]}, file, indent=1)
        file.write("\n")
    return paths
