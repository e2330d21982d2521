"""The log of server and engine: lines with their time and level on standard error, and no flood of them."""

import logging

from ..protocol.bucket import Bucket

LINES, RATE = 20, 0.2  # of one kind at once, and then a second
TRACEBACK = 20  # lines that one counts as


def log_to_stderr() -> None:
    """Have this process log so."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(Sparing())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.getLogger("huggingface_hub").propagate = False  # it shows its lines itself


class Sparing(logging.Filter):
    """Leaves out lines of a kind (from one place of the source) that come too often, and says how many, with the next:
    what a client does may not fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[tuple[str, int], Bucket] = {}
        self._left_out: dict[tuple[str, int], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a line."""
        kind = record.pathname, record.lineno
        if not self._left.setdefault(kind, Bucket(RATE, LINES)).take(TRACEBACK if record.exc_info else 1):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        if left_out := self._left_out.pop(kind, 0):
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like this are left out)", None
        return True
