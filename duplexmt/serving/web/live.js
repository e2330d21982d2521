// The page: joins what a person does, the connection, what is remembered and what is shown.
import { Connection } from "./connection.js";
import { at, html } from "./dom.js";
import { answer, ask } from "./handover.js";
import { Memory } from "./memory.js";
import { SAMPLES } from "./samples.js";
import { Sentence } from "./sentence.js";
import { listen, Typist } from "./typing.js";
import { View } from "./view.js";

const MOST = 1_000_000; // characters at a time: more than an hour's typing, and what a browser can remember

const memory = new Memory();
const view = new View();
const sentences = new Map(); // by number, those that are not over yet

// --- what is shown, and shown again after a reload -----------------------------------------------------------------

const show = {
  source: (text) => view.source(text),
  missed: (text) => {
    sentences.clear(); // what came of them meanwhile is not known
    view.missed(text);
  },
  read: (source) => view.readUntil(source),
  gap: (message) => view.gap(message),
  renewed: (characters) => {
    sentences.clear();
    view.renewed(...characters);
  },
  event: (event) => {
    if (event.event === "line") return view.newLine(event.source);
    if (!sentences.has(event.sentence)) sentences.set(event.sentence, new Sentence());
    const sentence = sentences.get(event.sentence);
    sentence.add(event);
    view.event(sentence, event);
    if (event.event === "end") sentences.delete(event.sentence);
  },
};

function tell(entries) {
  for (const [kind, what] of entries) show[kind](what);
  memory.tell(entries);
}

// --- the connection ------------------------------------------------------------------------------------------------

const connection = new Connection(new URL("v1/live", location.href.replace(/^http/, "ws")), memory, {
  state: showState,
  ready: showModel,
  notice,
  events: (events) => tell(events.map((event) => ["event", event])),
  snapshot: (text, source) => tell([["missed", text], ["read", source]]),
  renewed: (...characters) => tell([["renewed", characters]]),
});

function notice(message) {
  at("notice").textContent = message;
  at("notice").hidden = !message;
}

let state = { state: "connecting" };
function showState(now) {
  state = now;
  const said = {
    connecting: "connecting …", open: "connected", waiting: `${now.message}; reconnecting`,
    starting: `${now.message}; your text waits for it`, failed: `${now.message}; the server tries again`,
  };
  at("state").dataset.state = now.state;
  at("state-text").textContent = said[now.state] ?? now.message;
  at("retry").hidden = now.state !== "waiting";
  at("here").hidden = !connection.displaced;
  at("token-form").hidden = now.state !== "token";
  if (now.state === "token") at("token").select();
  if (now.reason) notice(`The engine cannot start: ${now.reason}`);
  else if (now.state === "open" || now.state === "starting") notice("");
  listens(now.state !== "ended", now.message);
  showSeconds();
}

// Whether text is taken; it is not where no session would have it.
const { placeholder } = at("type");
function listens(does, why) {
  if (!does) typist.stop();
  at("type").placeholder = does ? placeholder : `No text is taken here: ${why}.`;
  for (const id of ["type", "theta", "sample", "speed"]) at(id).disabled = !does;
  at("play").disabled = !does || !at("sample").options.length;
}

// Seconds to the next try: for the eye only, as a voice would speak them all.
function showSeconds() {
  const left = state.state === "waiting" ? Math.ceil((state.until - performance.now()) / 1000) : 0;
  at("seconds").textContent = left > 0 ? `in ${left} s` : "";
}
setInterval(showSeconds, 250);

function showModel() {
  const { name, source_language: source, target_language: target, theta } = connection.model;
  view.speak(source, target);
  at("model").textContent = `Model: ${name}.`;
  for (const id of ["theta-part", "decisions-part"]) at(id).hidden = theta === null; // no grid has none
  at("theta").value = connection.theta ?? theta ?? 0.5;
  showTheta();
  offer(SAMPLES[source] ?? []);
}

// --- what a person does --------------------------------------------------------------------------------------------

function type(text) {
  if (isTooLong(text, "This text")) return;
  const sound = text.toWellFormed(); // half a surrogate pair is no character
  tell([["source", sound]]);
  connection.write(sound);
}

let wasTooLong = false;
function isTooLong(text, what) {
  const tooLong = text.length > MOST, told = `${what} has ${text.length.toLocaleString("en")} characters: at most ${MOST.toLocaleString("en")} are taken.`;
  if (tooLong || wasTooLong) notice(tooLong ? told : "");
  wasTooLong = tooLong;
  return tooLong;
}

listen(at("type"), type);

const typist = new Typist(type, () => {
  at("play").textContent = typist.active ? "■ stop" : "▸ start";
});

function offer(samples) {
  if (at("sample").options.length) return;
  const all = samples.length > 1 ? [html("option", { value: samples.join("\n") }, `all ${samples.length} of these`)] : [];
  at("sample").append(...samples.map((text) => html("option", { value: text }, text)), ...all, html("option", { value: "" }, "a text file …"));
}

at("play").addEventListener("click", () => {
  if (typist.active) typist.stop();
  else if (at("sample").value) typist.start(`${at("sample").value}\n`);
  else at("file").click();
});
at("file").addEventListener("change", async () => {
  const [file] = at("file").files;
  at("file").value = "";
  const text = await file?.text();
  if (text && !isTooLong(text, file.name)) typist.start(`${text}\n`);
});

function showTheta() {
  const theta = Number(at("theta").value);
  at("theta-value").textContent = theta.toFixed(2);
  view.moved(theta);
}
at("theta").addEventListener("input", () => {
  showTheta();
  connection.set(Number(at("theta").value));
});

function showSpeed() {
  typist.speed = Number(at("speed").value);
  at("speed-value").textContent = typist.speed;
}
at("speed").addEventListener("input", showSpeed);

at("anew").addEventListener("click", () => {
  typist.stop();
  connection.close();
  memory.forget();
  location.reload();
});
at("retry").addEventListener("click", () => connection.retry());

answer((session) => {
  if (connection.session !== session || connection.displaced) return null;
  const kept = memory.copy(typist.rest.join(""));
  connection.displace();
  return kept;
});
at("here").addEventListener("click", async () => {
  at("here").disabled = true;
  const kept = await ask(connection.session);
  at("here").disabled = false;
  if (!kept) return connection.goOnAlone();
  memory.replace(kept);
  location.reload();
});
at("controls").addEventListener("submit", (event) => event.preventDefault());
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  connection.wake(at("token").value);
});
at("steps-part").addEventListener("toggle", () => view.redraw());

showSpeed();
showTheta();
if (connection.model) showModel();
for (const [kind, what] of memory.story()) show[kind](what);
if (memory.denied) view.gap("This browser keeps nothing for this page: after a reload it is empty.");
connection.open();
if (memory.rest) typist.start(memory.rest);
addEventListener("pagehide", () => {
  connection.save();
  memory.leave(typist.rest.join(""));
});
