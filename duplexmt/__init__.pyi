from .protocol.client import AsyncClient as AsyncClient
from .protocol.client import Client as Client
from .protocol.client import ServerError as ServerError
from .streaming.events import End as End
from .streaming.events import Read as Read
from .streaming.events import Replaced as Replaced
from .streaming.events import Write as Write
from .streaming.live import LiveEvent as LiveEvent
from .streaming.live_text import LineEnd as LineEnd
from .translator.translator import AsyncStream as AsyncStream
from .translator.translator import Stream as Stream
from .translator.translator import Translator as Translator
from .translator.translator import load as load

__version__: str
