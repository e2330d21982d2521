"""Training pairs with something to be copied, the same drawn text on both sides: `data.copies`.

What is copied (a number, a name, an identifier, an address) has no meaning to learn, and a corpus shows each one once
or never. So more pairs are made of those there are: what stands on both sides of one becomes another of its kind; one
that has no such thing gets a sentence about one, before or behind it, or that sentence alone is the pair.
"""

import random
import re
from collections import Counter
from collections.abc import Sequence

from data_prep.rules import space

from ..common.pair import Pair
from ..data.copying import WORD

KINDS = {  # of what stands on both sides; the first that fits
    "url": re.compile(r"(https?://|www\.).+"),
    "email": re.compile(r"[^@]+@[^@]+\.[a-z]+"),
    "number": re.compile(r"(?!1$)\d+([.,:/-]\d+)*%?"),  # not 1: what is counted would become many
    "name": re.compile(r"[A-Z][a-z]+"),
    "identifier": re.compile(r"[A-Za-z_][A-Za-z0-9_.-]+"),
}
NAMES = {
    ("zh", "en"): {"汤姆": "Tom", "玛丽": "Mary", "约翰": "John", "鲍勃": "Bob", "爱丽丝": "Alice", "迈克": "Mike"}
}
"""Names as they are written in Chinese, which are Latin in what is made."""
GIVEN = (
    "Adam Alex Amy Andrew Angela Anna Ben Brian Carlos Carol Chris Claire Daniel David Diana Elena Emily Emma Eric Eva "
    "Frank Grace Hannah Harry Helen Ivan Jack James Jane Jason Jenny Julia Karen Kevin Laura Leo Linda Lisa Lucas Lucy "
    "Maria Mark Martin Max Michael Nancy Nick Nina Oliver Oscar Paul Peter Rachel Robert Rosa Ryan Sam Sara Sophie "
    "Steve Susan Thomas Tina Victor William"
)
SYLLABLES = (
    "al an ar bel ber bo ca cor da del di don dra el en fa fen gar go ha hol il jo ka kel ki la len li lo ma mar mi "
    "mon na nel no or pa per pi ra ren ri ro sa sen si sol ta ter ti to tra va ven vi vo wa wen win xi ya zan ze zo"
)
WORDS = "api app blog book code data docs files help home index item list main map news page photo shop test user video"
DOMAINS = "com com com org net cn io edu de info com.cn co.uk"
FILES = "py js md txt pdf html json jpg"
SENTENCES = {
    ("zh", "en"): [
        ("详情请看{url}。", "For details see {url}."),
        ("网址是{url}。", "The address is {url}."),
        ("你可以从{url}下载。", "You can download it from {url}."),
        ("请打开{url}。", "Please open {url}."),
        ("我在{url}上看到的。", "I saw it on {url}."),
        ("我的邮箱是{email}。", "My e-mail address is {email}."),
        ("请发邮件到{email}。", "Please send an e-mail to {email}."),
        ("有问题就写信给{email}。", "If you have questions, write to {email}."),
        ("他的电子邮件地址是{email}。", "His e-mail address is {email}."),
        ("请联系{email}。", "Please contact {email}."),
        ("我叫{name}。", "My name is {name}."),
        ("{name}是我的朋友。", "{name} is my friend."),
        ("我昨天见到了{name}。", "I met {name} yesterday."),
        ("{name}在哪里工作？", "Where does {name} work?"),
        ("这是{name}的书。", "This is {name}'s book."),
        ("{name}说他不来了。", "{name} said he would not come."),
        ("我们和{name}一起去。", "We are going with {name}."),
        ("你认识{name}吗？", "Do you know {name}?"),
        ("这家公司叫{name}。", "This company is called {name}."),
        ("请运行{identifier}。", "Please run {identifier}."),
        ("文件名是{identifier}。", "The file name is {identifier}."),
        ("型号是{identifier}。", "The model is {identifier}."),
        ("{identifier}是什么意思？", "What does {identifier} mean?"),
        ("调用{identifier}之后就结束了。", "It ends after {identifier} is called."),
        ("我用的是{identifier}。", "I use {identifier}."),
        ("把{identifier}改成{other}。", "Change {identifier} to {other}."),
        ("号码是{number}。", "The number is {number}."),
        ("一共{number}元。", "It is {number} yuan altogether."),
        ("我的电话是{number}。", "My phone number is {number}."),
        ("他有{number}本书。", "He has {number} books."),
        ("房间号是{number}。", "The room number is {number}."),
        ("温度是{count}度。", "The temperature is {count} degrees."),
        ("大约{count}%的人同意。", "About {count}% of the people agree."),
        ("密码是{number}。", "The password is {number}."),
        ("会议{time}开始。", "The meeting starts at {time}."),
        ("火车{time}到。", "The train arrives at {time}."),
        ("他{year}年出生。", "He was born in {year}."),
        ("那是{year}年的事。", "That was in {year}."),
        ("{name}住在{number}号房间。", "{name} is staying in room {number}."),
        ("{name}的邮箱是{email}。", "{name}'s e-mail address is {email}."),
    ]
}
FIELD = re.compile(r"\{(\w+)\}")
IN_PLACE_OF_NAMES = "url", "email", "identifier"
DRAWN = "url url email email identifier number name count time year"  # as often; names and numbers are replaced, too


def copies(pairs: Sequence[Pair], share: float, languages: tuple[str, str], seed: int) -> list[Pair]:
    """Further pairs with something drawn on both sides, of pairs that are drawn: half of them, or as many as there
    are, of pairs with something to put it in the place of.

    Sentences about what is drawn there are for Chinese–English; in other languages it stands by itself behind the pair.

    Returns:
        `share` times as many pairs, rounded.
    """
    rng, wanted = random.Random(seed), round(share * len(pairs))
    known = NAMES.get(languages, {})
    found = [(pair, places) for pair in pairs if (places := replaceable(pair, known))]
    replaced = [in_place(*each, rng) for each in rng.sample(found, min(len(found), wanted // 2))]
    others = rng.choices(pairs, k=wanted - len(replaced))
    return replaced + [beside(pair, languages, rng) for pair in others]


def replaceable(pair: Pair, known: dict[str, str]) -> list[tuple[str, str, str]]:
    """What stands once on each side: its kind, and how it is written in source and target."""
    sides = [Counter(text.rstrip(".,:/-?") for text in WORD.findall(side)) for side in (pair.source, pair.target)]
    found = []
    for text in sides[0]:
        kind = next((kind for kind, rule in KINDS.items() if rule.fullmatch(text)), None)
        if kind and all(side[text] == 1 for side in sides) and pair.source.count(text) == pair.target.count(text) == 1:
            found.append((kind, text, text))
    for name, latin in known.items():
        if latin not in pair.source and pair.source.count(name) == pair.target.count(latin) == sides[1][latin] == 1:
            found.append(("name", name, latin))
    return found


def in_place(pair: Pair, places: list[tuple[str, str, str]], rng: random.Random) -> Pair:
    """The pair with others drawn in the place of these."""
    source, target = pair.source, pair.target
    marks = [chr(0xE000 + number) for number in range(len(places))]  # first, as what is drawn may hold another one
    for mark, (_, one, other) in zip(marks, places, strict=True):
        source, target = source.replace(one, mark), target.replace(other, mark)
    for mark, (kind, one, _) in zip(marks, places, strict=True):
        if kind == "name" and rng.random() < 1 / 3:  # what is said of a name is said of anything
            kind = rng.choice(IN_PLACE_OF_NAMES)
        new = like(one, rng) if kind == "number" else draw(kind, rng)
        source, target = source.replace(mark, new), target.replace(mark, new)
    return Pair(source, target, pair.before)


def beside(pair: Pair, languages: tuple[str, str], rng: random.Random) -> Pair:
    """A sentence with something drawn before the pair, behind it, or alone; see `copies` of other languages."""
    field = f"{{{rng.choice(DRAWN.split())}}}"
    about = [texts for texts in SENTENCES.get(languages, []) if field in texts[0]]
    made_of, order = (
        rng.choice(about or [(field, field)]),
        rng.choice(("before", "behind", "alone") if about else ("behind",)),
    )
    drawn: dict[str, str] = {}
    sides = []
    for own, text, language in zip(pair[:2], made_of, languages, strict=True):
        made = FIELD.sub(lambda found: drawn.setdefault(found[1], draw(found[1], rng)), text)
        parts = {"before": (made, own), "behind": (own, made), "alone": (made,)}[order]
        sides.append(space(" ".join(parts), language))
    return Pair(sides[0], sides[1], pair.before)


def draw(kind: str, rng: random.Random) -> str:
    """A text of a kind: name, identifier (or `other`), email, url, number, count (a small one), year or time."""

    def any_of(words: str) -> str:
        return rng.choice(words.split())

    def word(least: int = 2, most: int = 3) -> str:
        return "".join(any_of(SYLLABLES) for _ in range(rng.randint(least, most)))

    def digits(count: int) -> str:
        return str(rng.randint(2 * 10 ** (count - 1), 10**count - 1))

    if kind == "name":
        given, made = any_of(GIVEN), word().capitalize()
        return rng.choice((given, made, f"{given} {made}"))
    host = f"{word()}{rng.choice(('', '', rng.choice('-.') + word(1, 2)))}.{any_of(DOMAINS)}"
    if kind == "email":
        own = rng.choice((word(), f"{word()}{rng.choice('._')}{word()}", any_of(GIVEN).lower(), any_of(WORDS)))
        return f"{own}{rng.choice(('', '', digits(2), digits(4)))}@{host}"
    if kind == "url":
        path = "".join(f"/{rng.choice((word(), any_of(WORDS), digits(3)))}" for _ in range(rng.randint(0, 2)))
        return rng.choice(("https://", "http://", "https://www.", "www.")) + host + path
    if kind in ("identifier", "other"):
        one, two = any_of(WORDS), rng.choice((word(), any_of(WORDS)))
        product = "".join(rng.choices("ABCDEFGHKLMNPQRSTVWX", k=rng.randint(1, 3))) + rng.choice(("", "-"))
        styles = f"{one}_{two}", f"{one}{two.capitalize()}", f"{one}.{two}", f"{one}-{two}", f"{two}.{any_of(FILES)}"
        return rng.choice((*styles, f"{one}_{two}".upper(), product + digits(rng.randint(2, 4))))
    if kind == "year":
        return str(rng.randint(1850, 2049))
    if kind == "time":
        return f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}"
    if kind == "count":
        return rng.choice((digits(1), digits(2), f"{digits(rng.randint(1, 2))}.{digits(1)}"))
    assert kind == "number", kind
    whole = digits(rng.randint(1, 6))
    return rng.choice((whole, whole, f"{int(whole):,}", f"{whole[:3]}.{digits(rng.randint(1, 2))}", f"1{digits(10)}"))


def like(number: str, rng: random.Random) -> str:
    """Another number that looks the same: a year, time or day where it may be one, else digit for digit."""
    if re.fullmatch(r"(1[5-9]|20)\d\d", number):
        return draw("year", rng)
    if re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", number):
        return draw("time", rng)
    if re.fullmatch(r"0*([2-9]|[12]\d|3[01])", number):
        return str(rng.randint(2, 31))
    return re.sub(r"\d", lambda found: "0" if found[0] == "0" else rng.choice("23456789"), number)
