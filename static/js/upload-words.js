// Numbers as people read them, as portal/base/words.py writes them.
const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB"];

export function inBytes(number) {
  if (number === 1) return "1 byte";
  let value = number;
  let step = 0;
  while (value >= 999.95 && step < UNITS.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${step ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)} ${UNITS[step]}`;
}

// "412 of 980 MB": the unit once where both have it.
export function ofBytes(part, whole) {
  const [number, unit] = inBytes(part).split(" ");
  return inBytes(whole).endsWith(` ${unit}`) ? `${number} of ${inBytes(whole)}` : `${number} ${unit} of ${inBytes(whole)}`;
}

export function inWords(seconds) {
  if (seconds < 119.5) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 7170) return `${Math.round(seconds / 60)} min`;
  if (seconds < 171000) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const inCount = (number) => number.toLocaleString("en");

export const files = (number) => `${inCount(number)} file${number === 1 ? "" : "s"}`;
