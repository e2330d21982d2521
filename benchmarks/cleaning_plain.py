"""What `data_prep` is compared with: its own plain rules as a user would run them, nothing made slow and nothing tuned.

    python benchmarks/cleaning_plain.py plain_loop IN.gz OUT.tsv
    python benchmarks/cleaning_plain.py datasets_map IN.gz OUT.tsv

IN is a TSV with the target in its first column and the source in its second, OUT gets source and target. Pairs are
read, cleaned by the paper's rules, taken once each and written.
"""

import gzip
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from data_prep.cleaning import Cleaning, clean

RULES = Cleaning("zh", "en")


def plain_loop(path: str, output: str) -> None:
    """Line by line, one process."""
    seen = set()
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines, open(output, "w", encoding="utf-8") as out:
        for line in lines:
            cells = line.rstrip("\n").split("\t")
            fate = clean(cells[1], cells[0], RULES)
            if fate.dropped is None and (fate.source, fate.target) not in seen:
                seen.add((fate.source, fate.target))
                out.write(f"{fate.source}\t{fate.target}\n")


def datasets_map(path: str, output: str) -> None:
    """`datasets.map` and `filter` with two processes; duplicates in a loop, as `datasets` has nothing for them."""
    import datasets

    datasets.disable_progress_bars()

    def cleaned(batch: dict) -> dict:
        fates = [clean(line.split("\t")[1], line.split("\t")[0], RULES) for line in batch["text"]]
        kept = [(fate.source, fate.target) for fate in fates if fate.dropped is None]
        return {"source": [pair[0] for pair in kept], "target": [pair[1] for pair in kept]}

    seen = set()
    cache = Path(output).parent / "cache"
    data = datasets.load_dataset("text", data_files=[path], split="train", cache_dir=str(cache), sample_by="line")
    data = data.map(cleaned, batched=True, num_proc=2, remove_columns=["text"])
    with open(output, "w", encoding="utf-8") as out:
        for batch in data.iter(1000):
            for pair in zip(batch["source"], batch["target"], strict=True):
                if pair not in seen:
                    seen.add(pair)
                    out.write("\t".join(pair) + "\n")


if __name__ == "__main__":
    {"plain_loop": plain_loop, "datasets_map": datasets_map}[sys.argv[1]](*sys.argv[2:])
