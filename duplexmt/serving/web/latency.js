// Latency of one translation, as duplexmt/metrics/latency.py counts it; a test compares the two.

// AL: mean over i <= tau of d_i - (i - 1) S / R, tau being the first i with d_i >= S, or the last.
// delays: source tokens read when each target token was written. null where nothing has been written.
export function averageLagging(delays, sourceLength, referenceLength) {
  if (!delays.length || !sourceLength || !referenceLength) return null;
  const reached = delays.findIndex((delay) => delay >= sourceLength);
  const counted = reached < 0 ? delays : delays.slice(0, reached + 1);
  const step = sourceLength / referenceLength;
  return counted.reduce((sum, delay, i) => sum + delay - i * step, 0) / counted.length;
}

export function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}
