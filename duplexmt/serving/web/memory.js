// What survives a reload, in sessionStorage: the session, source text not yet acknowledged, and what has been shown.

const PREFIX = "duplexmt.";

export class Memory {
  constructor(storage = sessionStorage) {
    this.storage = storage;
    this.full = false; // then a reload shows less
    this.kept = 0; // entries of the story
    while (this.storage.getItem(`${PREFIX}story.${this.kept}`) !== null) this.kept += 1;
  }

  get session() {
    return JSON.parse(this.storage.getItem(`${PREFIX}session`));
  }

  set session(session) {
    this.put("session", session);
  }

  // Whatever was shown, in order.
  *story() {
    for (let number = 0; number < this.kept; number++) yield* JSON.parse(this.storage.getItem(`${PREFIX}story.${number}`));
  }

  tell(entries) {
    if (this.put(`story.${this.kept}`, entries)) this.kept += 1;
  }

  forget() {
    for (const name of Object.keys(this.storage)) if (name.startsWith(PREFIX)) this.storage.removeItem(name);
    this.kept = 0;
  }

  put(name, value) {
    try {
      this.storage.setItem(PREFIX + name, JSON.stringify(value));
      return true;
    } catch (error) {
      if (error.name !== "QuotaExceededError") throw error;
      this.full = true;
      return false;
    }
  }
}
