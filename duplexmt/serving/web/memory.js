// What survives a reload, in sessionStorage: the session, its source text that is still needed, and all that was shown.

const PREFIX = "duplexmt.", SESSION = `${PREFIX}session`, STORY = `${PREFIX}story.`, REST = `${PREFIX}rest`;
const SETTINGS = `${PREFIX}settings`;
const EVERY = 100; // ms between two writings
const TOO_LONG = "What was shown before this was too long for the browser to keep over a reload.";

// In place of sessionStorage where the browser denies it.
const NOTHING = { getItem: () => null, setItem() {}, removeItem() {}, clear() {} };

function storageOrNothing() {
  try {
    return sessionStorage;
  } catch {
    return NOTHING;
  }
}

export class Memory {
  constructor(storage = storageOrNothing()) {
    Object.assign(this, { storage, news: [], timer: null, kept: 0, full: false, over: false, denied: storage === NOTHING });
    while (storage.getItem(STORY + this.kept) !== null) this.kept += 1;
    this.session = JSON.parse(storage.getItem(SESSION)); // JSON, but for its text: code points
    if (this.session) this.session.text = Array.from(this.session.text);
    this.rest = storage.getItem(REST) ?? ""; // what was still to be typed when the page was left: it is typed once
    storage.removeItem(REST);
    // what a person has set: the unit that is sent, whether it is open how it decides; and the `draft` not sent
    this.settings = JSON.parse(storage.getItem(SETTINGS)) ?? { unit: "character", how: false, draft: "" };
  }

  // Whatever was shown, in order.
  *story() {
    for (let number = 0; number < this.kept; number++) yield* JSON.parse(this.storage.getItem(STORY + number)) ?? [];
  }

  tell(entries) {
    if (!this.full) this.news.push(...entries);
  }

  // Story and session are written together, else a reload would show something twice, or not at all.
  save(session) {
    this.session = session;
    this.timer ??= setTimeout(() => this.write(), EVERY);
  }

  write() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.over) return;
    try {
      if (this.news.length) this.storage.setItem(STORY + this.kept++, JSON.stringify(this.news));
      this.keep();
    } catch (error) {
      if (error.name !== "QuotaExceededError") throw error;
      this.full = true; // the session is worth more than its story
      while (this.kept) this.storage.removeItem(STORY + --this.kept);
      this.storage.setItem(STORY + this.kept++, JSON.stringify([["gap", TOO_LONG]]));
      this.keep();
    }
    this.news = [];
  }

  // The page is left, with so much still to be typed.
  leave(rest) {
    this.write();
    if (this.over) return;
    try {
      this.storage.setItem(SETTINGS, JSON.stringify(this.settings));
      this.storage.setItem(REST, rest);
    } catch (error) {
      if (error.name !== "QuotaExceededError") throw error;
    }
  }

  keep() {
    const { session } = this;
    if (session) this.storage.setItem(SESSION, JSON.stringify({ ...session, text: session.text.join("") }));
  }

  // All of it, for another window.
  copy(rest) {
    this.write();
    const all = Object.entries(this.storage).filter(([name]) => name.startsWith(PREFIX));
    return [...all, [SETTINGS, JSON.stringify(this.settings)], [REST, rest]];
  }

  // Keep what another window has kept, behind its draft that of this page, and nothing else that is told to this page.
  replace(copy, draft) {
    this.forget();
    for (const [name, value] of copy) this.storage.setItem(name, value);
    const settings = JSON.parse(this.storage.getItem(SETTINGS)) ?? this.settings;
    settings.draft = [settings.draft, draft].filter(Boolean).join("\n");
    this.storage.setItem(SETTINGS, JSON.stringify(settings));
  }

  // Nothing is kept any more, not even what still comes before the page is gone, but what a person has set, and where
  // others watch what follows.
  forget() {
    const channel = this.session?.channel;
    Object.assign(this, { over: true, kept: 0 });
    this.storage.clear();
    this.storage.setItem(SETTINGS, JSON.stringify({ ...this.settings, draft: "" }));
    if (channel) this.storage.setItem(SESSION, JSON.stringify({ channel, text: "" }));
  }
}
