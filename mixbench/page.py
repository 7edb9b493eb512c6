# SPDX-License-Identifier: MIT
"""One page of submissions: for each problem the exact front, what each method reached, and its scores.

python -m mixbench.page SUBMISSION.json... -o mixbench.html     # needs matplotlib
"""

from __future__ import annotations

import argparse
import io
import math
import sys
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Sequence

from mixbench.errors import BenchmarkError
from mixbench.files import write_text
from mixbench.front import best_pairs
from mixbench.problem import points
from mixbench.score import Score, exact_front, points_text, score
from mixbench.submission import Submission, read_submission

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 1rem 0; background: #fff; } svg { width: 100%; height: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
"""
_DEFINITIONS = (
    "<p>Regret: points of agreement that the best answer lacks at equal or lower bit operations, over the costs of the exact "
    "front.</p><p>Rank correlations (Spearman's, equal values share the mean of their ranks) are of the sensitivities of "
    "layers that a method hands in with the points of agreement that are lost on the images that judge: over the layers, each "
    "lowered alone, and over all measured assignments, for which the sensitivities of lowered layers are added up. Top fifth: "
    "the share of the fifth of the layers that lose most that is in the method's fifth as well.</p>"
)
_HEAD = (
    "<tr><th>method<th>passes<th>passes to 0.1<th>regret, mean<th>largest<th>hypervolume, %"
    "<th>regret on others, mean<th>largest<th>rank correlation: layers"
    "<th>top fifth<th>assignments</tr>"
)


def page(submissions: Sequence[Submission]) -> str:
    """Return the page as HTML, which needs no other file."""
    sections = []
    for name in sorted({submission.problem.name for submission in submissions}):
        of_it = [submission for submission in submissions if submission.problem.name == name]
        scores = sorted(
            (score(submission) for submission in of_it),
            key=lambda row: math.inf if row.regret_mean is None else row.regret_mean,
        )
        problem = of_it[0].problem
        description = (
            f"{problem.size:,} assignments of {len(problem.layers)} layers; {problem.metadata['selecting']} images choose, "
            f"{problem.metadata['images'] - problem.metadata['selecting']} others judge."
        )
        rows = "".join(map(_row, scores))
        sections.append(
            f"<h2>{escape(name)}</h2><p>{escape(description)}</p><figure>{_draw(of_it)}</figure>"
            f'<div class="wide"><table>{_HEAD}{rows}</table></div>'
        )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>mixbench</title><style>{_STYLE}</style><h1>Methods that choose precisions</h1>"
        f"{_DEFINITIONS}{''.join(sections)}</html>\n"
    )


def _row(row: Score) -> str:
    passes_to_near = "never" if row.passes_to_near is None else f"{row.passes_to_near:,}"
    regrets = (row.regret_mean, row.regret_max, 100 * row.hypervolume, row.others_mean, row.others_max)
    figures = (*regrets, row.rank_layers, row.top_fifth, row.rank_assignments)
    cells = "".join(f"<td>{points_text(figure)}" for figure in figures)
    return f"<tr><td>{escape(row.method)}<td>{row.passes:,}<td>{passes_to_near}{cells}</tr>"


def _draw(submissions: Sequence[Submission]) -> str:
    """SVG: agreement against bit operations of each method's front, and the exact one."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mixbench"})
    problem = submissions[0].problem
    figure, axes = pyplot.subplots(figsize=(10, 5.2), layout="constrained")
    exact = exact_front(problem)[::-1]
    axes.step(exact[:, 1], exact[:, 0], where="post", color="black", linewidth=2.5, label="exact front")
    for number, submission in enumerate(sorted(submissions, key=lambda submission: submission.method)):
        front = best_pairs(points(problem, submission.answers))[::-1]
        style = ("-", "--", ":")[number // 10 % 3]
        label = submission.method.replace("$", r"\$")  # matplotlib takes dollars for mathematics
        axes.step(front[:, 1], front[:, 0], where="post", linestyle=style, linewidth=1.2, label=label)
    axes.set(xscale="log", xlabel="bit operations of one image", ylabel="agreement AP, %, images that choose")
    axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside right upper")  # the curves fill the axes
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def main(arguments: Sequence[str]) -> int:
    """Run the command. Result: exit code."""
    parser = argparse.ArgumentParser(prog="python -m mixbench.page", description="One page of submissions.")
    parser.add_argument("submissions", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("mixbench.html"))
    options = parser.parse_args(arguments)
    try:
        if find_spec("matplotlib") is None:
            raise BenchmarkError("a page of mixbench: needs matplotlib; pip install 'matplotlib>=3.7'")
        write_text(options.out, page([read_submission(path) for path in options.submissions]))
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
