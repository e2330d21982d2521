"""duplexmt: simultaneous machine translation with 2D grid attention over a pretrained decoder.

The names in `__all__` are what is promised to stay (docs/reference/api.md); nothing else is. They are loaded when they
are used, so that `import duplexmt` takes no time.

Equations are cited by their label in the paper *Dual-Stream Simultaneous Translation via 2D Grid Attention*;
`docs/reference/equations.md` maps each label to the function that implements it and the test that proves it.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {  # the types of these names: __init__.pyi
    "translator.translator": ("load", "Translator", "Stream", "AsyncStream"),
    "streaming.live": ("LiveEvent",),
    "streaming.live_text": ("LineEnd",),
    "streaming.events": ("Read", "Write", "End", "Replaced"),
    "protocol.client": ("Client", "AsyncClient", "ServerError"),
}
__all__ = sorted(name for names in _WHERE.values() for name in names)


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
