"""A command that is none of Hydra's: its help, and a user's mistake as one line. Nothing else is imported."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def command_parser(description: str | None, prog: str | None = None) -> argparse.ArgumentParser:
    """One whose help is a module's docstring."""
    return argparse.ArgumentParser(prog, None, description, formatter_class=argparse.RawDescriptionHelpFormatter)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """A user's mistake is told in one line, with exit status 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
