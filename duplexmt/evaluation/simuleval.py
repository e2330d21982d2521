"""SimulEval's other half: this environment decodes for the agent of `metrics_env/simuleval_agent.py`.

    python -m duplexmt.evaluation.simuleval export EVALUATION_FOLDER OUT  # spaced texts for SimulEval
    python -m duplexmt.evaluation.simuleval serve MODEL_FOLDER …        # started by the agent

SimulEval 1.1.4 splits texts on white space and needs libraries of its own, so its agent lives in the metrics
environment and asks here, in JSON lines: for each unit of source it passes on, what is written now.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.tokenizer import source_ids, token_ids
from ..model_folder.artifact import load_model_folder
from ..policy.knobs import Adaptive
from ..streaming.engine import Engine
from ..streaming.events import Write
from ..streaming.stream import Stream
from ..streaming.systems import build_system
from ..streaming.text import GrowingText, decode
from .decoding import Decoding

SPACE = "▁"  # a space inside a token, which must not split it


def shown(token: str) -> str:
    """A token as a unit of SimulEval: without white space."""
    return "".join(SPACE if character.isspace() else character for character in token)


class Units:
    """A source that arrives in units: model tokens as `export` writes them, or words or characters of any other file.

    Args:
        tokenizer: of the model.
        segmentation: of its sources, `tokens` or `characters`.
    """

    def __init__(self, tokenizer: Any, segmentation: str = "tokens") -> None:
        self.tokenizer, self.segmentation = tokenizer, segmentation
        self.known = {shown(token): index for token, index in sorted(tokenizer.get_vocab().items())}

    def ids(self, unit: str) -> list[int]:
        """Tokens of one unit: its own, if it is a token that sources are made of, else those of its text."""
        token = self.known.get(unit)
        if token is not None and (self.segmentation == "tokens" or len(decode(self.tokenizer, [token])) <= 1):
            return [token]
        return source_ids(self.tokenizer, [unit], self.segmentation)[0]


class LiveAnswers:
    """What a system has written once it has read some of a sentence's tokens: one stream, which goes on.

    Args:
        engine: around the model; one sentence at a time.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sentence: int | None = None
        self.stream: Stream | None = None
        self.writes: list[Write] = []

    def __call__(self, sentence: int, known: Sequence[int], finished: bool) -> tuple[list[Write], bool]:
        """What is written by now, and whether the translation has ended.

        Args:
            sentence: its number.
            known: source tokens read, which only grow while `sentence` stays the same.
            finished: whether they are all.
        """
        if sentence != self.sentence:
            if self.stream is not None:
                self.stream.close()
            self.sentence, self.stream, self.writes = sentence, None, []
        if not known:
            return [], False
        if self.stream is None:
            self.stream = self.engine.open()
        stream = self.stream
        if not stream.over:
            stream.read(known[stream.text_tokens :])
            if finished:
                stream.end()
            self.writes += [event for event in stream.write() if isinstance(event, Write)]
        return list(self.writes), stream.over


def serve(
    model_folder: str, system: str, setting: float | int | None, max_target_tokens: int, adaptive: Adaptive | None
) -> None:
    """Answer the agent: `{"sentence", "units", "finished"}` in, `{"tokens", "text", "finished"}` out, by lines.

    A stream goes on from request to request.
    """
    loaded = load_model_folder(model_folder)
    running = build_system(
        loaded, system, setting, max_target_tokens=max_target_tokens, batch_size=1, adaptive=adaptive
    )
    units, live = Units(loaded.tokenizer, loaded.sources.segmentation), LiveAnswers(running)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        known = [token for unit in request["units"] for token in units.ids(unit)]
        writes, ended = live(request["sentence"], known, request["finished"])
        tokens, growing = [write.token for write in writes], GrowingText(loaded.tokenizer)
        for token in tokens:
            growing.add(token)
        if ended:
            growing.finish()
        answer = {
            "tokens": [shown(token) for token in loaded.tokenizer.convert_ids_to_tokens(tokens)],
            "text": growing.text,  # half a character is held back until the end
            "finished": ended,
        }
        print(json.dumps(answer), flush=True)


def adaptive_of(text: str) -> Adaptive:
    """What confidence and LSG have beside their knob, from `K_MIN,K_MAX,ALPHA,DIVERGENCE`."""
    least, most, alpha, divergence = text.split(",")
    return Adaptive(int(least), int(most), float(alpha), divergence)


def export(folder: Path, out: Path) -> None:
    """Write the test set of an evaluation for SimulEval, a token a unit: `source.txt`, `target.txt`, `words.txt`.

    `target.txt` holds the references in tokens (as many as `evaluate.py` counts), `words.txt` as they are.

    Raises:
        ValueError: for an evaluation that is not finished.
    """
    decoding = Decoding.read(folder)
    decoding.check_complete()
    point = next(iter(decoding.points.values()))
    tokenizer = load_model_folder(point.model_folder).tokenizer
    records = decoding.sorted(point.digest)
    references = [record["references"][0] for record in records]
    tokens = [tokenizer.convert_ids_to_tokens(ids) for ids in token_ids(tokenizer, references)]
    lines = {
        "source.txt": [" ".join(map(shown, record["source_tokens"])) for record in records],
        "target.txt": [" ".join(map(shown, reference)) for reference in tokens],
        "words.txt": [" ".join(reference.split()) for reference in references],
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in lines.items():
        (out / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8", newline="\n")


def main() -> None:
    """The two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export")
    exporting.add_argument("evaluation", type=Path)
    exporting.add_argument("out", type=Path)
    serving = commands.add_parser("serve")
    serving.add_argument("model_folder")
    serving.add_argument("--run-as", default="grid")
    serving.add_argument("--setting", type=float)
    serving.add_argument("--adaptive", metavar="K_MIN,K_MAX,ALPHA,DIVERGENCE", type=adaptive_of)
    serving.add_argument("--max-target-tokens", type=int, default=64)
    arguments = parser.parse_args()
    try:
        if arguments.command == "export":
            export(arguments.evaluation, arguments.out)
        else:
            values = arguments.run_as, arguments.setting, arguments.max_target_tokens, arguments.adaptive
            serve(arguments.model_folder, *values)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
