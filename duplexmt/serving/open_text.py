"""What the server keeps of a session's text to have another engine go on with it."""

from typing import Any


class OpenText:
    """The text since the last boundary, and how far its translation has come there.

    Attributes:
        position: of the whole text, where what is kept begins.
        text: what has arrived since.
        ended: whether that is all.
        theta: as last set.
        replacing: position and text of a replacement that the engine has not answered.
    """

    def __init__(self, name: str, model: str, theta: float | None, source_length: int | None) -> None:
        self.name, self.model, self.theta, self.source_length = name, model, theta, source_length
        self.position, self.text, self.ended = 0, "", False
        self.flushes: list[int] = []  # positions at which the speaker has paused
        self.unanswered: list[int] = []  # numbers of changes of θ that the engine has not confirmed
        self._state: dict[str, Any] | None = None  # of the boundary
        self.replacing: tuple[int, str] | None = None
        self._read, self._over, self._begun = 0, False, False  # of the sentence at hand
        self._written: list[int] = []
        self._reads: list[int] = []  # tokens read when each was written

    def add(self, text: str) -> dict[str, Any]:
        """Text that has arrived, for the engine."""
        self.text += text
        return {"do": "text", "name": self.name, "text": text}

    def replace(self, position: int, text: str) -> dict[str, Any]:
        """Other text from a position on, for the engine: it is so once the engine says that it came in time."""
        self.replacing = position, text
        return {"do": "replace", "name": self.name, "position": position, "text": text}

    def flush(self) -> dict[str, Any]:
        """A pause, for the engine."""
        place = self.position + len(self.text)
        if place not in self.flushes[-1:]:
            self.flushes.append(place)
        return {"do": "flush", "name": self.name}

    def end(self) -> dict[str, Any]:
        """The end, for the engine."""
        self.ended = True
        return {"do": "end", "name": self.name}

    def set(self, number: int, theta: float) -> dict[str, Any]:
        """Another θ, for the engine."""
        self.theta = theta
        self.unanswered.append(number)
        return {"do": "set", "name": self.name, "theta": theta, "id": number}

    def note(self, kind: str, *values: Any) -> None:
        """Take note of what the engine has said."""
        if kind == "boundary":
            position, self._state = values
            self.text = self.text[position - self.position :]
            self.position = position
            self.flushes = [place for place in self.flushes if place >= position]
            self._read, self._written, self._reads, self._over, self._begun = 0, [], [], False, False
        elif kind == "read":
            self._read, self._begun = self._read + 1, True
        elif kind == "write":
            self._written.append(values[1])
            self._reads.append(self._read)
        elif kind == "end":
            self._over = True
        elif kind == "replaced":
            assert self.replacing is not None
            (position, text), self.replacing = self.replacing, None
            self.text = self.text[: position - self.position] + text
            self.flushes = [place for place in self.flushes if place <= position]
            self._read -= values[0]["tokens"]
            self._reads = [min(read, self._read) for read in self._reads]
        elif kind == "refused":
            self.replacing = None
        elif kind == "set":
            self.unanswered.remove(values[0])

    def again(self) -> list[dict[str, Any]]:
        """What has another engine go on from here."""
        how = {"model": self.model, "theta": self.theta, "source_length": self.source_length}
        restore = None
        if self._state is not None or self._begun:
            sentence = {"read": self._read, "written": [*self._written], "reads": [*self._reads]}
            restore = {"state": self._state, "over": self._over, "begun": self._begun} | sentence
        asked: list[dict[str, Any]] = [{"do": "join", "name": self.name, **how, "restore": restore}]
        begin = 0
        for place in self.flushes:
            asked += self._text(begin, place - self.position)
            asked.append({"do": "flush", "name": self.name})
            begin = place - self.position
        asked += self._text(begin, len(self.text))
        if self.replacing is not None:
            asked.append(self.replace(*self.replacing))
        if self.theta is not None:
            asked += [{"do": "set", "name": self.name, "theta": self.theta, "id": one} for one in self.unanswered]
        return [*asked, {"do": "end", "name": self.name}] if self.ended else asked

    def _text(self, begin: int, end: int) -> list[dict[str, Any]]:
        return [{"do": "text", "name": self.name, "text": self.text[begin:end]}] if begin < end else []
