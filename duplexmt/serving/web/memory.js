// What survives a reload, in sessionStorage: the session, its source text that is still needed, and all that was shown.

const PREFIX = "duplexmt.", SESSION = `${PREFIX}session`;
const EVERY = 100; // ms between two writings

export class Memory {
  constructor(storage = sessionStorage) {
    Object.assign(this, { storage, news: [], timer: null, kept: 0, full: false });
    while (storage.getItem(this.part(this.kept)) !== null) this.kept += 1;
    this.now = JSON.parse(storage.getItem(SESSION));
    addEventListener("pagehide", () => this.write());
  }

  part(number) {
    return `${PREFIX}story.${number}`;
  }

  get session() {
    return this.now;
  }

  // Story and session are written together, else a reload would show something twice, or not at all.
  set session(session) {
    this.now = session;
    this.timer ??= setTimeout(() => this.write(), EVERY);
  }

  // Whatever was shown, in order.
  *story() {
    for (let number = 0; number < this.kept; number++) yield* JSON.parse(this.storage.getItem(this.part(number)));
  }

  tell(entries) {
    this.news.push(...entries);
  }

  write() {
    clearTimeout(this.timer);
    this.timer = null;
    try {
      if (this.news.length && !this.full) this.storage.setItem(this.part(this.kept++), JSON.stringify(this.news));
    } catch (error) {
      if (error.name !== "QuotaExceededError") throw error;
      this.full = true; // a reload will show no more than this; the session goes on all the same
    }
    this.news = [];
    if (this.now) this.storage.setItem(SESSION, JSON.stringify(this.now));
  }

  forget() {
    this.news = [];
    this.now = null;
    this.storage.clear();
  }
}
