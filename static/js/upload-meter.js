// Rate and time left, from what the portal confirmed; nothing is said of the first seconds.
const LEAST_S = 5;
const LEAST_STEPS = 3; // confirmations
const MEMORY_S = 120;
const WINDOW_S = 5; // rates are means over this long, so that single answers do not shake them

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

export class Meter {
  constructor(clock = () => performance.now() / 1000) {
    this.clock = clock;
    this.highest = 0;
    this.begin();
  }

  // Called again after a pause: the time that nothing was to move is no rate.
  begin() {
    this.samples = [];
    this.steps = 0;
  }

  take(confirmed) {
    const now = this.clock();
    const last = this.samples.at(-1);
    if (last && confirmed > last[1]) this.steps += 1;
    if (last && confirmed < last[1]) this.begin();
    if (last && this.samples.length > 1 && now - this.samples.at(-2)[0] < 1) this.samples.pop();
    this.samples.push([now, confirmed]);
    while (now - this.samples[0][0] > MEMORY_S) this.samples.shift();
  }

  get known() {
    const { samples } = this;
    return samples.length > 2 && this.steps >= LEAST_STEPS && samples.at(-1)[0] - samples[0][0] >= LEAST_S;
  }

  // Means over windows, slowest first, in bytes a second.
  rates() {
    const { samples } = this;
    const rates = [];
    let first = 0;
    for (const [now, bytes] of samples) {
      while (now - samples[first + 1]?.[0] >= WINDOW_S) first += 1;
      const [then, before] = samples[first];
      if (now - then >= WINDOW_S - 1) rates.push((bytes - before) / (now - then));
    }
    return rates.sort((one, other) => one - other);
  }

  // {rate, p50, p90} in bytes a second and seconds, or null when it is not known yet.
  left(bytes) {
    if (!this.known) return null;
    const rates = this.rates();
    const rate = at(rates, 0.5);
    const slow = at(rates, 0.1) || rate / 4; // a pause of the network: no rate of its own
    return rate > 0 ? { rate, p50: bytes / rate, p90: bytes / slow } : null;
  }

  // Never above 1, and never back unless `back` says that something is sent again.
  share(confirmed, whole, back = false) {
    const share = whole ? Math.min(1, confirmed / whole) : 1;
    this.highest = back ? share : Math.max(this.highest, share);
    return this.highest;
  }
}
