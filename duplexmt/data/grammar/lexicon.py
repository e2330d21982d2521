"""The bilingual lexicon of the built-in grammar: data only, with the few dataclasses that hold it.

Entries stand in small tables, `;` between entries and `/` between inflected forms. `_` is a space inside an English
form, so that columns can be split at blanks. Forms that are left out are regular. A tag (`read`, `food`, `shop`, ...)
is a selectional class: a verb names the tags of the nouns it takes as object and of the places where it happens.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A common noun. `unit` is the English container of its measure word ("cup" for 一杯茶), or a pair's."""

    zh: str
    measure: str
    en: str
    plural: str
    tags: frozenset[str]
    unit: str = ""
    gender: str = ""

    @property
    def mass(self) -> bool:
        """Counted by its unit and singular by itself: tea, rice."""
        return bool(self.unit) and not self.en.endswith("s")

    @property
    def units(self) -> str:
        """Plural of the unit."""
        return _s(self.unit)


@dataclass(frozen=True)
class Verb:
    """A verb with its English forms; `tail` is what follows every form ("wait" + "for")."""

    zh: str
    base: str
    third: str
    past: str
    participle: str
    ing: str
    tail: str = ""
    objects: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Adjective:
    """An adjective; `bare` ones modify a noun without 的 (红苹果)."""

    zh: str
    en: str
    comparative: str
    tags: frozenset[str]
    bare: bool = False


@dataclass(frozen=True)
class Place:
    """A place after 在: noun, localizer ("" if none), English preposition ("" for here, there) and noun phrase."""

    zh: str
    localizer: str
    preposition: str
    en: str
    tags: frozenset[str]


@dataclass(frozen=True)
class Word:
    """Any other entry: a name, a time, an adverb, a number, a pronoun."""

    zh: str
    en: str
    tags: frozenset[str] = frozenset()


def cells(text: str) -> frozenset[str]:
    """A set of words written with blanks between them."""
    return frozenset(text.split())


def _rows(table: str) -> list[list[str]]:
    return [row.split() for row in table.split(";") if row.strip()]


def _spaced(text: str) -> str:
    return text.replace("_", " ")


def _s(word: str) -> str:
    """Regular plural of a noun, third person of a verb."""
    if word.endswith(("s", "sh", "ch", "x")):
        return word + "es"
    return word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeiou" else word + "s"


def _ed(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    return word[:-1] + "ied" if word.endswith("y") and word[-2] not in "aeiou" else word + "ed"


def _nouns(tags: str, table: str) -> tuple[Noun, ...]:
    """Rows `zh measure english[/plural][:unit]`; a gender m or f may follow."""
    nouns = []
    for zh, measure, english, *gender in _rows(table):
        forms, _, unit = _spaced(english).partition(":")
        en, _, plural = forms.partition("/")
        plural = plural or (en if unit else _s(en))
        nouns.append(Noun(zh, measure, en, plural, frozenset(tags.split()), unit, "".join(gender)))
    return tuple(nouns)


def _verbs(objects: str, places: str, table: str) -> tuple[Verb, ...]:
    """Rows `zh base[/past[/participle[/ing]]][+tail]`."""
    verbs = []
    for zh, english in _rows(table):
        forms, _, tail = english.partition("+")
        base, *irregular = forms.split("/")
        past = irregular[0] if irregular else _ed(base)
        participle = irregular[1] if len(irregular) > 1 else past
        ing = (
            irregular[2] if len(irregular) > 2 else (base[:-1] if base[-1] == "e" and base[-2] != "e" else base) + "ing"
        )
        third = {"have": "has", "go": "goes", "do": "does"}.get(base, _s(base))
        classes = frozenset(objects.split()), frozenset(places.split())
        verbs.append(Verb(zh, base, third, past, participle, ing, _spaced(tail), *classes))
    return tuple(verbs)


def _adjectives(tags: str, table: str) -> tuple[Adjective, ...]:
    """Rows `zh[+] english[/comparative]`; + marks those that need no 的, "more ..." is the regular comparative."""
    adjectives = []
    for zh, english in _rows(table):
        en, _, comparative = english.partition("/")
        comparative = comparative or f"more {en}"
        adjectives.append(Adjective(zh.rstrip("+"), en, comparative, frozenset(tags.split()), zh.endswith("+")))
    return tuple(adjectives)


def _places(tags: str, table: str) -> tuple[Place, ...]:
    """Rows `zh localizer preposition english`, with - for nothing."""
    rows = [[("" if cell == "-" else _spaced(cell)) for cell in row] for row in _rows(table)]
    return tuple(Place(zh, localizer, prep, en, frozenset(tags.split())) for zh, localizer, prep, en in rows)


def _words(table: str) -> tuple[Word, ...]:
    """Rows `zh english [tags ...]`."""
    return tuple(Word(zh, _spaced(en), frozenset(tags)) for zh, en, *tags in _rows(table))


PEOPLE = _nouns(
    "person",
    """男人 个 man/men m; 女人 个 woman/women f; 男孩 个 boy m; 女孩 个 girl f; 孩子 个 child/children;
    老人 位 old_man/old_men m; 邻居 位 neighbor; 朋友 个 friend; 同学 个 classmate; 客人 位 guest; 游客 名 tourist;
    顾客 位 customer""",
)
PROFESSIONS = _nouns(
    "person profession",
    """老师 位 teacher; 学生 个 student; 医生 位 doctor; 护士 位 nurse;
    警察 名 police_officer; 司机 名 driver; 厨师 名 chef; 服务员 名 waiter m; 作家 位 writer; 画家 位 painter;
    歌手 名 singer; 演员 名 actor m; 记者 名 reporter; 律师 位 lawyer; 工程师 名 engineer; 科学家 位 scientist;
    农民 个 farmer; 工人 名 worker; 士兵 名 soldier; 经理 位 manager; 秘书 名 secretary; 校长 位 principal;
    教授 位 professor; 音乐家 位 musician; 棒球手 名 baseball_player; 飞行员 名 pilot; 消防员 名 firefighter;
    渔夫 个 fisherman/fishermen m; 导游 名 tour_guide; 理发师 位 barber; 邮递员 名 mail_carrier;
    足球运动员 名 soccer_player""",
)
KIN = _nouns(
    "person kin",
    """爸爸 位 father m; 妈妈 位 mother f; 爷爷 位 grandfather m; 奶奶 位 grandmother f;
    哥哥 个 older_brother m; 姐姐 个 older_sister f; 弟弟 个 younger_brother m; 妹妹 个 younger_sister f;
    叔叔 位 uncle m; 阿姨 位 aunt f""",
)
NAMES = _words("""小明 Xiaoming m; 小红 Xiaohong f; 李明 Li_Ming m; 王芳 Wang_Fang f; 约翰 John m; 玛丽 Mary f;
    汤姆 Tom m; 安娜 Anna f; 彼得 Peter m; 露西 Lucy f""")
# English is "subject object possessive".
PRONOUNS = _words("""我 I_me_my 1sg; 你 you_you_your pl; 他 he_him_his 3sg m; 她 she_her_her 3sg f; 我们 we_us_our pl;
    你们 you_you_your pl; 他们 they_them_their pl""")

THINGS = (
    *_nouns(
        "read book carry buy", "书 本 book; 杂志 本 magazine; 小说 本 novel; 词典 本 dictionary; 报纸 份 newspaper"
    ),
    *_nouns("read write", "故事 个 story; 诗 首 poem; 文章 篇 article; 报告 份 report"),
    *_nouns("read write carry mail", "信 封 letter"),
    *_nouns(
        "food fruit buy",
        """苹果 个 apple; 香蕉 根 banana; 橘子 个 orange; 西瓜 个 watermelon; 梨 个 pear;
        桃子 个 peach; 草莓 颗 strawberry; 西红柿 个 tomato/tomatoes""",
    ),
    *_nouns(
        "food cook buy",
        """三明治 个 sandwich; 汉堡 个 hamburger; 饺子 个 dumpling; 包子 个 steamed_bun; 蛋糕 个 cake;
        鸡蛋 个 egg; 饼干 块 cookie; 面条 碗 noodles:bowl; 米饭 碗 rice:bowl""",
    ),
    *_nouns(
        "drink buy",
        "水 杯 water:glass; 牛奶 杯 milk:glass; 果汁 杯 juice:glass; 茶 杯 tea:cup; 咖啡 杯 coffee:cup; "
        "啤酒 瓶 beer:bottle",
    ),
    *_nouns(
        "clothes wear wash buy",
        "衬衫 件 shirt; 外套 件 coat; 毛衣 件 sweater; 裙子 条 skirt; 裤子 条 pants:pair; 鞋 双 shoes:pair",
    ),
    *_nouns(
        "clothes put_on buy carry", "帽子 顶 hat; 围巾 条 scarf/scarves; 眼镜 副 glasses:pair; 手套 双 gloves:pair"
    ),
    *_nouns("vehicle repair buy", "汽车 辆 car; 卡车 辆 truck"),
    *_nouns("vehicle ride repair buy", "自行车 辆 bicycle; 摩托车 辆 motorcycle"),
    *_nouns(
        "device repair buy",
        "电视 台 television; 空调 台 air_conditioner; 洗衣机 台 washing_machine; 冰箱 台 refrigerator",
    ),
    *_nouns("device repair buy carry", "手机 部 phone; 电脑 台 computer; 相机 台 camera"),
    *_nouns("furniture buy", "桌子 张 table; 椅子 把 chair; 床 张 bed; 沙发 张 sofa"),
    *_nouns("fragile wash buy", "杯子 个 cup; 盘子 个 plate; 碗 个 bowl; 瓶子 个 bottle"),
    *_nouns("fragile buy", "花瓶 个 vase; 镜子 面 mirror; 灯 盏 lamp"),
    *_nouns("open", "门 扇 door; 窗户 扇 window"),
    *_nouns("open carry buy", "盒子 个 box; 箱子 个 suitcase; 书包 个 schoolbag; 钱包 个 wallet"),
    *_nouns(
        "carry buy",
        "钥匙 把 key; 雨伞 把 umbrella; 手表 块 watch; 票 张 ticket; 地图 张 map; 刀 把 knife/knives; 吉他 把 guitar",
    ),
    *_nouns("carry mail buy", "礼物 份 gift; 玩具 个 toy; 球 个 ball"),
    *_nouns("carry mail photo", "照片 张 photo"),
    *_nouns("carry picture buy", "画 幅 painting"),
    *_nouns("song", "歌 首 song"),
    *_nouns("film", "电影 部 movie; 节目 个 program"),
    *_nouns("plant view buy", "花 朵 flower"),
    *_nouns("plant view", "树 棵 tree"),
    *_nouns("building view", "房子 座 house; 桥 座 bridge"),
    *_nouns("topic", "问题 个 question; 计划 个 plan; 建议 个 suggestion"),
)
ANIMALS = (
    *_nouns("animal pet view", "猫 只 cat; 狗 只 dog; 兔子 只 rabbit; 鸟 只 bird"),
    *_nouns(
        "animal farm view",
        "马 匹 horse; 牛 头 cow; 羊 只 sheep/sheep; 鸡 只 chicken; 鸭子 只 duck; 猪 头 pig; 鹅 只 goose/geese",
    ),
    *_nouns(
        "animal wild view",
        "猴子 只 monkey; 老虎 只 tiger; 大象 头 elephant; 熊猫 只 panda; 狼 只 wolf/wolves; 老鼠 只 mouse/mice",
    ),
)
NOUNS = (*PEOPLE, *PROFESSIONS, *KIN, *THINGS, *ANIMALS)

PLACES = (
    *_places("out public go", "公园 里 in the_park; 操场 上 on the_playground"),
    *_places("out go garden", "花园 里 in the_garden; 农场 里 on the_farm; 村子 里 in the_village"),
    *_places("out public", "街 上 on the_street; 山 上 on the_mountain"),
    *_places("out water", "海边 - by the_sea; 河边 - by the_river; 湖边 - by the_lake"),
    *_places("study go", "图书馆 里 in the_library; 教室 里 in the_classroom; 学校 里 at school"),
    *_places(
        "work go", "办公室 里 in the_office; 医院 里 in the_hospital; 工厂 里 in the_factory; 银行 里 at the_bank"
    ),
    *_places("eat public go", "饭馆 里 in the_restaurant; 咖啡馆 里 in the_cafe; 食堂 里 in the_cafeteria"),
    *_places("shop public go", "超市 里 at the_supermarket; 商店 里 at the_store; 市场 里 at the_market"),
    *_places("home eat study", "家 里 at home; 房间 里 in the_room; 客厅 里 in the_living_room"),
    *_places("home cook eat", "厨房 里 in the_kitchen"),
    *_places("public go", "车站 - at the_station; 机场 - at the_airport; 酒店 里 at the_hotel"),
    *_places("public go sight", "博物馆 里 in the_museum; 动物园 里 in the_zoo; 电影院 里 at the_cinema"),
    *_places(
        "city public work go sight",
        "北京 - in Beijing; 上海 - in Shanghai; 广州 - in Guangzhou; 巴黎 - in Paris; "
        "伦敦 - in London; 纽约 - in New_York; 东京 - in Tokyo",
    ),
    *_places("near public", "那边 - - there; 这里 - - here; 外面 - - outside"),
)
SURFACES = _places(
    "surface",
    """桌子 上 on the_table; 椅子 上 on the_chair; 床 上 on the_bed; 沙发 上 on the_sofa;
    书架 上 on the_shelf; 地板 上 on the_floor; 书包 里 in the_schoolbag; 箱子 里 in the_suitcase;
    抽屉 里 in the_drawer; 车 里 in the_car""",
)
TRANSPORT = _words("""火车 by_train far; 飞机 by_plane far; 船 by_boat far; 公共汽车 by_bus far near;
    出租车 by_taxi near; 地铁 by_subway near""")

PAST_TIMES = _words("""昨天 yesterday; 前天 the_day_before_yesterday; 昨天晚上 last_night; 昨天下午 yesterday_afternoon;
    今天早上 this_morning; 上周 last_week ago; 上个月 last_month long ago; 去年 last_year long ago;
    三天前 three_days_ago; 刚才 just_now; 去年夏天 last_summer long ago; 上周日 last_Sunday""")
FUTURE_TIMES = _words("""明天 tomorrow; 后天 the_day_after_tomorrow; 今晚 tonight; 明天早上 tomorrow_morning;
    下周 next_week; 下个月 next_month long; 明年 next_year long; 明年春天 next_spring long; 下周一 next_Monday;
    这个周末 this_weekend""")
HABIT_TIMES = _words("""每天 every_day; 每天早上 every_morning; 每天晚上 every_evening; 每周 every_week;
    每个周末 every_weekend; 每年夏天 every_summer long; 每周五 every_Friday""")
FREQUENCIES = _words("常常 often; 总是 always; 有时 sometimes; 通常 usually; 从不 never; 很少 rarely")
DEGREES = _words("很 very; 非常 extremely; 真 really; 有点儿 a_little; 比较 fairly; 太 too")
MANNERS = _words("""慢慢地 slowly move eat; 安静地 quietly study rest eat; 高兴地 happily fun;
    认真地 carefully study work; 大声地 loudly voice; 努力地 hard effort; 独自 alone move study eat rest;
    开心地 cheerfully fun""")
NUMBERS = _words("两 two; 三 three; 四 four; 五 five; 六 six; 七 seven; 八 eight; 九 nine; 十 ten; 几 several")
WEATHER = _verbs("", "", "下雨 rain; 下雪 snow")
MODALS = _words("会 will; 不会 will_not; 可以 can; 不能 cannot; 应该 should; 不应该 should_not; 必须 must")

ADJECTIVES = (
    *_adjectives(
        "person",
        "聪明 smart/smarter; 年轻 young/younger; 善良 kind/kinder; 勇敢 brave/braver; 诚实 honest; "
        "有名 famous; 友好 friendly/friendlier; 耐心 patient; 强壮 strong/stronger; 幽默 humorous",
    ),
    *_adjectives("compare", "高 tall/taller"),
    *_adjectives("state", "累 tired; 忙 busy; 饿 hungry; 渴 thirsty; 生气 angry; 紧张 nervous; 难过 sad"),
    *_adjectives("animal fragile furniture building vehicle fruit plant", "大+ big/bigger; 小+ small/smaller"),
    *_adjectives(
        "book clothes vehicle device furniture fragile",
        "新+ new/newer; 旧+ old/older; 贵 expensive; 便宜 cheap/cheaper",
    ),
    *_adjectives("clothes vehicle fragile", "红+ red; 蓝+ blue; 黄+ yellow"),
    *_adjectives("pet clothes vehicle", "白+ white; 黑+ black"),
    *_adjectives("clothes plant building picture fragile", "漂亮 beautiful"),
    *_adjectives("pet farm", "可爱 cute/cuter"),
    *_adjectives("read film", "有趣 interesting; 无聊 boring; 感人 moving"),
    *_adjectives("topic", "重要 important; 简单 simple/simpler; 奇怪 strange/stranger"),
    *_adjectives("food", "好吃 delicious"),
    *_adjectives("fruit", "新鲜 fresh/fresher; 甜 sweet/sweeter"),
    *_adjectives("wear furniture", "舒服 comfortable"),
    *_adjectives("wash wear", "干净 clean/cleaner; 脏 dirty/dirtier"),
)

TRANSITIVE = (
    *_verbs("buy", "shop", "买 buy/bought; 挑选 choose/chose/chosen"),
    *_verbs("book", "study", "借 borrow"),
    *_verbs("read", "study", "读 read/read"),
    *_verbs("write", "study work", "写 write/wrote/written; 翻译 translate; 修改 revise"),
    *_verbs("food", "eat", "吃 eat/ate/eaten"),
    *_verbs("drink", "eat", "喝 drink/drank/drunk"),
    *_verbs("cook", "cook home", "做 make/made; 准备 prepare"),
    *_verbs("wash", "home", "洗 wash"),
    *_verbs("repair", "home", "修理 repair; 检查 check"),
    *_verbs("film", "home", "看 watch"),
    *_verbs("song", "out", "唱 sing/sang/sung; 听 listen+to"),
    *_verbs("ride", "out", "骑 ride/rode/ridden/riding"),
    *_verbs("photo", "out city", "拍 take/took/taken"),
    *_verbs("view", "out", "画 draw/drew/drawn"),
    *_verbs("plant", "garden", "种 plant"),
    *_verbs("fruit", "garden", "摘 pick"),
    *_verbs("topic", "work study", "讨论 discuss; 研究 study/studied"),
    *_verbs("person animal", "public out", "看见 see/saw/seen; 寻找 look+for"),
    *_verbs("person animal", "home", "照顾 take/took/taken+care_of"),
    *_verbs("person", "public", "遇见 meet/met; 帮助 help; 采访 interview; 等 wait+for; 感谢 thank"),
    *_verbs("pet farm", "home garden", "喂 feed/fed"),
    *_verbs("carry", "public", "找到 find/found; 弄丢 lose/lost/lost/losing"),
    *_verbs("mail", "work", "寄 send/sent; 收到 receive"),
)
STATIVE = (
    *_verbs("read film song food drink pet clothes picture", "", "喜欢 like"),
    *_verbs("read film song food drink pet", "", "讨厌 hate; 爱 love"),
    *_verbs("clothes device furniture book vehicle", "", "需要 need; 想要 want"),
    *_verbs("person", "", "认识 know/knew/known; 尊敬 respect; 信任 trust; 想念 miss; 了解 understand/understood"),
    *_verbs("wild pet", "", "害怕 fear"),
    *_verbs("book clothes vehicle device pet", "", "有 have/had"),
)
# Tags in the object slot of an intransitive verb are the manners that fit it.
INTRANSITIVE = (
    *_verbs("rest", "home", "睡觉 sleep/slept; 休息 rest; 看电视 watch+television; 上网 go/went/gone+online"),
    *_verbs("move", "out", "跑步 run/ran/run/running; 散步 take/took/taken+a_walk"),
    *_verbs("move fun", "water", "游泳 swim/swam/swum/swimming; 钓鱼 fish"),
    *_verbs("voice fun", "out", "唱歌 sing/sang/sung"),
    *_verbs(
        "fun",
        "out",
        "跳舞 dance; 玩耍 play; 打篮球 play+basketball; 踢足球 play+soccer; 打网球 play+tennis; "
        "放风筝 fly/flew/flown+kites",
    ),
    *_verbs("fun", "out home", "聊天 chat/chatted/chatted/chatting; 下棋 play+chess; 画画 paint"),
    *_verbs("effort", "work", "工作 work"),
    *_verbs("", "work", "开会 have/had+a_meeting"),
    *_verbs("effort study", "study", "学习 study; 练习英语 practice+English"),
    *_verbs("study", "study home", "写作业 do/did/done+homework"),
    *_verbs("effort", "out", "锻炼 exercise"),
    *_verbs("voice", "home public", "哭 cry; 笑 laugh; 说话 talk; 打电话 make/made+phone_calls"),
    *_verbs("eat", "eat", "吃饭 have/had+a_meal"),
    *_verbs("fun", "cook", "做饭 cook"),
    *_verbs("fun", "home", "弹钢琴 play+the_piano; 弹吉他 play+the_guitar; 拉小提琴 play+the_violin"),
    *_verbs("rest", "public", "排队 wait+in_line"),
    *_verbs("fun", "public out", "拍照 take/took/taken+photos"),
    *_verbs("fun", "city", "旅行 travel"),
)
POSTURES = _verbs(
    "",
    "",
    """站 stand/stood; 坐 sit/sat/sat/sitting; 躺 lie/lay/lain/lying; 住 live; 睡 sleep/slept;
    蹲 squat/squatted/squatted/squatting""",
)
# Verb + 着 + object + 的 + noun: the girl wearing a red skirt.
DURATIVE = (
    *_verbs("wear", "", "穿着 wear/wore/worn"),
    *_verbs("put_on", "", "戴着 wear/wore/worn"),
    *_verbs("carry", "", "拿着 hold/held"),
    *_verbs("ride", "", "骑着 ride/rode/ridden"),
    *_verbs("pet", "", "抱着 hold/held"),
)
MOTION = (*_verbs("go", "", "去 go/went/gone+to; 离开 leave/left"), *_verbs("sight", "", "参观 visit"))
# Verbs of a moment, kept to the past: one does not plan to lose something.
PUNCTUAL = frozenset(["看见", "遇见", "找到", "弄丢", "收到", "离开"])
# Verbs of a day: they go with no time like last summer.
DAILY = cells(
    """吃 喝 洗 喂 等 哭 笑 说话 打电话 排队 拍照 睡觉 休息 看电视 上网 散步 吃饭 做饭 写作业 聊天 做 准备 检查 摘 听 唱
    放风筝 下棋 寻找 看 骑 拍 玩耍 帮助 感谢 开会"""
)
# Verbs of an occasion: not what one does every day.
OCCASIONAL = cells("修理 检查 挑选 种 感谢")
# Things one speaks of in general, without determiner: apples, tea, novels.
GENERIC = cells("read food drink film song clothes plant pet wild photo ride")
# Things that fit in no bag or drawer.
BULKY = cells("吉他 雨伞 箱子 书包 电脑 球 盒子 画")
# Verb-result compounds: what 把 and 被 want.
RESULTS = (
    *_verbs("fragile", "", "打碎 break/broke/broken"),
    *_verbs("device vehicle", "", "弄坏 damage; 修好 fix"),
    *_verbs("vehicle device furniture picture", "", "卖掉 sell/sold"),
    *_verbs("carry vehicle", "", "偷走 steal/stole/stolen"),
    *_verbs("carry", "", "藏起来 hide/hid/hidden; 拿走 take/took/taken+away; 找回来 recover"),
    *_verbs("book device clothes", "", "扔掉 throw/threw/thrown+away"),
    *_verbs("book", "", "借走 borrow"),
    *_verbs("food", "", "吃掉 eat/ate/eaten"),
    *_verbs("drink", "", "喝光 drink/drank/drunk"),
    *_verbs("wash", "", "洗干净 wash"),
    *_verbs("open", "", "打开 open; 关上 close"),
)
# Done to a person (or an animal) in a 被 sentence.
SUFFERED = (
    *_verbs(
        "person", "", "批评 criticize; 表扬 praise; 骗 deceive; 打 hit/hit/hit/hitting; 认出 recognize; 邀请 invite"
    ),
    *_verbs("person animal", "", "救 rescue; 带走 take/took/taken+away; 发现 discover; 抓住 catch/caught"),
)
ATTACKS = _verbs("person", "", "咬 bite/bit/bitten; 追赶 chase; 吓到 frighten")
# 把 + thing + verb + recipient.
TRANSFERS = _verbs(
    "carry",
    "",
    """送给 give/gave/given+to; 借给 lend/lent+to; 寄给 send/sent+to; 还给 return+to;
    交给 hand+to""",
)
# 把 + thing + verb + place.
PLACEMENTS = _verbs("carry book clothes", "", "放在 put/put/put/putting; 忘在 leave/left; 藏在 hide/hid/hidden")
OPINIONS = _verbs("", "", "说 say; 觉得 think; 相信 believe; 知道 know; 告诉我们 tell+us")
LACKS = _words("时间 time; 钱 money; 机会 opportunity")
WANTS = _verbs("", "", "想 want+to; 打算 plan+to; 希望 hope+to")
STAY = _verbs("", "", "待 stay")
