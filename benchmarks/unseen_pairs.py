"""Pairs that a training run on `data=pairs_folder` left out, as a further test set: longer ones, or more of them.

    python benchmarks/unseen_pairs.py runs/experiment/base --out unseen.tsv [--corpus tvsub] [--least 12] [--count 4000]
    python evaluate.py 'model_folder=[…]' data.test_path=unseen.tsv data.source_field=0 data.target_field=1

A run takes the first `data.train_size` pairs of one random order. These are of those behind them: with at least
`--least` source tokens, no text of which it has seen, none twice; the first `--count` in that same order. They were
cleaned as all training pairs are, which the held-out test pairs were, too.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

from data_prep.blocks import read_block
from data_prep.clean_corpus import source_blocks
from data_prep.splitting import Texts
from duplexmt.training.data import corpus_settings, prepare_corpus


def unseen_pairs(run: Path, corpus: str | None, least: int, count: int) -> list[tuple[str, str]]:
    """The pairs, in the order of the run's own.

    Args:
        run: its folder.
        corpus: file of the data folder they come from; None for all.
        least: source tokens.
        count: of pairs.

    Raises:
        ValueError: for a run that trained on all there is, or too few pairs left.
    """
    from omegaconf import OmegaConf  # nothing else here needs what a run's configuration does

    saved = run / ".hydra" / "config.yaml"
    if not saved.is_file():
        raise ValueError(f"{run}: there is no {saved.name} of a run in it")
    data = OmegaConf.to_container(OmegaConf.load(saved).data, resolve=True)
    seen_size = data["train_size"]
    if data["corpus"] != "pairs_folder" or seen_size is None:
        raise ValueError(f"{run}: a run with data=pairs_folder and a data.train_size has left pairs out, not this one")
    prepared = prepare_corpus(**corpus_settings(data) | {"train_size": None, "tokenizer": str(run / "tokenizer")})
    pairs = prepared.splits["train"]
    known = Texts()
    known.add(pairs[:seen_size])
    of_corpus = None
    if corpus is not None:
        folder = Path(data["prepared"] or Path(data["path"]) / "prepared") / "clean" / corpus
        if not folder.is_dir():
            raise ValueError(
                f"corpus={corpus}: the run has no such file; it has {sorted(p.name for p in folder.parent.iterdir())}"
            )
        blocks = (read_block(block, ["source", "target"]) for block in source_blocks(folder))
        of_corpus = {
            pair for b in blocks for pair in zip(*(b[s].to_pylist() for s in ("source", "target")), strict=True)
        }
    left = [pair for pair in pairs[seen_size:] if of_corpus is None or pair in of_corpus]
    lengths = map(len, prepared.sources.ids([source for source, _ in left]))
    found = []
    for pair, length in zip(left, lengths, strict=True):
        if length >= least and not known.share(pair):
            found.append(pair)
            known.add([pair])
            if len(found) == count:
                return found
    raise ValueError(f"only {len(found):,} of {count:,} such pairs are left; ask for fewer, or shorter ones")


def main(arguments: list[str] | None = None) -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the training run with most pairs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", help="take pairs of this file of the data folder only")
    parser.add_argument("--least", type=int, default=12, help="source tokens")
    parser.add_argument("--count", type=int, default=4000)
    asked = parser.parse_args(arguments)
    if asked.count < 1:
        parser.error(f"--count {asked.count}: must be at least 1 pair")
    try:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        pairs = unseen_pairs(asked.run, asked.corpus, asked.least, asked.count)
        asked.out.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{asked.out}: {len(pairs):,} pairs")


if __name__ == "__main__":
    main()
