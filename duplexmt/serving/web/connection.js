// A session over docs/reference/protocol.md: text out, events in, each once and in order, over as many connections as it takes.

const PROTOCOL = "duplexmt.v1";
const EVERY = 125, ACK = 500; // ms between two sendings, two acknowledgements: below RATE messages a second,
const RATE = 20; // and more slowly where the server allows fewer
const PAUSE = 2000; // ms without new text, then what the server holds back is let go
const PING = 10_000, PATIENCE = 5_000; // ms between two pings, and until a missing answer means a lost network
const FIRST_WAIT = 500, LONGEST_WAIT = 15_000; // ms, doubled from try to try
const Close = { TOO_BIG: 1009, RESTART: 1012, BAD_MESSAGE: 4400, TOKEN: 4401, UNKNOWN: 4404, IDLE: 4408, REPLACED: 4409 };
const REASONS = { 1013: "the server is busy", 4413: "this connection was too slow", 4429: "that was too much at once" };
const ENGINE = { starting: "the engine is starting", failed: "the engine cannot start" };
const EVENTS = ["read", "write", "end", "replaced", "line"]; // others are passed over
const BEGINNING = { session: null, key: null, seq: 0, base: 0, at: 0, shown: 0, displaced: false, replaced: 0, stale: null, asked: null };
const NEW = { ...BEGINNING, text: [], theta: null, model: null, models: [], channel: null, ends: 0, left: 0, grace: 0 };

// A name that nobody guesses; `randomUUID` is there by https only.
const secret = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export class Connection {
  // tell: what becomes of it, as functions: state({state, message, until, reason}), ready(), events(events),
  // snapshot(text, source), renewed(characters, begun, why), notice(message).
  // wanted: the name of the model, or null for that of the last session, and of the first one the server's own choice.
  constructor(address, memory, tell, wanted = null) {
    Object.assign(this, { address, memory, tell, wanted, socket: null, tries: 0, over: false, asleep: false, token: "" });
    // session, key, the last frame seen; θ as last asked for; positions of the source: `base`, where the sentence begins
    // that is not over, and `at`, up to which it is acknowledged; `text` from `base` on, in the code points it is counted
    // in; `shown`, the length of the translation so far; whether another window has displaced this one; the `channel` on
    // which others watch; by the clock, when the session `ends`, and when this page `left` it, which it must not for
    // `grace` ms
    Object.assign(this, NEW, memory.session);
    // how often text was `replaced`; from where on the server has other text than we, and which: `stale`; `asked`, the
    // replacement that it has not answered: {place, text, had}
    this.channel ??= secret();
    this.toSet = false; // whether θ is to be sent
    this.named = this.gone = null; // the model that a session was to begin with; one that is not there
    this.numbers = 0; // of `set` messages
    this.timers = {};
    this.clear();
    addEventListener("online", () => this.retry());
    addEventListener("offline", () => this.lose("there is no network"));
    document.addEventListener("visibilitychange", () => !document.hidden && this.asleep && this.wake());
  }

  save() {
    if (this.sent !== null) this.left = Date.now(); // for all that is known should the page be gone next
    this.memory.save(Object.fromEntries(Object.keys(NEW).map((name) => [name, this[name]])));
  }

  // --- the connection -------------------------------------------------------------------------------------------

  open() {
    if (this.displaced) return this.end("ended", "this session goes on in another window");
    this.clear();
    this.tell.state({ state: "connecting" });
    const socket = new WebSocket(this.address, PROTOCOL);
    this.socket = socket;
    const ours = (act) => (event) => this.socket === socket && act(event);
    socket.onopen = ours(() => this.greet());
    socket.onmessage = ours(({ data }) => this.receive(JSON.parse(data)));
    socket.onclose = ours(({ code }) => this.closed(code));
    this.after("patience", PATIENCE, () => this.lose("the server does not answer"));
  }

  greet() {
    const { session, key, seq, channel } = this;
    if (session) this.send({ type: "resume", session, key, seq });
    else {
      const { theta, token } = this, model = this.gone ? null : this.wanted ?? this.model?.name; // which a restarted server may have no more
      this.named = model;
      this.send({ type: "start", channel, ...(model && { model }), ...(theta !== null && { theta }), ...(token && { token }) });
    }
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  after(name, ms, act) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(act, ms);
  }

  clear() {
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    this.timers = {};
    this.failure = {}; // the server's last error on this connection
    this.engine = { state: "ready" }; // as last told on it
    this.allowed = null; // how far it lets us send; null until it has said so
    this.sent = null; // how far we have sent
    this.told = null; // the replacement it was asked for on this connection
  }

  // Give up this connection, and try again later.
  lose(message) {
    if (this.over) return;
    const socket = this.socket, least = 1000 * (this.failure.retry_after ?? 0), { reason } = this.engine;
    this.save();
    this.socket = null;
    socket?.close();
    this.clear();
    const wait = Math.max(least, Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.tries) * (0.75 + Math.random() / 2));
    this.tries += 1;
    this.tell.state({ state: "waiting", until: performance.now() + wait, message, reason });
    this.after("open", wait, () => this.open());
  }

  retry() {
    if (!this.socket && !this.over) this.open();
  }

  closed(code) {
    const { code: name, message } = this.failure;
    this.save();
    this.socket = null;
    if (this.over) return;
    if (code === Close.TOKEN) return this.end("token", this.token ? "that token is wrong" : "a token is needed");
    if (code === Close.REPLACED) return this.displace();
    const hasNone = this.theta !== null && message?.startsWith("theta:"); // its model, any more
    if (code === Close.BAD_MESSAGE && !this.session && (hasNone || this.named)) {
      if (hasNone) this.theta = null;
      else Object.assign(this, { wanted: null, gone: this.named });
      return this.open();
    }
    if (code === Close.BAD_MESSAGE || code === Close.TOO_BIG) return this.end("ended", message ?? "page and server do not agree");
    const goesOn = code === Close.UNKNOWN || (name === "expired" && this.session && this.at < this.base + this.text.length);
    if (name === "expired") this.renew("This session has expired.");
    if (code === Close.RESTART) this.renew("The server has handed this session back.");
    if (code === Close.UNKNOWN) this.renew(this.expired());
    if (goesOn) return this.open();
    if (name === "expired") return this.end("asleep", "this session has expired; another one begins when you type");
    if (code === Close.IDLE) return this.end("asleep", "asleep until you type");
    this.lose(ENGINE[this.engine.state] ?? REASONS[code] ?? message ?? "the connection is lost");
  }

  end(state, message) {
    this.clear();
    Object.assign(this, { over: true, asleep: state === "asleep" });
    this.tell.state({ state, message });
  }

  // Another window has the session, and the key to it: this one must not use its own, which would end the session.
  displace() {
    const { socket } = this;
    this.socket = null;
    socket?.close();
    this.displaced = true;
    this.save();
    this.open();
  }

  // What is said of a session the server does not know, where its time was over; nothing else of one that is lost.
  expired() {
    const now = Date.now();
    if (now > this.ends) return "This session has expired.";
    return now - this.left > this.grace ? "This session has expired while this page was away." : null;
  }

  // This session is over: another one begins with the sentence that was not.
  renew(why) {
    if (!this.session) return;
    this.tell.renewed(this.text.length, this.at > this.base, why);
    Object.assign(this, BEGINNING);
    this.save();
  }

  // Go on after an end that can be mended.
  wake(token = this.token) {
    Object.assign(this, { over: false, asleep: false, token });
    this.open();
  }

  // --- what the server says ---------------------------------------------------------------------------------------

  receive(message) {
    const known = {
      ready: () => this.begun(message),
      ack: () => this.accepted(message),
      engine: () => this.engineIs(message),
      events: () => this.happened(message),
      error: () => this.failed(message),
      goaway: () => this.tell.notice("The server stops soon; this page will go on with the next one."),
      pong: () => this.ponged(),
    };
    known[message.type]?.(); // `set` needs no answer: each event says by which θ it was decided
  }

  begun({ session, key, model, models, limits, expires, snapshot }) {
    clearTimeout(this.timers.patience);
    const ends = Date.now() + 1000 * expires, grace = 1000 * limits.grace_seconds;
    Object.assign(this, { session, key, model, models, limits, ends, grace, tries: 0 });
    if (snapshot) {
      this.tell.snapshot(snapshot.text.slice(this.shown), snapshot.source);
      this.overUntil(snapshot.boundary);
      Object.assign(this, { seq: snapshot.seq, shown: snapshot.text.length });
    }
    this.save();
    this.tell.ready();
    this.toSet = this.theta !== null; // it may have been lost on the way
    this.after("ping", PING, () => this.ping());
  }

  engineIs({ state, reason }) {
    this.engine = { state, reason };
    if (this.sent !== null) this.opened();
  }

  // The session goes on, as far as the engine does.
  opened() {
    const { state, reason } = this.engine;
    this.tell.state(state === "ready" ? { state: "open" } : { state, message: ENGINE[state], reason });
  }

  accepted({ at, credit, replaced = 0 }) {
    const first = this.sent === null, { asked } = this;
    if (replaced !== this.replaced) Object.assign(this, { replaced, asked: null, sent: first ? null : at });
    else if (first && asked) this.asked = at > asked.place ? { ...asked, had: asked.had.slice(0, at - asked.place) } : null;
    if (first && at > this.base) this.pause(); // the connection before may have been lost in a pause
    this.at = at;
    this.allowed = at + credit;
    this.sent = Math.max(at, this.sent ?? at); // what the last connection sent in vain is sent again
    if (first) this.opened();
    if (this.gone && !this.models.some((one) => one.name === this.gone)) this.tell.notice(`There is no model ${this.gone} here: ${this.model.name} translates.`);
    this.gone = null;
    this.save();
    this.pump();
  }

  happened({ seq, events }) {
    if (seq <= this.seq) return; // has been shown before
    this.seq = seq;
    for (const { event, text, source } of events) {
      this.shown += text?.length ?? 0;
      if (event === "end" || event === "line") this.overUntil(source);
    }
    this.tell.events(events.filter(({ event }) => EVENTS.includes(event)));
    this.save();
    this.timers.ack ??= setTimeout(() => {
      this.timers.ack = undefined;
      this.send({ type: "ack", seq: this.seq });
    }, ACK * this.slowness);
  }

  // The sentences up to this position are over.
  overUntil(position) {
    this.text = this.text.slice(position - this.base);
    this.base = position;
  }

  failed(failure) {
    if (failure.code === "replace") {
      this.stays(failure.earliest);
      return this.pump();
    }
    this.failure = failure;
    if (!failure.fatal) this.tell.notice(failure.message);
  }

  // What the server has of the text up to here stays as it is.
  stays(earliest) {
    if (!this.asked) return;
    let { place, had } = this.asked;
    if (this.stale?.place < place) ({ place, had } = { place: this.stale.place, had: this.stale.had.slice(0, place - this.stale.place).concat(had) });
    const low = Math.max(place, this.base), from = Math.max(earliest, low), rest = had.slice(from - place);
    this.text = this.text.slice(0, low - this.base).concat(had.slice(low - place, from - place), this.text.slice(from - this.base));
    Object.assign(this, { asked: null, stale: rest.length ? { place: from, had: rest } : null });
    this.save();
  }

  ponged() {
    this.save();
    this.after("ping", PING, () => this.ping());
  }

  ping() {
    this.send({ type: "ping" });
    this.after("ping", PATIENCE, () => this.lose("the server does not answer"));
  }

  // --- what a person does ------------------------------------------------------------------------------------------

  // Take source text: it is sent as fast as the server takes it.
  write(text) {
    this.text = this.text.concat(Array.from(text));
    this.save();
    if (this.asleep) this.wake();
    this.pump();
  }

  // Take other text in place of the last so many code points of it; what is over stays.
  revise(count, text) {
    const end = this.base + this.text.length, place = Math.max(this.base, end - count), { stale } = this;
    if (place < (stale?.place ?? end)) {
      this.stale = { place, had: this.text.slice(place - this.base, (stale?.place ?? end) - this.base).concat(stale?.had ?? []) };
    }
    this.text = this.text.slice(0, place - this.base);
    this.write(Array.from(text).slice(place - (end - count)).join(""));
  }

  // The next replacement that the server is to be asked for, where there is credit for it.
  replacement() {
    const { stale } = this, open = this.allowed - this.sent;
    if (!this.asked && stale) {
      const text = this.text.slice(stale.place - this.base).slice(0, this.limits.message_characters);
      if (stale.place >= this.base && Math.min(stale.place - this.base + text.length, this.limits.characters_burst) > open) return null;
      this.asked = { place: stale.place, text: text.join(""), had: stale.had.slice(0, this.sent - stale.place) };
      this.stale = null;
      if (stale.place < this.base) this.stays(this.base); // it has been translated meanwhile
    }
    return this.asked === this.told ? null : this.asked;
  }

  set(theta) {
    Object.assign(this, { theta, toSet: true });
    this.save();
    if (this.asleep) this.wake();
    this.pump();
  }

  // Go on without the other window, which does not answer, by another session.
  goOnAlone() {
    this.renew("The window with this session does not answer.");
    this.wake();
  }

  // The session is no longer wanted.
  close() {
    if (this.allowed !== null) this.send({ type: "close" });
    this.end("ended", "");
  }

  // Should nothing follow for a while, the server lets go what it holds back.
  pause() {
    this.after("flush", PAUSE * this.slowness, () => (this.asked || this.stale ? this.pause() : this.send({ type: "flush" })));
  }

  // How many times longer it waits than where RATE messages a second are allowed.
  get slowness() {
    return Math.max(1, RATE / this.limits.messages_per_second);
  }

  // Send what there is to send: at once, or EVERY ms (times slowness) after the last sending.
  pump() {
    if (this.allowed === null || this.timers.pump) return;
    if (!this.asked && this.stale?.place >= this.sent) this.stale = null; // it has none of that
    const replacement = this.replacement(), waits = this.asked || this.stale; // then nothing else of the text may be sent
    const from = this.sent - this.base, most = Math.min(this.limits.message_characters, this.allowed - this.sent);
    const part = waits ? [] : this.text.slice(from, from + Math.max(0, most));
    if (!part.length && !this.toSet && !replacement) return;
    if (this.toSet) this.send({ type: "set", id: (this.numbers += 1), theta: this.theta });
    this.toSet = false;
    if (replacement) {
      this.told = replacement;
      this.send({ type: "text", at: this.sent, text: replacement.text, replace: replacement.place });
      this.pause();
    } else if (part.length) {
      this.send({ type: "text", at: this.sent, text: part.join("") });
      this.sent += part.length;
      this.pause();
    }
    this.timers.pump = setTimeout(() => {
      this.timers.pump = undefined;
      this.pump();
    }, EVERY * this.slowness);
  }
}
