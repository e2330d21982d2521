"""Languages and their scripts: codes, how words are told, which characters nobody sees."""

import re
import unicodedata

UNSPACED = frozenset({"ja", "zh"})
"""Languages whose script puts no space anywhere."""

UNPARTED = UNSPACED | {"th", "lo", "km", "my", "bo", "dz"}
"""Languages whose words no spaces part."""

# Vowel signs of Indian and South-East Asian scripts, which tell words apart, are no `\w` of Python's.
_SIGNS = "".join(chr(code) for code in range(0x0900, 0x1800) if unicodedata.category(chr(code)).startswith("M"))
LETTERS = re.compile(rf"(?:[^\W_]|[{_SIGNS}])+")
NOT_LETTERS = re.compile(rf"(?:[^\w{_SIGNS}]|_)+")

# Han, kana, bopomofo and their marks, in full and half width; not the letters and digits of full width.
WIDE = (
    "\u2e80-\u2fdf\u2ff0-\u2fff\u3001-\u312f\u3190-\u4dbf\u4e00-\u9fff\uf900-\ufaff\ufe00-\ufe02\ufe10-\ufe1f"
    "\ufe30-\ufe6f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f\uffe0-\uffe6"
    "\U0001aff0-\U0001b16f\U0001f200-\U0001f2ff\U00020000-\U000323af\U000e0100-\U000e01ef"
)
# Such marks have their text on one side; a plain quotation mark may be either, and ’ an apostrophe.
WIDE_OR_OPENING, WIDE_OR_CLOSING = WIDE + r"(\[{“‘", WIDE + "”"

_LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
    dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id
    ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu
    lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu
    rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr
    ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()  # noqa: SIM905, as a list of strings it takes 180 lines
)

# Control characters other than white space, and the invisible ones that only break string comparison.
INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff]")

LONE_SURROGATE = re.compile("[\ud800-\udfff]")

# All that Unicode wants ignored where it is not known: joiners, marks of direction, variation selectors, fillers, tags.
_UNSEEN = re.compile(
    INVISIBLE.pattern[:-1] + "\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c-\u200f\u202a-\u202e"
    "\u2061-\u206f\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
_JOINED = frozenset("ar bn fa gu hi kn ks ku ml mr my ne or pa ps sa sd si ta te ug ur".split())  # noqa: SIM905


def check_text(text: object) -> str:
    """Return a text if it is one, whole; ValueError for anything else, and for half a character."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r}: a text is a str; decode bytes first")
    if (half := LONE_SURROGATE.search(text)) is not None:
        near = text[max(0, half.start() - 20) : half.end() + 20]
        raise ValueError(
            f"{near!r} has lone surrogates, which are no characters: cut texts between characters, and decode bytes "
            "with errors='replace'"
        )
    return text


def check_position(replace: object) -> None:
    """Raise ValueError for what is no position in a text."""
    if isinstance(replace, bool) or not isinstance(replace, int):
        raise ValueError(f"replace={replace!r}: must be a position in the text, a whole number")


def check_language(code: str) -> str:
    """Return `code` if it is an ISO 639-1 code ("zh", "en"); ValueError otherwise, for "zh-CN", "cn", "jp", "eng", …"""
    if code not in _LANGUAGES:
        raise ValueError(
            f"language {code!r} is not an ISO 639-1 code: two lower-case letters without region or script, "
            "such as zh (not cn or zh-CN), ja (not jp), ko, en, de, fr"
        )
    return code


def invisible(character: str, language: str) -> bool:
    """Whether a character of a text to be translated shows nothing and says nothing.

    More than training drops: what a text to translate may be full of, a model has hardly ever seen, and a tokenizer
    makes three tokens of. White space is not meant, nor are joiners in languages that write with them.
    """
    return bool(_UNSEEN.match(character)) and not (language in _JOINED and character in _JOINERS)


def without_invisible(text: str, language: str) -> str:
    """A text without its `invisible` characters."""
    return _UNSEEN.sub(lambda found: "" if invisible(found[0], language) else found[0], text)


def text_key(text: str) -> str:
    """What makes two texts the same for a split: letters and digits, without case ("Hello, Tom!" is "hellotom")."""
    return NOT_LETTERS.sub("", text).casefold()
