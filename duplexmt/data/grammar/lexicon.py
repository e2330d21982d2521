"""The bilingual lexicon of the built-in grammar: data only, with the few dataclasses that hold it.

A line of a table is `classes: entry; entry; …`, without classes it has those of the line above. An entry's columns are
split at blanks, `_` is a space inside an English form, forms that are left out are regular. A class (`read`, `food`,
`shop`, …) is what verbs select: the nouns they take as object before `>`, the places where they happen behind it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

Classes = frozenset[str]


@dataclass(frozen=True)
class Word:
    """Any entry; `more` is an adjective's comparative, or the localizer of a place after 在 (里 of 公园里).

    The English of a place begins with its preposition, with a blank where it has none (there).
    """

    zh: str
    en: str
    tags: Classes = frozenset()
    more: str = ""


@dataclass(frozen=True)
class Noun(Word):
    """A common noun; one with a `unit`, the English of its measure word ("cup" for 一杯茶), is a mass."""

    measure: str = ""
    plural: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Verb(Word):
    """A verb, `en` its base; `tail` is what follows every form ("wait" + "for"), `places` where it happens."""

    past: str = ""
    participle: str = ""
    ing: str = ""
    tail: str = ""
    places: Classes = frozenset()


def cells(text: str) -> Classes:
    """A set of words written with blanks between them."""
    return frozenset(text.split())


def s_form(word: str) -> str:
    """Regular plural of a noun, third person of a verb."""
    if word in ("have", "go", "do"):
        return {"have": "has", "go": "goes", "do": "does"}[word]
    if word.endswith(("s", "sh", "ch", "x")):
        return word + "es"
    return word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeiou" else word + "s"


def _ed(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    return word[:-1] + "ied" if word.endswith("y") and word[-2] not in "aeiou" else word + "ed"


def _rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Classes and columns of each entry, with - for nothing."""
    classes = ""
    for line in table.splitlines():
        given, colon, entries = line.rpartition(": ")
        classes = given if colon else classes
        for entry in entries.split(";"):
            yield classes, [("" if cell == "-" else cell.replace("_", " ")) for cell in entry.split()]


def _words(table: str) -> tuple[Word, ...]:
    """Entries `zh english[:more] [class ...]`."""
    words = []
    for classes, (zh, english, *tags) in _rows(table):
        en, _, more = english.partition(":")
        words.append(Word(zh, en, cells(classes) | {*tags}, more))
    return tuple(words)


def _nouns(table: str) -> tuple[Noun, ...]:
    """Entries `zh measure english[/plural] [class]`, of a mass `zh measure english/unit mass`."""
    nouns = []
    for classes, (zh, measure, english, *more) in _rows(table):
        en, _, second = english.partition("/")
        tags = cells(classes) | {*more}
        forms = (en, second) if "mass" in tags else (second or s_form(en), "")
        nouns.append(Noun(zh, en, tags, "", measure, *forms))
    return tuple(nouns)


def _verbs(table: str) -> tuple[Verb, ...]:
    """Entries `zh base[/past[/participle[/ing]]][+tail]`."""
    verbs = []
    for classes, (zh, english) in _rows(table):
        objects, _, places = classes.partition(">")
        forms, _, tail = english.partition("+")
        base, *irregular = forms.split("/")
        past, participle, ing = (*irregular, "", "", "")[:3]
        past = past or _ed(base)
        ing = ing or (base[:-1] if base[-1] == "e" and base[-2] != "e" else base) + "ing"
        verbs.append(Verb(zh, base, cells(objects), "", past, participle or past, ing, tail, cells(places)))
    return tuple(verbs)


PEOPLE = _nouns("""person: 男人 个 man/men; 女人 个 woman/women; 男孩 个 boy; 女孩 个 girl; 孩子 个 child/children
    老人 位 old_man/old_men; 邻居 位 neighbor; 朋友 个 friend; 同学 个 classmate; 客人 位 guest; 游客 名 tourist
    顾客 位 customer""")
PROFESSIONS = _nouns("""person: 老师 位 teacher; 学生 个 student; 医生 位 doctor; 护士 位 nurse
    警察 名 police_officer; 司机 名 driver; 厨师 名 chef; 服务员 名 waiter; 作家 位 writer; 画家 位 painter
    歌手 名 singer; 演员 名 actor; 记者 名 reporter; 律师 位 lawyer; 工程师 名 engineer; 科学家 位 scientist
    农民 个 farmer; 工人 名 worker; 士兵 名 soldier; 经理 位 manager; 秘书 名 secretary; 校长 位 principal
    教授 位 professor; 音乐家 位 musician; 棒球手 名 baseball_player; 飞行员 名 pilot; 消防员 名 firefighter
    渔夫 个 fisherman/fishermen; 导游 名 tour_guide; 理发师 位 barber; 邮递员 名 mail_carrier
    足球运动员 名 soccer_player""")
KIN = _nouns("""person: 爸爸 位 father; 妈妈 位 mother; 爷爷 位 grandfather; 奶奶 位 grandmother
    哥哥 个 older_brother; 姐姐 个 older_sister; 弟弟 个 younger_brother; 妹妹 个 younger_sister; 叔叔 位 uncle
    阿姨 位 aunt""")
NAMES = _words("""小明 Xiaoming; 小红 Xiaohong; 李明 Li_Ming; 王芳 Wang_Fang; 约翰 John; 玛丽 Mary; 汤姆 Tom
    安娜 Anna; 彼得 Peter; 露西 Lucy""")
# English is "subject object possessive".
PRONOUNS = _words("""我 I_me_my 1sg; 你 you_you_your pl; 他 he_him_his 3sg; 她 she_her_her 3sg; 我们 we_us_our pl
    你们 you_you_your pl; 他们 they_them_their pl""")
THINGS = _nouns("""read book carry buy: 书 本 book; 杂志 本 magazine; 小说 本 novel; 词典 本 dictionary
    报纸 份 newspaper
    read write: 故事 个 story; 诗 首 poem; 文章 篇 article; 报告 份 report
    read write carry mail: 信 封 letter
    food fruit buy: 苹果 个 apple; 香蕉 根 banana; 橘子 个 orange; 西瓜 个 watermelon; 梨 个 pear; 桃子 个 peach
    草莓 颗 strawberry; 西红柿 个 tomato/tomatoes
    food cook buy: 三明治 个 sandwich; 汉堡 个 hamburger; 饺子 个 dumpling; 包子 个 steamed_bun; 蛋糕 个 cake
    鸡蛋 个 egg; 饼干 块 cookie; 米饭 碗 rice/bowl mass
    drink buy: 水 杯 water/glass mass; 牛奶 杯 milk/glass mass; 果汁 杯 juice/glass mass; 茶 杯 tea/cup mass
    咖啡 杯 coffee/cup mass; 啤酒 瓶 beer/bottle mass
    clothes wear wash buy: 衬衫 件 shirt; 外套 件 coat; 毛衣 件 sweater; 裙子 条 skirt
    clothes put_on buy carry: 帽子 顶 hat; 围巾 条 scarf/scarves
    vehicle repair buy: 汽车 辆 car; 卡车 辆 truck
    vehicle ride repair buy: 自行车 辆 bicycle; 摩托车 辆 motorcycle
    device repair buy: 电视 台 television; 空调 台 air_conditioner; 洗衣机 台 washing_machine; 冰箱 台 refrigerator
    device repair buy carry: 手机 部 phone; 电脑 台 computer; 相机 台 camera
    furniture buy: 桌子 张 table; 椅子 把 chair; 床 张 bed; 沙发 张 sofa
    fragile wash buy: 杯子 个 cup; 盘子 个 plate; 碗 个 bowl; 瓶子 个 bottle
    fragile buy: 花瓶 个 vase; 镜子 面 mirror; 灯 盏 lamp
    open: 门 扇 door; 窗户 扇 window
    open carry buy: 盒子 个 box; 箱子 个 suitcase; 书包 个 schoolbag; 钱包 个 wallet
    carry buy: 钥匙 把 key; 雨伞 把 umbrella; 手表 块 watch; 票 张 ticket; 地图 张 map; 刀 把 knife/knives
    吉他 把 guitar
    carry mail buy: 礼物 份 gift; 玩具 个 toy; 球 个 ball
    carry mail photo: 照片 张 photo
    carry picture buy: 画 幅 painting
    song: 歌 首 song
    film: 电影 部 movie; 节目 个 program
    plant view buy: 花 朵 flower; 树 棵 tree""")
ANIMALS = _nouns("""animal pet view: 猫 只 cat; 狗 只 dog; 兔子 只 rabbit; 鸟 只 bird
    animal farm view: 马 匹 horse; 牛 头 cow; 羊 只 sheep/sheep; 鸡 只 chicken; 鸭子 只 duck; 猪 头 pig
    鹅 只 goose/geese
    animal wild view: 猴子 只 monkey; 老虎 只 tiger; 大象 头 elephant; 熊猫 只 panda; 狼 只 wolf/wolves
    老鼠 只 mouse/mice""")
NOUNS = (*PEOPLE, *PROFESSIONS, *KIN, *THINGS, *ANIMALS)
PLACES = _words("""out public go: 公园 in_the_park:里; 操场 on_the_playground:上
    out go garden: 花园 in_the_garden:里; 农场 on_the_farm:里; 村子 in_the_village:里
    out public: 街 on_the_street:上; 山 on_the_mountain:上
    out water: 海边 by_the_sea; 河边 by_the_river; 湖边 by_the_lake
    study go: 图书馆 in_the_library:里; 教室 in_the_classroom:里; 学校 at_school:里
    work go: 办公室 in_the_office:里; 医院 in_the_hospital:里; 工厂 in_the_factory:里; 银行 at_the_bank:里
    eat public go: 饭馆 in_the_restaurant:里; 咖啡馆 in_the_cafe:里; 食堂 in_the_cafeteria:里
    shop public go: 超市 at_the_supermarket:里; 商店 at_the_store:里; 市场 at_the_market:里
    home eat study: 家 at_home:里; 房间 in_the_room:里; 客厅 in_the_living_room:里
    home cook eat: 厨房 in_the_kitchen:里
    public go: 车站 at_the_station; 机场 at_the_airport; 酒店 at_the_hotel:里
    public go sight: 博物馆 in_the_museum:里; 动物园 in_the_zoo:里; 电影院 at_the_cinema:里
    city public work go sight: 北京 in_Beijing; 上海 in_Shanghai; 广州 in_Guangzhou; 巴黎 in_Paris; 伦敦 in_London
    纽约 in_New_York; 东京 in_Tokyo
    near public: 那边 _there; 这里 _here; 外面 _outside""")
OUTSIDE = tuple(place for place in PLACES if "out" in place.tags)
SURFACES = _words("""surface: 桌子 on_the_table:上; 椅子 on_the_chair:上; 床 on_the_bed:上; 沙发 on_the_sofa:上
    书架 on_the_shelf:上; 地板 on_the_floor:上; 书包 in_the_schoolbag:里; 箱子 in_the_suitcase:里
    抽屉 in_the_drawer:里; 车 in_the_car:里""")
TRANSPORT = _words("""火车 by_train far; 飞机 by_plane far; 船 by_boat far; 公共汽车 by_bus far near
    出租车 by_taxi near; 地铁 by_subway near""")
PAST_TIMES = _words("""昨天 yesterday; 前天 the_day_before_yesterday; 昨天晚上 last_night
    昨天下午 yesterday_afternoon; 今天早上 this_morning; 上周 last_week; 三天前 three_days_ago; 刚才 just_now
    上周日 last_Sunday""")
FUTURE_TIMES = _words("""明天 tomorrow; 后天 the_day_after_tomorrow; 今晚 tonight; 明天早上 tomorrow_morning
    下周 next_week; 下周一 next_Monday; 这个周末 this_weekend""")
HABIT_TIMES = _words("""每天 every_day; 每天早上 every_morning; 每天晚上 every_evening; 每周 every_week
    每个周末 every_weekend; 每周五 every_Friday""")
FREQUENCIES = _words("常常 often; 总是 always; 有时 sometimes; 通常 usually; 从不 never; 很少 rarely")
DEGREES = _words("很 very; 非常 extremely; 真 really; 有点儿 a_little; 比较 fairly")
MANNERS = _words("""慢慢地 slowly move food drink; 安静地 quietly study rest read; 高兴地 happily fun song
    认真地 carefully study read write; 大声地 loudly voice; 努力地 hard effort; 独自 alone move study rest
    开心地 cheerfully fun song""")
NUMBERS = _words("两 two; 三 three; 四 four; 五 five; 六 six; 七 seven; 八 eight; 九 nine; 十 ten; 几 several")
# What stands before the verb and makes its tense: English auxiliary and adverb.
NOT_DONE = _words("没 did_not")
DOING = _words("正在 be")
DONE = _words("已经 have_already")
FUTURE = _words("会 will; 会 will; 不会 will_not")
THEN = _words("就会 will; 就不会 will_not")
MODALS = _words("可以 can; 不能 cannot; 应该 should; 不应该 should_not; 必须 must")
WANTS = _words("想 want_to; 打算 plan_to; 希望 hope_to; 不想 do_not_want_to")
NOT = _words("不 do_not")
DID, DO, UNMARKED = _words("- did"), _words("- do"), (Word("", ""),)
AUXILIARIES = cells("am is are have has do does did will can cannot should must")
ADJECTIVES = _words("""person: 聪明 smart:smarter; 年轻 young:younger; 善良 kind:kinder; 勇敢 brave:braver
    诚实 honest; 有名 famous; 友好 friendly:friendlier; 耐心 patient; 强壮 strong:stronger; 幽默 humorous
    compare: 高 tall:taller
    state: 累 tired; 忙 busy; 饿 hungry; 渴 thirsty; 生气 angry; 紧张 nervous; 难过 sad
    animal fragile furniture vehicle plant: 大 big:bigger bare; 小 small:smaller bare
    book clothes vehicle device furniture fragile: 新 new:newer bare; 旧 old:older bare; 贵 expensive
    便宜 cheap:cheaper
    clothes vehicle fragile: 红 red bare; 蓝 blue bare; 黄 yellow bare
    pet clothes vehicle: 白 white bare; 黑 black bare
    clothes plant picture fragile: 漂亮 beautiful
    read film: 有趣 interesting; 无聊 boring; 感人 moving
    food: 好吃 delicious
    wash wear: 干净 clean:cleaner; 脏 dirty:dirtier""")
TRANSITIVE = _verbs("""buy > shop: 买 buy/bought; 挑选 choose/chose/chosen
    book > study: 借 borrow
    read > study: 读 read/read
    write > study work: 写 write/wrote/written; 翻译 translate; 修改 revise
    food > eat: 吃 eat/ate/eaten
    drink > eat: 喝 drink/drank/drunk
    cook > cook home: 做 make/made; 准备 prepare
    wash > home: 洗 wash
    repair > home: 修理 repair; 检查 check
    film > home: 看 watch
    song > out: 唱 sing/sang/sung; 听 listen+to
    ride > out: 骑 ride/rode/ridden/riding
    photo > out city: 拍 take/took/taken
    view > out: 画 draw/drew/drawn
    person animal > public out: 看见 see/saw/seen; 寻找 look+for
    person animal > home: 照顾 take/took/taken+care_of
    person > public: 遇见 meet/met; 帮助 help; 采访 interview; 等 wait+for; 感谢 thank
    pet farm > home garden: 喂 feed/fed
    carry > public: 找到 find/found; 弄丢 lose/lost/lost/losing
    mail > work: 寄 send/sent; 收到 receive""")
STATIVE = _verbs("""read film song food drink pet clothes picture: 喜欢 like
    read film song food drink pet: 讨厌 hate; 爱 love
    clothes device furniture book vehicle: 需要 need; 想要 want
    person: 认识 know/knew/known; 尊敬 respect; 信任 trust; 想念 miss; 了解 understand/understood
    wild pet: 害怕 fear
    book clothes vehicle device pet: 有 have/had""")
# Before `>` stand the manners that fit an intransitive verb.
INTRANSITIVE = _verbs("""rest > home: 睡觉 sleep/slept; 休息 rest; 看电视 watch+television; 上网 go/went/gone+online
    move > out water: 跑步 run/ran/run/running; 散步 take/took/taken+a_walk; 游泳 swim/swam/swum/swimming; 钓鱼 fish
    fun > out: 跳舞 dance; 玩耍 play; 打篮球 play+basketball; 踢足球 play+soccer; 打网球 play+tennis
    放风筝 fly/flew/flown+kites
    fun > out home: 聊天 chat/chatted/chatted/chatting; 下棋 play+chess; 画画 paint
    effort > work: 工作 work
    effort study > study: 学习 study; 练习英语 practice+English
    study > study home: 写作业 do/did/done+homework
    voice > home public: 哭 cry; 笑 laugh; 说话 talk; 打电话 make/made+phone_calls
    fun > cook: 做饭 cook
    fun > home: 弹钢琴 play+the_piano; 弹吉他 play+the_guitar; 拉小提琴 play+the_violin
    fun > public out: 拍照 take/took/taken+photos
    fun > city: 旅行 travel""")
POSTURES = _verbs("""> near out public water: 站 stand/stood; 坐 sit/sat/sat/sitting
    蹲 squat/squatted/squatted/squatting
    > near out: 躺 lie/lay/lain/lying
    > near city: 住 live""")
# Verb + 着 + object + 的 + noun: the girl wearing a red skirt.
DURATIVE = _verbs("""wear: 穿着 wear/wore/worn
    put_on: 戴着 wear/wore/worn
    carry: 拿着 hold/held
    ride: 骑着 ride/rode/ridden
    pet: 抱着 hold/held""")
MOTION = _verbs("""go: 去 go/went/gone+to; 离开 leave/left
    sight: 参观 visit""")
# Verbs of a moment, kept to the past: one does not plan to lose something.
PUNCTUAL = cells("看见 遇见 找到 弄丢 收到 离开")
# Verbs of an occasion: not what one does every day.
OCCASIONAL = cells("修理 检查 挑选 感谢")
# Things one speaks of in general, without determiner: apples, tea, novels.
GENERIC = cells("read food drink film song clothes plant pet wild photo ride")
WEATHER = _verbs("下雨 rain; 下雪 snow")
# Things whose maker, buyer or reader is told: the book my mother bought.
MADE = cells("buy book read write cook wash repair film song ride photo mail")
# Verb-result compounds: what 把 and 被 want.
RESULTS = _verbs("""fragile: 打碎 break/broke/broken
    device vehicle: 弄坏 damage; 修好 fix
    vehicle device furniture picture: 卖掉 sell/sold
    carry vehicle: 偷走 steal/stole/stolen
    carry: 藏起来 hide/hid/hidden; 拿走 take/took/taken+away; 找回来 recover
    book device clothes: 扔掉 throw/threw/thrown+away
    book: 借走 borrow
    food: 吃掉 eat/ate/eaten
    drink: 喝光 drink/drank/drunk
    wash: 洗干净 wash
    open: 打开 open; 关上 close""")
# Done to a person (or an animal) in a 被 sentence.
SUFFERED = _verbs("""person: 批评 criticize; 表扬 praise; 骗 deceive; 打 hit/hit/hit/hitting; 认出 recognize
    邀请 invite
    person animal: 救 rescue; 带走 take/took/taken+away; 发现 discover; 抓住 catch/caught""")
ATTACKS = _verbs("person: 咬 bite/bit/bitten; 追赶 chase; 吓到 frighten")
# 把 + thing + verb + recipient.
TRANSFERS = _verbs("carry: 送给 give/gave/given; 借给 lend/lent; 寄给 send/sent; 还给 return; 交给 hand")
# 把 + thing + verb + place.
PLACEMENTS = _verbs("carry book clothes: 放在 put/put/put/putting; 忘在 leave/left; 藏在 hide/hid/hidden")
OPINIONS = _verbs("说 say; 觉得 think; 相信 believe; 知道 know; 告诉我们 tell+us")
