// Numbers, times and names as people read them. Pure functions.

// How to see the nodes of a ResidentLoop.
export const kSeeBody = 'A ResidentLoop is one actor, whose firings are its iterations. Compile ' +
  'with CompileOptions::resident_loops = false to see the nodes of its body.';

const kPrefixes = ['', 'k', 'M', 'G', 'T', 'P'];

// 1234567 as "1.23M"; three digits that matter, none invented.
export function short(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return '–';
  if (!Number.isFinite(number)) return number > 0 ? '∞' : '−∞';
  let size = Math.abs(number), prefix = 0;
  while (size >= 999.5 && prefix + 1 < kPrefixes.length) { size /= 1000; prefix += 1; }
  const digits = size >= 100 || (prefix === 0 && Number.isInteger(size)) ? 0 : size >= 10 ? 1
    : size >= 0.01 || size === 0 ? 2 : 4;
  let text = size.toFixed(digits);
  if (text.includes('.')) text = text.replace(/\.?0+$/, '');
  return (number < 0 ? '−' : '') + text + kPrefixes[prefix];
}

// Iterations `first` to `last` of a loop: "14–25"; where both round to the same, how many there
// are: "32 at 78.4k".
export const range = (first, last) => (first === last ? short(last) : short(first) === short(last)
  ? `${short(last - first + 1)} at ${short(last)}` : `${short(first)}–${short(last)}`);

export const rate = (perSecond) =>
  `${short(perSecond >= 10 ? Math.round(perSecond) : perSecond)}/s`;

export function bytes(number) {
  if (!Number.isFinite(number)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (number >= 1024 && unit + 1 < units.length) { number /= 1024; unit += 1; }
  return `${unit === 0 || number >= 100 ? Math.round(number)
    : number.toFixed(number >= 10 ? 1 : 2)} ${units[unit]}`;
}

export function duration(ns) {
  if (!Number.isFinite(ns)) return '–';
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${short(ns / 1e3)} µs`;
  if (ns < 1e9) return `${short(ns / 1e6)} ms`;
  if (ns < 60e9) return `${short(ns / 1e9)} s`;
  const seconds = Math.floor(ns / 1e9);
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${seconds % 60} s`;
}

/// The largest unit of a duration alone, where a column is narrow: "1 min" of 92 s.
export const roughly = (ns) => duration(ns).split(' ').slice(0, 2).join(' ');

export const percent = (fraction) => `${Math.round(100 * fraction)} %`;

// `62 %, 14 open`: how busy a queue of a device is, and its work that has not ended.
export const busyText = (queue) => [Number.isFinite(queue.share) ? percent(queue.share) : '–',
  queue.depth > 0 && `${short(queue.depth)} open`].filter(Boolean).join(', ');

// A line for each queue of some devices, for a title.
export const queueLines = (queues) => queues.map((q) => `${clean(q.device)}, ${clean(q.name)}: ${
  busyText(q)}; ${short(q.enqueued)} pieces of work so far, ${short(q.events)} events pending${
  q.replayed > 0 ? `; ${short(q.replayed)} of ${short(q.launches)} launches by ${
    short(q.graphs)} of graphs` : `, ${short(q.launches)} launches`}`).join('\n');

// `gpu:0: 3 MiB in use, 4 MiB at most, of 1 GiB; …`: the memory of a device, for a title.
export const memoryLine = (device) => `${clean(device.name)}: ${bytes(device.in_use)} in use, ${
  bytes(device.peak)} at most${device.limit ? `, of ${bytes(device.limit)}` : ''}; ${
  bytes(device.reserved ?? device.in_use)} reserved, ${
  device.free ? bytes(device.free) : 'unknown'} free, ${bytes(device.swapped ?? 0)} swapped`;

const kHidden = new RegExp(
  '[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e' +
  '\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]', 'g');

// Makes a user's name safe to look at: characters that hide, reorder or break lines are shown as
// their code.
export function clean(name) {
  return String(name ?? '').replace(kHidden,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

// A sentence without how long something has lasted, which is another one whenever it is asked.
export const timeless = (text) => text.replace(/ for [\d.]+ (ms|s|min)\b/g, '');

// Sentences that differ in iterations and times only, as one, with how many there are.
export function alike(sentences) {
  const all = new Map();
  for (const text of sentences) {
    const key = timeless(text).replace(/\biteration \d+/g, 'iteration');
    const known = all.get(key);
    if (known) known.times += 1;
    else all.set(key, { text, times: 1 });
  }
  return [...all.values()].map(({ text, times }) =>
    (times === 1 ? text : `${text}, and ${times - 1} more iterations like it`));
}

// Cut in the middle, where names differ least; of a range (`a … b`) each name by itself.
export function shorten(text, most) {
  const ends = text.split(' … ');
  if (ends.length === 2 && most >= 13) {
    const [first, last] = ends.map((end) => Array.from(end).length), room = most - 3,
      half = Math.floor(room / 2);
    if (first + last > room)
      return `${shorten(ends[0], Math.max(half, room - last))} … ${shorten(ends[1],
        Math.max(room - half, room - first))}`;
  }
  const all = Array.from(text);
  if (all.length <= most) return text;
  const tail = Math.floor((most - 1) / 2);
  return `${all.slice(0, most - 1 - tail).join('')}…${all.slice(all.length - tail).join('')}`;
}
