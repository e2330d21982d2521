"""A small viewer made by hand: three translations of a sentence, with every kind of text that could do harm."""

from duplexmt.drawing.grid_figures import SentenceGrid
from duplexmt.report.viewer import Viewer, ViewerSentence, Visit, Way

SCRIPT, IMAGE = "<script>alert(1)</script>", "<img src=https://example.org/x onerror=alert(2)>"
NASTY = f"{SCRIPT}{IMAGE}</script><!--\u2028\u202e"


def grid(source, target, lam=0.1):
    X, Y = len(source), len(target)
    return SentenceGrid(
        source=source,
        target=target,
        heatmap=[[(x + 2 * y) % 5 / 2 for y in range(Y)] for x in range(X)],
        emit=[[max(0.0, min(1.0, 0.5 + 0.2 * (x - y))) for y in range(Y)] for x in range(X)],
        top=[[target[(x + y) % Y] for y in range(Y)] for x in range(X)],
        y_at=[min(x, Y) for x in range(X - 1)] + [Y],
        lam=lam,
    )


def sentence(words=("The", " man", NASTY), label="given: 人", source=("人", "是", SCRIPT)):
    """Written at once at low θ, word by word in between, in the end at high θ."""
    words, tokens = list(words), [*source, "■"]
    early = [Visit([(word, 0.9) for word in words[:1]], 0.1), *[Visit([], 0.1)] * (len(tokens) - 2), Visit([], None)]
    between = [Visit([(word, 0.7)], 0.3) for word in words]
    between = [*between, *[Visit([], 0.2)] * (len(tokens) - 1 - len(words)), Visit([], None)]
    late = [*[Visit([], 0.4)] * (len(tokens) - 1), Visit([(word, 0.5) for word in reversed(words)], None)]
    return ViewerSentence(
        label=label,
        source="".join(source),
        reference="".join(words),
        grids=[grid(tokens, [*words, "■"]), grid(tokens, [words[0], "■"]), grid(tokens, [*reversed(words), "■"])],
        ways=[
            Way(0, 0, early, "end_token", -0.5, 1),
            Way(1, 2, between, "end_token", 1.0, 0),
            Way(3, 4, late, "max_target_tokens", None, 2),
        ],
    )


THETAS = (0.0, 0.25, 0.5, 0.75, 1.0)


def viewer(*sentences, thetas=THETAS):
    return Viewer(thetas, sentences or (sentence(), sentence(("A", " b", " c"), "random, number 2")), "zh", "en")
