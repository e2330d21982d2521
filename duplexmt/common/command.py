"""A command's help, and a user's mistake as one line. Nothing else is imported."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def command_parser(description: str | None, prog: str | None = None) -> argparse.ArgumentParser:
    """One whose help is a module's docstring."""
    return argparse.ArgumentParser(prog, None, description, formatter_class=argparse.RawDescriptionHelpFormatter)


@contextmanager
def one_line_errors(*further: type[Exception]) -> Iterator[None]:
    """A user's mistake is told in one line, with exit status 2; its traceback comes with HYDRA_FULL_ERROR=1. Ctrl-C is
    told in a word.

    Args:
        further: kinds of errors that are mistakes, beside ValueError and OSError.
    """
    mistakes: tuple[type[Exception], ...] = (ValueError, OSError, *further)
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except mistakes as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
