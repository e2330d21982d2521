"""Where a system writes too early or too late, by the loss of a grid model's own heatmap.

    python -m duplexmt.analysis.timing EVALUATION_FOLDER GRID_MODEL_FOLDER --out FOLDER [--sentences 50] [--epsilon 0.5]

A written token's column of the heatmap (fig:dp-path) says how its loss changes as source is read. The token is *known*
from the row on from which the loss stays within ε of its final value, that of the whole source, on either side: until
then the model has yet to see that it is right, or that it is wrong. Written before, it is too early. As tokens are
written in order, none can be written in time before those in front of it are known: written after that point, too, it
is too late. One model judges all systems of an evaluation, on what each of them wrote.

Writes `timing.md`: a table of all systems and settings, and of each the sentences with the early tokens most
regretted.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from ..data.batch import collate
from ..drawing.table import to_markdown
from ..evaluation.decoding import Decoding
from ..evaluation.scoring import name_points
from ..model_folder.artifact import ModelFolder, choose_device, load_model_folder
from ..policy.guide import guide
from ..streaming.text import GrowingText

EARLY, FINE, LATE = "too early", "in time", "too late"
WORST = 5  # sentences shown of each system and setting


@dataclass(frozen=True)
class TokenTiming:
    """One written token; delays are source tokens read, from 1 to all of them."""

    token: str  # the text it makes certain
    delay: int  # when it was written
    known: int  # from when on its loss stays within ε of its final value
    due: int  # from when on it and all tokens before it are known: the earliest it can be written in time
    regret: float  # its final loss over the one where it was written, in nats: above 0, the model would take it back

    @property
    def verdict(self) -> str:
        """Whether it came too early, in time or too late."""
        return EARLY if self.delay < self.known else LATE if self.delay > self.due else FINE

    @property
    def lag(self) -> int:
        """Source tokens by which it is off: negative where too early, 0 in time, positive where too late."""
        return min(0, self.delay - self.known) or max(0, self.delay - self.due)


@dataclass(frozen=True)
class SentenceTiming:
    """One translation."""

    source: str
    reference: str
    tokens: list[TokenTiming]


def known_rows(heatmap: torch.Tensor, epsilon: float) -> list[int]:
    """The first row of each column from which on all losses are within ε of the last row's.

    Args:
        heatmap: losses `[X, Y]` in nats.
        epsilon: in nats, at least 0.
    """
    if not epsilon >= 0:
        raise ValueError(f"--epsilon {epsilon}: must be at least 0 nats")
    rows = torch.arange(1, len(heatmap) + 1, device=heatmap.device)[:, None]
    off = (heatmap - heatmap[-1]).abs() > epsilon
    return (rows * off).amax(0).tolist()


def token_timings(
    heatmap: torch.Tensor, tokens: Sequence[str], delays: Sequence[int], epsilon: float
) -> list[TokenTiming]:
    """What became of each written token.

    Args:
        heatmap: losses of the written tokens `[X, n]`: a row for each source token and one for the end token.
        tokens: texts of the written tokens.
        delays: source tokens read before each; having read the end token counts as having read all.
        epsilon: in nats.

    Raises:
        ValueError: for ε < 0.
    """
    length = len(heatmap) - 1
    known = [min(row + 1, length) for row in known_rows(heatmap, epsilon)]
    rows = [length if delay >= length else delay - 1 for delay in delays]  # all text read: the end token, too
    regrets = (heatmap[-1] - heatmap[rows, range(len(rows))]).tolist()
    return [TokenTiming(*of) for of in zip(tokens, delays, known, accumulate(known, max), regrets, strict=True)]


@torch.no_grad()
def timings(
    decoding: Decoding, judge: ModelFolder, sentences: int, epsilon: float
) -> dict[tuple[str, str], list[SentenceTiming]]:
    """The first sentences of a finished evaluation, by the label and setting of what translated them.

    Args:
        decoding: the evaluation.
        judge: a grid model with the tokenizer of the systems.
        sentences: how many.
        epsilon: in nats.

    Raises:
        ValueError: for a judge without grid, or one that splits texts differently from the systems.
    """
    model, tokens, tokenizer = judge.model, judge.tokens, judge.tokenizer
    if model.system != "grid":
        raise ValueError(f"the model that judges must be a grid, not {judge.info['system']}: its heatmap is asked for")
    found = {}
    names = name_points(list(decoding.points.values()))
    for label, (key, point) in zip(names, decoding.points.items(), strict=True):
        judged = []
        for record in decoding.sorted(key)[:sentences]:
            ids, before = judge.sources.ids([record["source"], record.get("before", "")])
            written = tokenizer.convert_tokens_to_ids(record["tokens"])
            strange = None in written or tokenizer.convert_ids_to_tokens(written) != record["tokens"]
            if strange or tokenizer.convert_ids_to_tokens(ids) != record["source_tokens"]:
                raise ValueError(
                    f"{decoding.folder}: {point.system} {point.setting} has other tokens than the model that judges; "
                    "give a grid model of the same tokenizer"
                )
            batch = collate([tokens.example(ids, written, before if tokens.context else ())]).to(model.device)
            guided = guide(model, tokens, batch, lam=0.0)
            heatmap = guided.heatmap.view(guided.cells.shapes[0])[:, : len(written)]
            text = GrowingText(tokenizer)
            texts = [text.add(token) for token in written]  # nothing, where a character goes on
            timing = token_timings(heatmap, texts, record["delays"], epsilon)
            judged.append(SentenceTiming(record["source"], record["references"][0], timing))
        found[label] = judged
    return found


def row(system: str, setting: str, judged: Sequence[SentenceTiming]) -> dict[str, Any]:
    """One line of the table. Shares are of all tokens in percent, lags of the tokens concerned in source tokens."""
    tokens = [token for sentence in judged for token in sentence.tokens]
    by = {verdict: [token for token in tokens if token.verdict == verdict] for verdict in (EARLY, FINE, LATE)}

    def mean(values: Sequence[float]) -> float | None:
        return sum(values) / len(values) if values else None

    return {
        "system": system,
        "setting": setting,
        "tokens": len(tokens),
        **{f"{verdict} %": mean([100 * (token.verdict == verdict) for token in tokens]) for verdict in by},
        "early by": mean([-token.lag for token in by[EARLY]]),
        "late by": mean([token.lag for token in by[LATE]]),
        "regret of an early token (nats)": mean([token.regret for token in by[EARLY]]),
    }


def shown(sentence: SentenceTiming) -> str:
    """A translation with what is off: `token⟨−2⟩` was written two source tokens too early, `token⟨+1⟩` one too late."""
    off = [f"⟨{token.lag:+d}⟩".replace("-", "−") if token.lag else "" for token in sentence.tokens]
    return " ".join("".join(t.token + lag for t, lag in zip(sentence.tokens, off, strict=True)).split())


def page(found: Mapping[tuple[str, str], Sequence[SentenceTiming]], epsilon: float, count: int) -> str:
    """The table, and the sentences whose early tokens are most regretted."""
    rows = [row(*label, judged) for label, judged in found.items()]
    note = (
        f"{count} sentences. Known: loss within {epsilon:g} nats of its final value from there on. Too early: "
        "before the token is known; too late: after it and all tokens before it are. Regret: final loss over the loss "
        "where it was written."
    )
    lines = [to_markdown(rows, "Written too early, in time, too late", [note])]
    for (system, setting), judged in found.items():
        worst = sorted(judged, key=lambda sentence: -sum(t.regret for t in sentence.tokens if t.verdict == EARLY))
        heading = f"{system} {setting}: the early tokens most regretted, and all that is off by source tokens"
        lines.append(f"\n## {heading}\n")
        lines += [f"- {one.source} → {shown(one)}\n  reference: {one.reference}" for one in worst[:WORST]]
    return "\n".join(lines) + "\n"


def analyse(evaluation: Path, model_folder: str | Path, out: Path, sentences: int, epsilon: float) -> Path:
    """Write `timing.md` into a folder, and return it; raises what `timings` does, and for an unfinished evaluation."""
    if sentences < 1:
        raise ValueError(f"--sentences {sentences}: must be at least 1")
    decoding = Decoding.read(evaluation)
    decoding.check_complete()
    found = timings(decoding, load_model_folder(model_folder, choose_device("auto")), sentences, epsilon)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "timing.md"
    count = min(sentences, decoding.test["sentences"])
    path.write_text(page(found, epsilon, count), encoding="utf-8", newline="\n")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluation", type=Path)
    parser.add_argument("model_folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--epsilon", type=float, default=0.5, help="nats")
    asked = parser.parse_args(arguments)
    try:
        print(analyse(asked.evaluation, asked.model_folder, asked.out, asked.sentences, asked.epsilon))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
