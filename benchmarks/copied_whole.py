"""What a translation has to copy, kept whole: numbers, URLs, e-mail addresses and Latin names in 200 Chinese sentences.

    python benchmarks/copied_whole.py models/zh-en
    python benchmarks/copied_whole.py models/zh-en --theta 0.3 --show

A sentence counts where all it has to copy stands in the translation, letter by letter, and not as a part of more. The
sentences are always the same: 40, written apart from those that `data.copies` trains on, each with five drawn fillers.
The last line is one JSON object.
"""

import json
import random
import re
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # works without an installed package, too

import duplexmt
from benchmarks.measuring import command

SENTENCES = {
    "number": """
        这座桥有{n}米长。|昨天我一共跑了{d}公里。|她的身高是{cm}厘米。|火车{t}从北京出发。|这台电脑卖{p}元。
        我们学校有{n}名学生。|他{y}年大学毕业。|今年的收入增长了{d}%。|请给客服打电话，号码是{tel}。|飞机将于{t}到达上海。
    """,
    "url": """
        更多信息可以在{url}找到。|他把照片都放在了{url}上。|报名请访问{url}。|这个网站{url}已经打不开了。|老师让我们看看{url}。
        新闻最早出现在{url}。|你试过{url}吗？|点击{url}就能看到结果。|我的博客地址是{url}，欢迎来看。|说明书在{url}。
    """,
    "email": """
        把简历寄到{email}就可以了。|我给{email}写了一封信。|如果你想参加，请告诉{email}。|经理的邮箱换成了{email}。
        这封信是{email}发来的。|请把文件转发给{email}。|订单有问题时，可以联系{email}。|我没有收到{email}的回复。
        登录时要填{email}。|你的账号是{email}吗？
    """,
    "name": """
        {name}正在学习中文。|昨天晚上{name}给我打了电话。|我的老师{name}来自德国。|你知道{name}住在哪里吗？|{name}写的小说很有意思。
        我想把这本书送给{name}。|{name}和{other}结婚了。|听说{name}下个月要去日本。|公司的新经理是{name}。|{name}每天都在{brand}上班。
    """,
}  # fmt: skip
NAMES = [
    "Giovanni Rossi", "Ingrid Larsen", "Siobhan", "Tadeusz Nowak", "Margarethe", "Quentin Dupont", "Fatima", "Gustav",
]  # fmt: skip
OTHERS = ["Penelope", "Roderick Hughes", "Anneliese", "Leopold Brandt", "Beatrix", "Hamish Campbell", "Vincent Moreau"]
BRANDS = ["Siemens", "Spotify", "Volkswagen", "Airbus", "Netflix", "Zalando", "Philips", "Lufthansa", "Bosch", "Nokia"]
PLACES = ["greenfield", "northlight", "citylibrary", "oldbridge", "weather24", "mountainbike", "bookworm", "schoolnet"]
SIGNS = "A-Za-z0-9_@/"


class Sentence(NamedTuple):
    """A sentence, its kind, and what of it has to be copied."""

    text: str
    kind: str
    copied: tuple[str, ...]


def filler(field: str, rng: random.Random) -> str:
    """Something to be copied, for a field of `SENTENCES`."""
    site = f"{rng.choice(PLACES)}.{rng.choice(('com', 'org', 'net', 'de', 'com.cn'))}"
    return {
        "n": str(rng.randint(13, 9999)),
        "d": f"{rng.randint(2, 60)}.{rng.randint(1, 9)}",
        "cm": str(rng.randint(145, 198)),
        "t": f"{rng.randint(6, 22)}:{rng.randint(1, 59):02}",
        "p": str(rng.randint(21, 199) * 100 - 1),
        "y": str(rng.randint(1961, 2024)),
        "tel": f"{rng.randint(400, 999)}{rng.randint(2000, 9999)}{rng.randint(100, 999)}",
        "url": rng.choice(("https://", "www.")) + site + rng.choice(("", f"/{rng.choice(PLACES)}", "/2024/report")),
        "email": f"{rng.choice(OTHERS).lower().replace(' ', '.')}{rng.choice(('', '7', '88'))}@{site}",
        "name": rng.choice(NAMES),
        "other": rng.choice(OTHERS),
        "brand": rng.choice(BRANDS),
    }[field]


def sentences(times: int = 5) -> list[Sentence]:
    """Each sentence of `SENTENCES` with so many fillings; the same ones every time."""
    rng, found = random.Random(60), []
    for kind, texts in SENTENCES.items():
        for text in texts.replace("\n", "|").split("|"):
            for _ in range(times if text.strip() else 0):
                filled = {field: filler(field, rng) for field in re.findall(r"\{(\w+)\}", text)}
                found.append(Sentence(text.strip().format_map(filled), kind, tuple(filled.values())))
    return found


def kept(translation: str, copied: str) -> bool:
    """Whether a translation has it whole; "15" is not in "2015", nor "a.com" in "a.community"."""
    alone = rf"(?<![{SIGNS}.,:-]){re.escape(copied)}(?![{SIGNS}]|[.,:-][A-Za-z0-9])"
    return re.search(alone, translation) is not None


def kept_whole(found: list[Sentence], translations: list[str]) -> dict[str, float]:
    """Share of the sentences that keep all they have to, in %: by kind, and of all."""
    whole: dict[str, list[bool]] = {}
    for each, translation in zip(found, translations, strict=True):
        for kind in (each.kind, "all"):
            whole.setdefault(kind, []).append(all(kept(translation, copied) for copied in each.copied))
    return {kind: 100 * sum(own) / len(own) for kind, own in whole.items()}


def main() -> None:
    """Translate and count."""
    parser = command(__doc__)
    parser.add_argument("model_folder", nargs="?", default="models/zh-en", help="of a Chinese–English model")
    parser.add_argument("--theta", type=float, help="EMIT threshold (default: the model folder's own)")
    parser.add_argument("--show", action="store_true", help="also print what is lost, with its translation")
    asked = parser.parse_args()
    found = sentences()
    try:
        translator = duplexmt.load(asked.model_folder)
        translations = translator.translate([each.text for each in found], asked.theta)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    for each, translation in zip(found, translations, strict=True):
        if asked.show and not all(kept(translation, copied) for copied in each.copied):
            print(f"{each.text}\t{translation}")
    shares = kept_whole(found, translations)
    for kind, share in shares.items():
        print(f"{kind:8} {share:5.1f} %")
    print(json.dumps({"model_folder": asked.model_folder, "theta": asked.theta or translator.theta, **shares}))


if __name__ == "__main__":
    main()
