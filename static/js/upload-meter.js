// Share and time left. Rates are the portal's, from what it confirmed (staging/progress.py).

// Never above 1, and never below `least`, what was shown before. Nothing to send is nothing done.
export function share(confirmed, whole, least) {
  return Math.max(least, whole ? Math.min(1, confirmed / whole) : 0);
}

// {rate, p50, p90} in bytes a second and seconds for `bytes` that are left, by what the portal said
// last of what it knew to be left; null where it does not know.
export function timeLeft(known, bytes) {
  const left = known ? known.bytes - known.uploaded_bytes : 0;
  if (!known || known.p50_s === null || left <= 0) return null;
  return { rate: known.rate_bps, p50: (known.p50_s * bytes) / left, p90: (known.p90_s * bytes) / left };
}
