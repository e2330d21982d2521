"""The messages of `duplexmt.v1`, what of them is refused, and the close codes (docs/reference/protocol.md)."""

import json
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

SUBPROTOCOL = "duplexmt.v1"
SCHEMA_FILE = Path(__file__).with_name("protocol.schema.json")
as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
MOST_OF_A_VALUE = 40  # characters of a refused value that are told


class Close(IntEnum):
    """Why a connection was closed; the error before it has the same name as its code."""

    NORMAL = 1000
    TOO_BIG = 1009
    RESTART = 1012
    BUSY = 1013
    BAD_MESSAGE = 4400
    TOKEN = 4401
    UNKNOWN_SESSION = 4404
    IDLE = 4408
    REPLACED = 4409
    TOO_SLOW = 4413
    RATE = 4429


class Message(BaseModel):
    """Fields of their exact types, none that is unknown, and finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


Theta = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]  # what JavaScript counts exactly
Word = Annotated[str, Field(max_length=128)]
Channel = Annotated[str, Field(min_length=16, max_length=128)]  # a name that nobody guesses

# --- client → server -------------------------------------------------------------------------------------------------


class Start(Message):
    """Begin a session."""

    type: Literal["start"]
    model: Word | None = None
    theta: Theta | None = None
    source_length: Annotated[int, Field(ge=1, le=100_000)] | None = None
    token: Annotated[str, Field(max_length=1024)] | None = None
    channel: Channel | None = None


class Resume(Message):
    """Go on with a session."""

    type: Literal["resume"]
    session: Word
    key: Word
    seq: Count


class Watch(Message):
    """Be told the events of whatever session is on a channel."""

    type: Literal["watch"]
    channel: Channel


class Text(Message):
    """Source text: what follows the text as far as `at`, or, with `replace`, its new end from that position on."""

    type: Literal["text"]
    at: Count
    text: str
    replace: Count | None = None


class Set(Message):
    """Change θ."""

    type: Literal["set"]
    id: Count
    theta: Theta


class Flush(Message):
    """Let go what is held back."""

    type: Literal["flush"]


class End(Message):
    """The text is complete."""

    type: Literal["end"]


class CloseSession(Message):
    """Forget the session."""

    type: Literal["close"]


class Ack(Message):
    """Frames of events have arrived."""

    type: Literal["ack"]
    seq: Count


class Ping(Message):
    """Are you there?"""

    type: Literal["ping"]


ClientMessage = Annotated[
    Start | Resume | Watch | Text | Set | Flush | End | CloseSession | Ack | Ping, Field(discriminator="type")
]

# --- server → client -------------------------------------------------------------------------------------------------


class Limits(Message):
    """What the server allows."""

    frame_bytes: Count
    message_characters: Count
    characters_per_second: float
    characters_burst: Count
    messages_per_second: float
    messages_burst: Count
    idle_seconds: float
    grace_seconds: float


class Samples(Message):
    """Sentences that the model translates well."""

    chosen: str  # how
    sentences: list[str]


class Model(Message):
    """What translates."""

    name: str
    source_language: str
    target_language: str
    theta: Theta | None  # null where no grid translates: it has none
    parameters: Count
    samples: Samples | None = None


class Snapshot(Message):
    """All that was written until frame `seq`, where the frames themselves are no longer kept."""

    seq: Count
    text: str
    source: Count
    sentence: Count
    boundary: Count


class Ready(Message):
    """The session goes on; its next key."""

    type: Literal["ready"]
    session: str
    key: str
    model: Model
    models: list[Model]  # from which a session may choose
    limits: Limits
    expires: float
    snapshot: Snapshot | None = None


class Watching(Message):
    """The events of a channel follow."""

    type: Literal["watching"]
    model: Model | None  # null while the engine loads its first one


class Engine(Message):
    """How the engine is: after `ready`, whenever it changes, and before the error of a `start` that finds none."""

    type: Literal["engine"]
    state: Literal["starting", "ready", "failed"]
    reason: str | None = None


class Accepted(Message):
    """Text has been taken as far as `at`; `credit` characters more may be sent now. So many replacements were made."""

    type: Literal["ack"]
    at: Count
    credit: Count
    replaced: Count | None = None  # where there were any


class ReadEvent(Message):
    """A source token was read."""

    event: Literal["read"]
    sentence: Count
    text: str
    source: Count
    token: str
    end: bool
    p_emit: Theta | None
    theta: Theta | None


class WriteEvent(Message):
    """A target token was written."""

    event: Literal["write"]
    sentence: Count
    text: str
    source: Count
    token: str
    delay: Count
    p_emit: Theta | None
    theta: Theta | None


class EndEvent(Message):
    """A sentence's translation is over."""

    event: Literal["end"]
    sentence: Count
    text: str
    source: Count
    reason: str


class ReplacedEvent(Message):
    """The text from `source` on is another one; so many tokens that had been read are taken back."""

    event: Literal["replaced"]
    sentence: Count
    text: Literal[""]
    source: Count
    tokens: Count


class LineEvent(Message):
    """A line of the source has ended."""

    event: Literal["line"]
    text: Literal["\n"]
    source: Count


class Events(Message):
    """What one step of the engine brought for this session."""

    type: Literal["events"]
    seq: Count
    events: list[Annotated[ReadEvent | WriteEvent | EndEvent | ReplacedEvent | LineEvent, Field(discriminator="event")]]


class SetDone(Message):
    """The θ holds for all events of frames after `seq`."""

    type: Literal["set"]
    id: Count
    seq: Count


class Error(Message):
    """What is wrong; the connection is closed next where it is fatal."""

    type: Literal["error"]
    code: str
    fatal: bool
    message: str
    id: Count | None = None
    retry_after: float | None = None
    earliest: Count | None = None  # position that could be replaced


class GoAway(Message):
    """The server stops in so many milliseconds."""

    type: Literal["goaway"]
    in_ms: Count


class Done(Message):
    """The whole text has been translated."""

    type: Literal["done"]


class Pong(Message):
    """Yes."""

    type: Literal["pong"]


ServerMessage = Annotated[
    Ready | Watching | Engine | Accepted | Events | SetDone | Error | GoAway | Done | Pong, Field(discriminator="type")
]


@cache
def _client_messages() -> TypeAdapter[Any]:
    return TypeAdapter(ClientMessage)


def client_message(frame: str) -> Any:
    """One of the client's messages, from the text of its frame.

    Raises:
        ValueError: naming the field, its value and the rule it breaks: for what is no JSON object of a known type, an
            unknown or missing field, a number that is none (NaN), or a lone surrogate.
    """
    try:
        return _client_messages().validate_json(frame)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "message"
        if "hex escape" in first["msg"]:
            raise ValueError("a lone surrogate, which is half a character: cut texts between code points") from error
        if first["type"] == "extra_forbidden":
            raise ValueError(f"{place}: there is no such field in {first['loc'][0]!r}") from error
        if first["type"] == "missing":
            raise ValueError(f"{place}: {first['loc'][0]!r} needs it") from error
        raise ValueError(f"{place}={str(first['input'])[:MOST_OF_A_VALUE]}: {first['msg']}") from error


def schema_text() -> str:
    """Both sides' messages as a JSON schema, `$defs/client` and `$defs/server`, as in `protocol.schema.json`."""
    client = TypeAdapter(ClientMessage).json_schema(ref_template="#/$defs/{model}")
    server = TypeAdapter(ServerMessage).json_schema(ref_template="#/$defs/{model}")
    definitions = client.pop("$defs") | server.pop("$defs") | {"client": client, "server": server}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SUBPROTOCOL,
        "anyOf": [{"$ref": "#/$defs/client"}, {"$ref": "#/$defs/server"}],
    }
    each = (f' "{name}": {json.dumps(own, ensure_ascii=False)}' for name, own in definitions.items())  # a line each
    return json.dumps(head)[:-1] + ', "$defs": {\n' + ",\n".join(each) + "\n}}\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
