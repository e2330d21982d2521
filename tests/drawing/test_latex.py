"""LaTeX as literal text."""

import pytest

from duplexmt.drawing.latex import HIGHER, LOWER, escape, to_latex
from duplexmt.evaluation.scores import SHOWN

ROWS = [
    {"system": "offline", "setting": "—", "COMET": 63.85, "AL_all": 9.39},
    {"system": "wait-k", "setting": "k=3", "COMET": 52.06, "AL_all": 4.98},
    {"system": "wait-k", "setting": "k=5", "COMET": None, "AL_all": 5.99},
    {"system": "grid λ 0.1", "setting": "θ=0.9", "COMET": 64.73, "AL_all": 4.39},
]


def test_the_table_is_laid_out_as_the_papers_with_the_best_values_in_bold() -> None:
    text = to_latex(ROWS, {"COMET": HIGHER, "AL_all": LOWER}, caption="zh → en, 100 % & more", label="tab:results")
    assert text == (
        "\\begin{table}[htbp]\n"
        "  \\centering\n"
        "  \\caption{zh $\\rightarrow$ en, 100 \\% \\& more}\n"
        "  \\label{tab:results}\n"
        "  \\begin{tabular}{llcc}\n"
        "    \\toprule\n"
        "    \\textbf{System} & \\textbf{Param} & \\textbf{COMET}$\\uparrow$ & \\textbf{AL\\_all}$\\downarrow$ \\\\\n"
        "    \\midrule\n"
        "    offline & --- & 63.85 & 9.39 \\\\\n"
        "    \\midrule\n"
        "    \\multirow{2}{*}{wait-k} & $k=3$ & 52.06 & 4.98 \\\\\n"
        "     & $k=5$ & --- & 5.99 \\\\\n"
        "    \\midrule\n"
        "    grid $\\lambda$ 0.1 & $\\theta=0.9$ & \\textbf{64.73} & \\textbf{4.39} \\\\\n"
        "    \\bottomrule\n"
        "  \\end{tabular}\n"
        "\\end{table}\n"
    )


@pytest.mark.parametrize("system", SHOWN)
def test_pdflatex_reads_the_name_and_the_knob_of_every_system(system) -> None:
    name, knob = SHOWN[system]
    assert escape(f"{knob}=0.5", maths=True).isascii()
    assert escape(f"{name} {knob}").isascii()
