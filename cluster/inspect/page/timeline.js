// The events of the last seconds on one clock, a row for each node and track. Drawn on a canvas:
// thousands of events, one by one. Events too old to be kept so are drawn as the share of each 20
// ms that each kind took. Times whose events were overwritten, or are unknown for another reason,
// are hatched: only rest is empty. Waits that last and a node's silence are drawn up to now.
import { clean, duration, shorten } from './format.js';

const kKinds = ['kernel', 'firing', 'turn', 'copy', 'send', 'receive', 'wait', 'run'];
const kLane = 20, kLeft = 190, kTop = 22, kMostEvents = 20000, kMostLanes = 40;
// ns: how far back; width of a bin; a node that answers later has a gap; difference of nodes'
// clocks; one event
const kKept = 60e9, kBin = 20e6, kLate = 2e9, kSkew = 1e8, kAlike = 1e4;

// `cpu:0, plan 3`, with the node in front where there are several: a device's full name says it
// again.
function trackName(event, hasNodes) {
  const track = clean(event.track).replace(`/node:${clean(event.node)}/`, '')
    .replace(/ of plan .*\/(\d+)$/, ', plan $1');
  return hasNodes ? `${clean(event.node)} · ${track}` : track;
}

// Returns the drawn [x, y, width, event] beside another: in its row by dx, or in the next row by
// dy. Without `from`, the last; at an end, `from` itself.
export function besideEvent(drawn, from, dx, dy) {
  const nearest = (all, far) =>
    all.reduce((a, b) => (a === undefined || far(b) < far(a) ? b : a), undefined);
  if (!from) return nearest(drawn, (d) => -d[0]);
  if (dx) return nearest(drawn.filter((d) => d[1] === from[1] && (d[0] - from[0]) * dx > 0),
      (d) => Math.abs(d[0] - from[0])) ?? from;
  const lane = nearest(drawn.filter((d) => (d[1] - from[1]) * dy > 0),
    (d) => Math.abs(d[1] - from[1]))?.[1];
  return nearest(drawn.filter((d) => d[1] === lane), (d) => Math.abs(d[0] - from[0])) ?? from;
}

// [x, y, width, event] in the order in which they are drawn, each with how much of its row it
// takes, from below: turns and waits are behind all, what is long behind what is short, and
// failures before all. Tokens are moments, drawn a pixel wide: thousands of them would cover what
// computes, and take a quarter.
export function stacked(drawn) {
  const layer = ({ kind, isOpen }) =>
    (isOpen ? 2.5 : ['turn', 'wait'].indexOf(kind) + 1 || (kind === 'failure' ? 4 : 3));
  const height = ({ kind, share }) => share ?? (kind === 'send' || kind === 'receive' ? 0.25 : 1);
  return drawn.map((d) => [...d, height(d[3])])
    .sort((a, b) => layer(a[3]) - layer(b[3]) || b[4] - a[4] || b[2] - a[2]);
}

export class Timeline {
  constructor(canvas, tip, { seconds = 10 } = {}) {
    this.canvas = canvas;
    this.tip = tip;
    this.seconds = seconds;
    this.events = [];
    // events that may come again, by their approximate begin: each answer reads the clock anew
    this.known = new Map();
    this.until = 0;
    this.isPaused = false;
    this.heard = new Map();  // track: the end of the last event that is known
    this.lost = [];  // {node, track, from, until}: gaps without known events
    this.open = [];          // waits and silences that last, as of the last state
    this.bins = new Map();  // bins of older events: {node, track, kind, t_ns, dur_ns, took, count}
    canvas.tabIndex = 0;
    canvas.addEventListener('mousemove', (event) => this.#point(event));
    canvas.addEventListener('mouseleave', () => { tip.hidden = true; });
    canvas.addEventListener('keydown', (event) => this.#key(event));
    canvas.addEventListener('blur', () => this.#mark(null));
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8);
    }, { passive: false });
  }

  zoom(by) {
    this.seconds = Math.min(60, Math.max(0.0005, this.seconds * by));
    this.draw();
  }

  // Start of the next request: all tracks have reported the events that ended before it.
  get since() { return this.told === undefined ? 0 : this.told - kSkew; }

  add(json) {
    if (this.isPaused) return;
    for (const { node, track, until_ns: until } of json.lost ?? []) {
      const from = this.heard.get(`${node} ${track}`) ?? -Infinity;
      if (until > from) this.lost.push({ node, track, from, until });
    }
    for (const e of json.events ?? []) {
      const end = e.t_ns + (e.dur_ns ?? 0);
      const what =
        `${e.node} ${e.track} ${e.kind} ${e.kind === 'turn' ? ''
          : `${e.flow || e.name} ${e.run} ${e.tag}`}`, at = Math.round(e.t_ns / kAlike);
      const again = this.known.get(`${what} ${at}`) ?? this.known.get(`${what} ${at - 1}`) ??
        this.known.get(`${what} ${at + 1}`);
      if (again) {  // a turn may have gone on meanwhile
        Object.assign(again, { dur_ns: e.dur_ns, name: e.name });
        continue;
      }
      this.known.set(`${what} ${at}`, e);
      if (this.last === undefined || end > this.last) this.last = end;
      this.heard.set(`${e.node} ${e.track}`,
        Math.max(end, this.heard.get(`${e.node} ${e.track}`) ?? end));
      this.events.push(e);
    }
    this.until = Math.max(this.until, json.time_ns ?? 0, this.last ?? 0);
    this.#waitFor(json.silent ?? [], json.asked_ns ?? this.until);
    const oldest = this.until - kKept;
    if (this.events[0]?.t_ns < oldest - kKept)
      this.events = this.events.filter((e) => e.t_ns > oldest);
    if (this.events.length > kMostEvents) this.#coarsen();
    for (const [key, bin] of this.bins) if (bin.t_ns < oldest) this.bins.delete(key);
    this.lost = this.lost.filter((gap) => gap.until > oldest);
    if (this.known.size > 2 * kMostEvents)
      this.known = new Map([...this.known].slice(-kMostEvents));
    this.draw();
  }

  // Takes the open waits and the silent nodes of /api/state. Both end now.
  setOpen(state) {
    const open = [], now = state.time_ns;
    for (const run of state.runs ?? []) {
      for (const w of run.waits ?? []) {
        const track = `${w.device} of plan ${run.plan}`;
        const from = w.for_ns > 0 ? now - w.for_ns : this.#sinceWhen(`${w.node} ${track}`, now);
        open.push({ t_ns: from, node: w.node, track, kind: 'wait',
          name: `${w.kind === 'token' || w.kind === 'grant'
            ? `for ${w.what}${w.from && w.from !== w.device ? ` from ${w.from}` : ''}` : w.what}`,
            run: run.id, tag: w.tag, actor: w.actor, isOpen: true, isKnown: w.for_ns > 0 });
      }
    }
    for (const node of state.nodes ?? []) {
      if (node.reachable !== false || node.state === 'left') continue;
      const tracks = [...this.heard].filter(([key, end]) => key.startsWith(`${node.name} `) &&
        end > now - kKept);
      const since = Math.min(this.told ?? now, node.state !== 'alive' && node.since_ns
        ? node.since_ns : now);
      for (const [key, end] of tracks.length ? tracks : [[`${node.name} all of it`, 0]])
        open.push({ t_ns: Math.min(now, Math.max(end, since)), node: node.name,
          track: key.slice(node.name.length + 1), kind: 'silent',
          name: node.why || 'it does not answer', isOpen: true, isKnown: true });
    }
    // The longest of each track: waits of one track would cover each other.
    const longest = new Map();
    for (const e of open) {
      const key = `${e.node} ${e.track} ${e.kind}`, known = longest.get(key);
      if (!known || e.t_ns < known.t_ns) longest.set(key, { ...e, count: (known?.count ?? 0) + 1 });
      else known.count += 1;
    }
    this.open = [...longest.values()];
    this.openAt = now;
    if (!this.isPaused) this.until = Math.max(this.until, now);
  }

  // A wait of unknown length began when its track fell silent, or before all that was asked for.
  #sinceWhen(key, now) {
    const asked = this.told === undefined ? now : this.told - this.seconds * 1e9;
    return Math.min(now, this.heard.get(key) ?? asked);
  }

  // As events that end where the drawing does.
  * #lasting() {
    for (const known of this.open) {
      const e = { ...known };
      if (!e.isKnown) e.t_ns = this.#sinceWhen(`${e.node} ${e.track}`, this.until);
      e.dur_ns = Math.max(0, this.until - e.t_ns);
      if (e.count > 1) e.name = `${e.name}, and ${e.count - 1} more`;
      yield e;
    }
  }

  // A node that did not answer may do so the next time, and is asked again from the same time. For
  // older times it has a gap.
  #waitFor(silent, asked) {
    const told = silent.length && this.told !== undefined
      ? Math.max(this.told, asked - kLate) : asked;
    for (const { node, track } of told > this.told ? silent : [])
      this.lost.push({ node, track,
        from: Math.max(this.told, this.heard.get(`${node} ${track}`) ?? 0), until: told });
    this.told = told;
  }

  // The older half, but for what is long or a failure.
  #coarsen() {
    this.events.sort((a, b) => a.t_ns - b.t_ns);
    const older = this.events.splice(0, this.events.length - kMostEvents / 2), stays = [];
    for (const e of older) {
      const length = e.dur_ns ?? 0;
      if (length >= kBin || e.kind === 'failure') { stays.push(e); continue; }
      let from = e.t_ns;
      do {
        const at = Math.floor(from / kBin), end = Math.min(e.t_ns + length, (at + 1) * kBin),
          key = `${e.node} ${e.track} ${e.kind} ${at}`;
        const bin = this.bins.get(key) ?? { node: e.node, track: e.track, kind: e.kind,
          t_ns: at * kBin, dur_ns: kBin, took: 0, count: 0 };
        this.bins.set(key, bin);
        bin.count += from === e.t_ns ? 1 : 0;
        bin.took += end - from;
        from = end;
      } while (from < e.t_ns + length);
    }
    this.events = stays.slice(-kMostEvents / 4).concat(this.events);
  }

  // A bin as an event of what it is made of.
  * #drawn() {
    for (const b of this.bins.values())
      yield { ...b, share: Math.max(0.12, Math.min(1, b.took / kBin)),
        name: `× ${b.count}, ${duration(b.took)} of these ${duration(kBin)}` };
    yield* this.events;
    yield* this.#lasting();
  }

  // All that there is, for a report.
  showAll(json) {
    this.add(json);
    if (!this.events.length) return;
    let first = Infinity;
    this.until = 0;
    for (const e of this.#drawn()) {
      first = Math.min(first, e.t_ns);
      this.until = Math.max(this.until, e.t_ns + (e.share ? 0 : e.dur_ns ?? 0));
    }
    this.seconds = Math.max(1e-6, (this.until - first) / 1e9);
    this.draw();
  }

  // By `node track`: [name, number].
  #lanes() {
    const tracks = new Map(), nodes = new Set();
    for (const e of this.#drawn()) {
      nodes.add(e.node);
      tracks.set(`${e.node} ${e.track}`, e);
    }
    const named = [...tracks].map(([key, e]) => [key, trackName(e, nodes.size > 1)])
      .sort((a, b) => (a[1] < b[1] ? -1 : 1));
    return new Map(named.slice(0, kMostLanes).map(([key, name], i) => [key, [name, i]]));
  }

  draw() {
    const { canvas } = this;
    const width = canvas.clientWidth;
    if (!width) return;
    const lanes = this.#lanes();
    const height = Math.max(canvas.parentElement.clientHeight - 2, kTop + kLane * lanes.size + 8);
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const g = canvas.getContext('2d');
    g.scale(ratio, ratio);
    const style = getComputedStyle(canvas);
    const ink = (name) => style.getPropertyValue(name).trim();
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    const begin = this.until - this.seconds * 1e9;
    this.scale = d3.scaleLinear().domain([begin, this.until]).range([kLeft, width - 12]);

    g.strokeStyle = ink('--line');
    g.fillStyle = ink('--quiet');
    g.textAlign = 'center';
    for (const tick of d3.scaleLinear().domain([-this.seconds, 0])
        .ticks(Math.max(2, Math.floor(width / 130)))) {
      const x = Math.round(this.scale(this.until + tick * 1e9)) + 0.5;
      g.setLineDash([1, 5]);
      g.beginPath();
      g.moveTo(x, kTop - 4);
      g.lineTo(x, height);
      g.stroke();
      g.setLineDash([]);
      if (x < width - 30) g.fillText(tick === 0 ? 'now' : `−${duration(-tick * 1e9)}`, x, 9);
    }
    g.textAlign = 'right';
    for (const [name, i] of lanes.values()) {
      g.fillStyle = ink('--quiet');
      g.fillText(shorten(name, 27), kLeft - 10, kTop + kLane * (i + 0.5));
    }
    g.save();
    g.beginPath();
    g.rect(kLeft, 0, width - kLeft - 12, height);
    g.clip();
    const colours = { ...Object.fromEntries(kKinds.map((k) => [k, ink(`--event-${k}`)])),
      failure: ink('--failed'), silent: ink('--failed') };
    const quiet = ink('--quiet'), seen = [];
    this.drawn = this.#hatch(g, lanes, quiet, width);
    for (const e of this.#drawn()) {
      const x = this.scale(e.t_ns),
        w = Math.max(e.kind === 'failure' ? 3 : 1, this.scale(e.t_ns + (e.dur_ns ?? 0)) - x);
      if (x + w < kLeft || x > width) continue;
      const lane = lanes.get(`${e.node} ${e.track}`)?.[1];
      if (lane === undefined) continue;
      seen.push([x, kTop + kLane * lane + 2, w, e]);
    }
    for (const [x, y, w, e, height] of stacked(seen)) {
      const part = (kLane - 4) * height;
      g.fillStyle = colours[e.kind] || quiet;
      const isPale = e.kind === 'wait' || e.kind === 'turn' || e.kind === 'silent';
      g.globalAlpha = isPale ? 0.22 : 1;
      g.fillRect(x, y + kLane - 4 - part, w, part);
      g.globalAlpha = 1;
      if (isPale) g.fillRect(x, y + kLane - 6, w, 2);  // a line that is seen as well as any
      if (e.isOpen) g.fillRect(x, y, 2, kLane - 4);
      this.drawn.push([x, y, w, e, height]);
      if (w > 46 && !e.share) {
        g.fillStyle = isPale ? ink('--ink') : ink('--on-colour');
        g.textAlign = 'left';
        g.fillText(shorten(clean(e.name), Math.floor((w - 8) / 6.2)), Math.max(x, kLeft) + 4,
          y + kLane / 2 - 2);
      }
    }
    const marked = this.#marked();
    if (marked) {
      g.globalAlpha = 1;
      g.strokeStyle = ink('--ink');
      g.lineWidth = 2;
      g.strokeRect(marked[0] - 1, marked[1] - 1, marked[2] + 2, kLane - 2);
    }
    g.restore();
    const gaps = this.drawn.filter(([, , , e]) => e.kind === 'not recorded:').length,
      lasting = this.drawn.filter(([, , , e]) => e.isOpen).length;
    canvas.setAttribute('aria-label',
      `${this.drawn.length - gaps - lasting} events${lasting ? `, ${lasting} that last` : ''}${gaps
        ? ` and ${gaps === 1 ? 'one time'
          : `${gaps} times`} of which nothing was recorded` : ''} on ${
            lanes.size} tracks in the last ${duration(this.seconds * 1e9)}`);
  }

  #hatch(g, lanes, colour, width) {
    const drawn = [];
    g.strokeStyle = colour;
    for (const gap of this.lost) {
      const lane = lanes.get(`${gap.node} ${gap.track}`)?.[1];
      const x = Math.max(kLeft, this.scale(Math.max(gap.from, this.until - kKept))),
        end = Math.min(width, this.scale(gap.until));
      if (lane === undefined || end <= x) continue;
      const y = kTop + kLane * lane + 2, height = kLane - 4;
      g.save();
      g.beginPath();
      g.rect(x, y, end - x, height);
      g.clip();
      g.beginPath();
      for (let at = Math.floor(x / 5) * 5 - 15; at < end; at += 5) {
        g.moveTo(at, y + height);
        g.lineTo(at + height, y);
      }
      g.stroke();
      g.restore();
      drawn.push([x, y, end - x,
        { kind: 'not recorded:', t_ns: gap.from, node: gap.node, track: gap.track,
          name: 'too much happened, or it did not answer',
          dur_ns: Number.isFinite(gap.from) ? gap.until - gap.from : 0 }, 1]);
    }
    g.globalAlpha = 1;
    return drawn;
  }

  // Handles the canvas's keys; the page's handler does not get these.
  #key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1],
      ArrowDown: [0, 1] }[event.key];
    const isZoom = event.key === '+' || event.key === '=' || event.key === '-';
    if ((!step && !isZoom && event.key !== 'Escape') || event.ctrlKey || event.metaKey ||
        event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === 'Escape') this.canvas.blur();
    else if (isZoom) this.zoom(event.key === '-' ? 1.25 : 0.8);
    else this.#mark(besideEvent(this.drawn ?? [], this.#marked(), ...step)?.[3]);
  }

  // Returns the marked event as it is drawn now; a bin is another object each time.
  #marked() {
    const m = this.marked;
    return m && (this.drawn ?? []).find(([, , , e]) => e === m ||
      (e.t_ns === m.t_ns && e.node === m.node && e.track === m.track && e.kind === m.kind &&
        e.name === m.name));
  }

  #mark(event) {
    if (!event && !this.marked) return;
    this.marked = event;
    this.tip.hidden = true;
    this.draw();
    const at = this.#marked();
    if (!at) return;
    const { left, top } = this.canvas.getBoundingClientRect();
    this.#tell(at[3], left + Math.max(kLeft, at[0]), top + at[1]);
  }

  #point(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const x = event.clientX - left, y = event.clientY - top;
    const at = (this.drawn ?? [])
      .filter(([ex, ey, w]) => x >= ex - 2 && x <= ex + w + 2 && y >= ey && y <= ey + kLane - 4);
    const hit = at.findLast(([, ey, , , height]) => y >= ey + (kLane - 4) * (1 - height)) ??
      at.at(-1);
    this.tip.hidden = !hit;
    if (hit) this.#tell(hit[3], event.clientX, event.clientY);
  }

  #tell(e, x, y) {
    this.tip.hidden = false;
    this.tip.textContent = [`${clean(e.kind)} ${shorten(clean(e.name), 60)}`,
      e.dur_ns ? duration(e.dur_ns) : '', e.run ? `run ${clean(e.run)}` : '',
      e.tag !== undefined && e.tag !== '' ? `tag ${clean(e.tag)}` : ''].filter(Boolean).join(' · ');
    this.tip.style.left = `${Math.min(x + 12, innerWidth - 260)}px`;
    this.tip.style.top = `${y - 34}px`;
  }
}
