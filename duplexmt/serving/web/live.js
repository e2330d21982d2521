// The page: joins what a person does, the connection, what is remembered and what is shown.
import { Captions } from "./captions.js";
import { Connection } from "./connection.js";
import { at, html } from "./dom.js";
import { answer, ask } from "./handover.js";
import { isForeign, nameOf, placed, wholeWords } from "./languages.js";
import { Memory } from "./memory.js";
import { Sentence } from "./sentence.js";
import { Microphone, Recogniser } from "./speech.js";
import { Transcript } from "./transcript.js";
import { listen, Typist } from "./typing.js";
import { View } from "./view.js";

const MOST = 1_000_000; // characters that wait: more than an hour's typing, and what a browser can remember
const SMALL = 1e9; // parameters: below, a model is said to be small
const LOOKED_AT = 60; // characters by which the script of what is typed is judged

const memory = new Memory();
const view = new View();
const transcript = new Transcript();
const captions = new Captions(at("screen"), { source: true }); // over the page, where that is not hidden
for (const pane of [captions.source, captions.translation]) pane.setAttribute("aria-hidden", "true"); // the page below tells it
const sentences = new Map(); // by number, those that are not over yet

// --- what is shown, and shown again after a reload -----------------------------------------------------------------

const show = {
  source: (text) => view.source(text),
  revised: ([count, text]) => view.revise(count, text),
  missed: (text) => {
    sentences.clear(); // what came of them meanwhile is not known
    view.missed(text);
    transcript.add(text, "missed");
  },
  read: (source) => view.readUntil(source),
  gap: (message) => view.gap(message),
  renewed: (characters) => {
    sentences.clear();
    transcript.renewed();
    captions.renewed();
    view.renewed(...characters);
  },
  event: (event) => {
    captions.event(event);
    transcript.add(event.text, event.sentence, event.at);
    if (event.event === "line") return view.newLine(event.source);
    if (event.event === "replaced" && !sentences.has(event.sentence)) return view.unreadFrom(event.source);
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

const wanted = new URLSearchParams(location.search).get("model");
if (wanted && (memory.session?.model?.name ?? wanted) !== wanted) beginAnew(); // it was another one's
const connection = new Connection(new URL("v1/live", location.href.replace(/^http/, "ws")), memory, {
  state: showState,
  ready: showModel,
  notice,
  events: (events) => tell(events.map((event) => ["event", { ...event, at: Date.now() }])),
  snapshot: (text, source) => tell([["missed", text], ["read", source]]),
  renewed: (...characters) => tell([["renewed", characters]]),
}, wanted);

function notice(message) {
  at("notice").textContent = message;
  at("notice").hidden = !message;
}

const microphone = new Microphone({ said: speak, over: endUtterance, heard: showHeard, changed: showMicrophone });

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
const WAYS = {
  character: "It is read at once; Enter ends a sentence.", word: "It is read word by word; Enter ends a sentence.",
  line: "It is read at Enter, which ends a sentence, too.",
};
const wayOf = (unit) => `Type or paste here. ${WAYS[unit]}`;
function listens(does, why) {
  if (!does) typist.stop();
  at("type").placeholder = does ? wayOf(at("unit").value) : `No text is taken here: ${why}.`;
  if (!does) microphone.stop();
  for (const id of ["type", "unit", "speak", "theta", "sample", "speed"]) at(id).disabled = !does;
  at("play").disabled = !does || !at("sample").options.length;
}

// Seconds to the next try: for the eye only, as a voice would speak them all.
function showSeconds() {
  const left = state.state === "waiting" ? Math.ceil((state.until - performance.now()) / 1000) : 0;
  at("seconds").textContent = left > 0 ? `in ${left} s` : "";
}
setInterval(showSeconds, 250);

const pairOf = (model) => `${nameOf(model.source_language)} → ${nameOf(model.target_language)}`;

function showModel() {
  const { name, source_language: source, target_language: target, theta, parameters, samples } = connection.model;
  if (wanted && wanted !== name) history.replaceState(null, "", location.pathname); // there is none of that name
  view.speak(source, target);
  captions.speak(connection.model);
  const many = parameters.toLocaleString("en", { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 2 });
  const by = parameters < SMALL ? `a small model (${many} parameters), which makes many mistakes` : `a model of ${many} parameters`;
  at("about").textContent = `${pairOf(connection.model)}, word by word while a sentence is still being typed or spoken, by ${by}.`;
  at("watch").href = `captions?watch=${connection.channel}&lines=2&size=8&background=transparent`;
  at("model").textContent = `Model: ${name}.`;
  const { models } = connection, several = (one) => models.filter((other) => pairOf(other) === pairOf(one)).length > 1;
  at("pair").replaceChildren(...models.map((one) => html("option", { value: one.name }, several(one) ? one.name : pairOf(one))));
  at("pair").value = name;
  at("choice").hidden = models.length < 2;
  for (const id of ["theta-part", "decisions-part"]) at(id).hidden = theta === null; // no grid has none
  at("theta").value = connection.theta ?? theta ?? 0.5;
  showTheta(connection.theta ?? theta ?? 0.5); // which may lie between two steps of the slider
  offer(samples?.sentences ?? []);
  at("chosen").textContent = samples?.chosen ?? "";
}

// --- what a person does --------------------------------------------------------------------------------------------

function type(text) {
  if (isRefused(text, "This text")) return;
  const sound = text.toWellFormed(); // half a surrogate pair is no character
  judgeScript(sound);
  tell([["source", sound]]);
  connection.write(sound);
}

// What a recogniser makes of an utterance, again and again; as it may be sent, by character or word.
let spoken = [], apart = 0; // code points of it that were sent; of those, how many before a person has typed
function speak(text, isFinal) {
  const certain = isFinal ? text : text.slice(0, WHOLE[at("unit").value](text)), end = isFinal ? "\n" : "";
  const now = Array.from(certain).slice(apart), differs = spoken.findIndex((one, place) => one !== now[place]);
  const same = differs < 0 ? spoken.length : differs, rest = now.slice(same).join("").toWellFormed() + end;
  if (!isFinal && !now.length) return;
  if (same < spoken.length) {
    const count = spoken.length - same;
    tell([["revised", [count, rest]]]);
    connection.revise(count, rest);
  } else if (rest) type(rest);
  spoken = now;
  if (isFinal) [spoken, apart] = [[], 0];
}
function endUtterance() {
  if (spoken.length) type("\n");
  [spoken, apart] = [[], 0];
}
function typed(text) {
  [spoken, apart] = [[], apart + spoken.length];
  type(text);
}

// Whether a text is not taken, which is told with its reason; null stands for a file that is not UTF-8.
let wasRefused = false;
function isRefused(text, what) {
  const rest = connection.text.length, all = rest + (text?.length ?? 0), more = rest ? ", with what is not translated yet," : "";
  let why = all > MOST ? `${what}${more} has ${all.toLocaleString("en")} characters: at most ${MOST.toLocaleString("en")} are taken.` : "";
  if (text === null) why = `${what} is not UTF-8: save it as UTF-8, and choose it again.`;
  if (why || wasRefused) notice(why);
  wasRefused = Boolean(why);
  return wasRefused;
}

let recent = ""; // of this line
function judgeScript(text) {
  const lines = (recent + text).split(/[\r\n]+/), judged = lines.findLast((line) => line.trim()) ?? "";
  const code = connection.model?.source_language, foreign = Boolean(code) && isForeign(judged.slice(-LOOKED_AT), code);
  at("script-note").textContent = foreign ? `This does not look like ${nameOf(code)}, which is all that the model reads.` : "";
  at("script-note").hidden = !foreign;
  recent = lines.at(-1).slice(-LOOKED_AT);
}

const WHOLE = {
  character: (text) => text.length, line: (text) => text.lastIndexOf("\n") + 1,
  word: (text) => wholeWords(text, connection.model?.source_language ?? "en"),
};
const take = listen(at("type"), (text) => WHOLE[at("unit").value](text), typed);
at("unit").addEventListener("change", () => {
  memory.settings.unit = at("unit").value;
  at("type").placeholder = wayOf(at("unit").value);
  take();
});

function showHeard(text) {
  at("heard").textContent = text;
  at("heard").hidden = !text;
}

function showMicrophone(why) {
  at("speak").textContent = microphone.listens ? "■ stop listening" : "microphone";
  at("speak").setAttribute("aria-pressed", String(microphone.listens));
  notice(why ? `It does not listen: ${why}.` : "");
}
at("speak").hidden = !Recogniser;
let maySend = false; // sound, as this browser does
at("speak").addEventListener("click", async () => {
  if (microphone.listens) return microphone.stop();
  maySend ||= await confirmed(
    "Your browser recognises what you say. Some browsers send the sound to their maker for that, Chrome to Google. This page sends the text, to its own server only.",
    "use the microphone",
  );
  if (maySend) microphone.start(placed(connection.model?.source_language ?? "en"));
});

// Whether a person says yes to a question.
function confirmed(question, yes) {
  at("ask-text").textContent = question;
  at("ask-yes").textContent = yes;
  at("ask").returnValue = "";
  at("ask").showModal();
  return new Promise((done) => at("ask").addEventListener("close", () => done(at("ask").returnValue === "yes"), { once: true }));
}
for (const answer of ["yes", "no"]) at(`ask-${answer}`).addEventListener("click", () => at("ask").close(answer));

const typist = new Typist(typed, () => {
  at("play").textContent = typist.active ? "■ stop" : "▸ start";
});

function offer(samples) {
  if (at("sample").options[0]?.value === (samples[0] ?? "")) return; // they are there
  const all = samples.length > 1 ? [html("option", { value: samples.join("\n") }, `all ${samples.length} of these`)] : [];
  at("sample").replaceChildren(...samples.map((text) => html("option", { value: text }, text)), ...all, html("option", { value: "" }, "a text file …"));
}

at("play").addEventListener("click", () => {
  if (typist.active) typist.stop();
  else if (at("sample").value) typist.start(`${at("sample").value}\n`);
  else at("file").click();
});
at("file").addEventListener("change", async () => {
  const [file] = at("file").files;
  at("file").value = "";
  const text = file ? utf8(await file.arrayBuffer()) : "";
  if (text !== "" && !isRefused(text, file.name)) typist.start(`${text}\n`);
});
// The text of bytes; null where they are not UTF-8.
function utf8(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

function showTheta(theta = Number(at("theta").value)) {
  at("theta-value").textContent = theta.toFixed(3);
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

// Whether there is nothing to lose, or a person agrees to lose it.
async function mayForget() {
  const some = at("source").childElementCount + at("translation").childElementCount + at("type").value.length;
  return !some || confirmed("All of this text is forgotten, and nothing brings it back.", "begin anew");
}
function beginAnew(search = location.search) {
  memory.forget();
  if (search === location.search) location.reload();
  else location.search = search;
}
function leaveAll() {
  typist.stop();
  at("type").value = "";
  connection.close();
}
at("anew").addEventListener("click", async () => {
  if (!(await mayForget())) return;
  leaveAll();
  beginAnew();
});
at("pair").addEventListener("change", async () => {
  const { value } = at("pair");
  at("pair").value = connection.model.name;
  if (!(await mayForget())) return;
  leaveAll();
  beginAnew(`?model=${encodeURIComponent(value)}`);
});
at("retry").addEventListener("click", () => connection.retry());

answer((session) => {
  if (connection.session !== session || connection.displaced) return null;
  memory.settings.draft = at("type").value;
  const kept = memory.copy(typist.rest.join(""));
  at("type").value = "";
  connection.displace();
  return kept;
});
at("here").addEventListener("click", async () => {
  at("here").disabled = true;
  const kept = await ask(connection.session);
  at("here").disabled = false;
  if (!kept) return connection.goOnAlone();
  memory.replace(kept, at("type").value);
  location.reload();
});
at("controls").addEventListener("submit", (event) => event.preventDefault());
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  connection.wake(at("token").value);
});
at("steps-part").addEventListener("toggle", () => view.redraw());
at("how").addEventListener("toggle", () => {
  memory.settings.how = at("how").open;
  view.redraw();
});

// --- what one takes along ------------------------------------------------------------------------------------------

at("copy").addEventListener("click", () => {
  const put = (event) => {
    event.clipboardData.setData("text/plain", transcript.text); // without the page's own notes
    event.preventDefault();
  };
  document.addEventListener("copy", put);
  getSelection().selectAllChildren(at("translation"));
  at("copy").textContent = document.execCommand("copy") ? "copied" : "not copied"; // what is newer is there by https only
  getSelection().removeAllRanges();
  document.removeEventListener("copy", put);
  setTimeout(() => (at("copy").textContent = "copy"), 1500);
});

function download(text, kind, name) {
  const address = URL.createObjectURL(new Blob([text], { type: `${kind};charset=utf-8` }));
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
at("txt").addEventListener("click", () => download(transcript.text, "text/plain", "translation.txt"));
at("vtt").addEventListener("click", () => download(transcript.vtt, "text/vtt", "translation.vtt"));

// --- captions over the page: what is typed meanwhile is taken, as the field keeps the focus ---------------------------

at("full").addEventListener("click", async () => {
  captions.source.hidden = !at("with-source").checked;
  at("screen").hidden = false;
  at("type").focus();
  // The whole document, or the field would lose the focus; where that is refused, they cover the window all the same.
  await document.documentElement.requestFullscreen?.().catch(() => null);
});
function leaveCaptions() {
  if (at("screen").hidden) return;
  at("screen").hidden = true;
  at("full").focus();
  if (document.fullscreenElement) document.exitFullscreen();
}
at("leave").addEventListener("click", leaveCaptions);
document.addEventListener("fullscreenchange", () => document.fullscreenElement || leaveCaptions());
addEventListener("keydown", (event) => {
  if (event.key === "Escape") leaveCaptions();
  if (event.key !== "Tab" || at("screen").hidden) return;
  event.preventDefault(); // what is covered is not reached
  at(document.activeElement === at("type") ? "leave" : "type").focus();
});

at("unit").value = memory.settings.unit;
at("how").open = memory.settings.how;
at("type").value = memory.settings.draft;
showSpeed();
showTheta();
if (connection.model) showModel();
for (const [kind, what] of memory.story()) show[kind](what);
view.read = connection.base + connection.text.length - view.waiting; // also where the story was too long
if (memory.denied) view.gap("This browser keeps nothing for this page: after a reload it is empty.");
connection.open();
if (memory.rest) typist.start(memory.rest);
addEventListener("pagehide", () => {
  connection.save();
  memory.settings.draft = at("type").value;
  memory.leave(typist.rest.join(""));
});
