// Sentences to let it type, by the language of the source.

export const SAMPLES = {
  zh: [
    "站在那边的男人曾是棒球手。",
    "昨天下午警察被一只鸟咬了。",
    "那张他昨天买的沙发真贵。",
    "今晚秘书会去广州。",
    "他们说拿着一台电脑的消防员是服务员。",
    "奶奶在海边听了那首小红唱的歌。",
  ],
  en: [
    "The man standing there was a baseball player.",
    "The sofa he bought yesterday is really expensive.",
    "Grandma listened to the song by the sea.",
  ],
  de: [
    "Der Mann, der dort steht, war früher Baseballspieler.",
    "Das Sofa, das er gestern gekauft hat, ist wirklich teuer.",
    "Ich habe das Buch, das du mir geliehen hast, gestern Abend gelesen.",
  ],
};
