// A session belongs to one window at a time: a window that was displaced can ask the other one for it.

const PATIENCE = 1000; // ms until the other window is taken to be gone
const channel = new BroadcastChannel("duplexmt");

// Answer who asks for a session: `give(session)` is what this window kept of it, and null where it has it not.
export function answer(give) {
  channel.addEventListener("message", ({ data: { wanted } }) => {
    const kept = wanted === undefined ? null : give(wanted);
    if (kept) channel.postMessage({ given: wanted, kept });
  });
}

// What another window had kept of a session, and has given away; null where none answers.
export function ask(session) {
  return new Promise((done) => {
    const take = ({ data: { given, kept } }) => given === session && done(kept);
    channel.addEventListener("message", take, { signal: AbortSignal.timeout(PATIENCE) });
    channel.postMessage({ wanted: session });
    setTimeout(() => done(null), PATIENCE);
  });
}
