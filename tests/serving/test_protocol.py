"""The messages: the schema the world sees says what the server checks."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duplexmt.protocol.messages import SCHEMA_FILE, client_message, schema_text

from .live_server import validator

MESSAGES = [
    {"type": "start"},
    {"type": "start", "theta": 0.5, "source_length": 3, "token": "t"},
    {"type": "resume", "session": "s", "key": "k", "seq": 0},
    {"type": "text", "at": 0, "text": "我们"},
    {"type": "set", "id": 1, "theta": 0},
    {"type": "flush"},
    {"type": "end"},
    {"type": "close"},
    {"type": "ack", "seq": 3},
    {"type": "ping"},
]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4), st.lists(st.integers(), max_size=1),
    st.just("x" * 200),
)  # fmt: skip
NAMES = st.sampled_from(["type", "theta", "at", "text", "seq", "id", "key", "session", "source_length", "token", "x"])


def test_the_schema_file_is_that_of_the_messages():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "python -m duplexmt.protocol.messages writes it"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message["type"])
def test_every_message_is_understood(message):
    assert validator("client").is_valid(message)
    understood = client_message(json.dumps(message)).model_dump(exclude_none=True)
    assert understood == message


@settings(max_examples=100)
@given(st.sampled_from(MESSAGES), st.dictionaries(NAMES, VALUES, max_size=2), st.lists(NAMES, max_size=1))
def test_the_server_takes_what_the_schema_takes(message, changes, without):
    message = {name: value for name, value in (message | changes).items() if name not in without}
    try:
        client_message(json.dumps(message))
        taken = True
    except ValueError:
        taken = False
    # JSON schema counts 1.0 among the whole numbers, the server does not
    whole = any(isinstance(value, float) and value.is_integer() for value in message.values())
    assert taken == validator("client").is_valid(message) or (whole and not taken)


@given(st.text(max_size=30))
def test_any_text_is_understood_or_refused_in_words(frame):
    with pytest.raises(ValueError, match=r"\w"):
        client_message(frame + "!")


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        ('{"type":"set","id":1,"theta":NaN}', "theta=nan"),
        ('{"type":"set","id":1,"theta":Infinity}', "theta=inf"),
        ('{"type":"set","id":1}', "theta: 'set' needs it"),
        ('{"type":"set","id":1.5,"theta":1}', "id=1.5"),
        ('{"type":"set","id":9007199254740992,"theta":1}', "id=9007199254740992"),
        ('{"type":"text","at":true,"text":""}', "at=True"),
        ('{"type":"text","at":0,"text":"a\\udc00b"}', "lone surrogate"),
        ('{"type":"text","at":0,"text":"\\ud83d"}', "lone surrogate"),
        ('{"type":"ping","x":0}', "x: there is no such field"),
        ('{"type":"pong"}', "'ping'"),
    ],
)
def test_a_mistake_is_named(frame, named):
    with pytest.raises(ValueError, match=r"\w") as told:
        client_message(frame)
    assert named in str(told.value)
    assert len(str(told.value)) < 300
