// The page /captions: whatever is translated on a channel, in large lines (docs/how-to/live.md has its parameters).
import { Captions } from "./captions.js";
import { at } from "./dom.js";

const FIRST_WAIT = 500, LONGEST_WAIT = 15_000; // ms, doubled from try to try
const PING = 10_000, PATIENCE = 5_000; // ms of silence until it pings, and until a missing answer means a lost network
const number = (low, high) => [(value) => value !== "" && value >= low && value <= high, `a number from ${low} to ${high}`];
const colour = [(value) => CSS.supports("color", value), "a colour, such as black, transparent or #00a000"];
const RULES = {
  watch: [(value) => value.length >= 16, "the channel, which the link of the live page has"],
  lines: number(1, 9), size: number(1, 50), clear: number(0, 3600), background: colour, color: colour,
  source: [(value) => ["0", "1"].includes(value), "0 or 1"],
  align: [(value) => ["left", "center"].includes(value), "left or center"],
};

function say(text) {
  at("told").textContent = text;
  at("told").hidden = !text;
}

function wrong(asked) {
  for (const [name, value] of asked) {
    if (!Object.hasOwn(RULES, name)) return `${name}: there is no such parameter; there are ${Object.keys(RULES).join(", ")}`;
    if (!RULES[name][0](value)) return `${name}=${value}: must be ${RULES[name][1]}`;
  }
  return asked.has("watch") ? "" : "Open this page by its link on the live page, which says what it is to show.";
}

function open(channel, captions, tries = 0) {
  const socket = new WebSocket(new URL("v1/live", location.href.replace(/^http/, "ws")), "duplexmt.v1");
  let timer = setTimeout(lose, PATIENCE);
  function lose() {
    clearTimeout(timer);
    socket.onmessage = socket.onclose = null; // a lost network closes nothing
    socket.close();
    setTimeout(() => open(channel, captions, tries + 1), Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** tries));
  }
  function ping() {
    socket.send(JSON.stringify({ type: "ping" }));
    timer = setTimeout(lose, PATIENCE);
  }
  socket.onopen = () => socket.send(JSON.stringify({ type: "watch", channel }));
  socket.onclose = lose;
  socket.onmessage = ({ data }) => {
    clearTimeout(timer);
    timer = setTimeout(ping, PING);
    const message = JSON.parse(data);
    tries = 0;
    if (message.type === "watching") captions.renewed();
    if (message.type === "watching" && message.model) captions.speak(message.model);
    if (message.type !== "events") return;
    say("");
    for (const event of message.events) captions.event(event);
  };
}

const asked = new URLSearchParams(location.search), mistake = wrong(asked), screen = at("screen");
say(mistake || "Captions appear here as soon as there are any.");
if (!mistake) {
  const { lines = 3, size, clear = 0, background, color, align, source } = Object.fromEntries(asked);
  if (size) screen.style.setProperty("--size", `${size}vh`);
  if (background) screen.style.setProperty("--back", background);
  if (color) screen.style.setProperty("--front", color);
  if (align) screen.dataset.align = align;
  screen.classList.toggle("bare", background === "transparent");
  open(asked.get("watch"), new Captions(screen, { lines: Number(lines), clear: Number(clear), source: source === "1" }));
}
