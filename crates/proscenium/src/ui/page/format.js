// Numbers, durations and times as people read them.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** Seconds in one or two units. */
export function duration(seconds) {
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [name, length] of UNITS) {
    const count = Math.floor(rest / length);
    if (count > 0 || (name === "s" && parts.length === 0)) {
      parts.push(`${count} ${name}`);
      rest -= count * length;
    } else if (parts.length > 0) {
      break;
    }
    // Hours do not matter next to many days.
    if (parts.length === 2 || (name === "d" && count >= 10)) break;
  }
  return parts.join(" ");
}

export function milliseconds(value) {
  if (value >= 10000) return `${(value / 1000).toFixed(0)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${Math.round(value)} ms`;
}

export function rate(perSecond) {
  if (perSecond === 0) return "0";
  if (perSecond < 0.05) return "<0.1";
  return perSecond < 10 ? perSecond.toFixed(1) : perSecond.toFixed(0);
}

export function count(value) {
  return Number(value).toLocaleString("en");
}

export function seconds(timestamp) {
  return Date.parse(timestamp) / 1000;
}

export function now() {
  return Date.now() / 1000;
}

export function ago(timestamp) {
  if (!timestamp) return "–";
  return `${duration(now() - seconds(timestamp))} ago`;
}

/** When something happens, or happened. */
export function until(timestamp) {
  const left = seconds(timestamp) - now();
  return left >= 0 ? `in ${duration(left)}` : `${duration(-left)} ago`;
}

/** A time of this browser's time zone. */
export function time(timestamp) {
  const at = new Date(timestamp);
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** A time of today, or of another day. */
export function moment(timestamp) {
  const text = time(timestamp);
  return text.startsWith(time(Date.now()).slice(0, 10)) ? text.slice(11) : text;
}

/** The time of day, from seconds since 1970. */
export function clock(at) {
  return time(at * 1000).slice(11, 16);
}

export function plural(number, word, words = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : words}`;
}
