// The page's data of a plan: actors, edges, the tree in which actors are grouped, counters, and the
// visible part of it.
// No DOM here: test/page/model_test.mjs runs it alone.

export const kStates = ['idle', 'ready', 'running', 'waiting', 'dead', 'failed'];
export const kGroupings = ['scope', 'partition', 'device', 'node'];

// No group has more children than this: longer rows of loose actors are grouped by the user's line
// that made them, so that a layout is small.
export const kMostChildren = 60;
// Boxes on the page at once.
export const kMostBoxes = 300;

// {columns, rows} as the server sends it, by names of columns.
export class Table {
  constructor(table) {
    this.rows = table?.rows ?? [];
    this.index = new Map((table?.columns ?? []).map((name, i) => [name, i]));
  }
  get length() { return this.rows.length; }
  get(row, name) {
    const column = this.index.get(name);
    return column === undefined ? undefined : this.rows[row][column];
  }
  column(name) {
    const at = this.index.get(name);
    return this.rows.map((row) => (at === undefined ? undefined : row[at]));
  }
  object(row) {
    return Object.fromEntries(Array.from(this.index, ([name, at]) => [name, this.rows[row][at]]));
  }
}

export class Plan {
  constructor(json) {
    this.id = String(json.id);
    this.actors = new Table(json.actors);
    this.edges = new Table(json.edges);
    this.actorAt = new Map(this.actors.column('id').map((id, i) => [String(id), i]));
    this.edgeAt = new Map(this.edges.column('id').map((id, i) => [String(id), i]));
    const ends = (name) => Int32Array.from(this.edges.column(name),
      (id) => this.actorAt.get(String(id)) ?? -1);
    this.from = ends('from');
    this.to = ends('to');
    this.isBack = Uint8Array.from(this.edges.column('kind'), (kind) => (kind === 'back' ? 1 : 0));
    this.isCut = Uint8Array.from(this.edges.column('cut'), (cut) => (cut ? 1 : 0));
    this.frames = this.actors.column('frame').map((f) => f ?? '');
    this.residents = new Set(this.actors.column('op')
      .flatMap((op, i) => (op === 'ResidentLoop' ? [i] : [])));
    this.names = this.actors.column('name').map((name, i) => name || this.actors.get(i, 'op') ||
      String(this.actors.get(i, 'id')));
  }
  get size() { return this.actors.length; }
  // A plan over several nodes is grouped by node first.
  get firstGrouping() { return new Set(this.actors.column('node')).size > 1 ? 'node' : 'scope'; }
}

// ---- the tree

function pathOf(plan, actor, grouping) {
  const scope = String(plan.actors.get(actor, 'scope') ?? '').split('/')
    .filter((part) => part !== '');
  const text = (name, otherwise) => String(plan.actors.get(actor, name) ?? otherwise);
  if (grouping === 'node') return [text('node', 'no node'),
      text('device', 'no device').split('/').pop(), ...scope];
  if (grouping === 'device') return [text('device', 'no device'), ...scope];
  if (grouping === 'partition') return [`partition ${text('partition', '?')}`, ...scope];
  return scope;
}

const makeGroup = (label) => ({ label, groups: new Map(), children: [], actor: -1 });

function groupsOf(plan, grouping) {
  const root = makeGroup(plan.id);
  for (let actor = 0; actor < plan.size; actor += 1) {
    let at = root;
    for (const part of pathOf(plan, actor, grouping)) {
      let next = at.groups.get(part);
      if (!next) {
        next = makeGroup(part);
        at.groups.set(part, next);
        at.children.push(next);
      }
      at = next;
    }
    const around = `${plan.actors.get(actor, 'scope')}/`;  // which the groups say
    at.children.push({ label: plan.names[actor].startsWith(around)
      ? plan.names[actor].slice(around.length) || around : plan.names[actor],
      children: null, actor });
  }
  return root;
}

const makeRange = (label, children, first, last) =>
  ({ label, first, last, children, actor: -1, isRange: true });

// A row of at most so many: ranges of it, and ranges of those if they are too many.
function cutInto(most, row, labelOf = (first, last) => `${first} … ${last}`) {
  while (row.length > most) {
    const size = Math.ceil(row.length / Math.ceil(row.length / kMostChildren));
    const ranges = [];
    for (let begin = 0; begin < row.length; begin += size) {
      const part = row.slice(begin, begin + size);
      const first = part[0].first ?? part[0].label, last = part.at(-1).last ?? part.at(-1).label;
      ranges.push(part.length === 1 ? part[0] : makeRange(labelOf(first, last), part, first, last));
    }
    row = ranges;
  }
  return row;
}

// The actors that one line made, as one group. More than a group may hold are parts of it:
// `model.cpp:31, 2 of 4`.
function groupOfLine(line, actors) {
  if (actors.length === 1) return { ...actors[0], line };
  if (actors.length <= kMostChildren) return { ...makeRange(line, actors), line };
  const count = Math.ceil(actors.length / kMostChildren),
    size = Math.ceil(actors.length / count), parts = [];
  for (let begin = 0; begin < actors.length; begin += size) {
    const place = `${parts.length + 1} of ${count}`;
    parts.push(makeRange(`${line}, ${place}`, actors.slice(begin, begin + size), place, place));
  }
  return { ...makeRange(line,
    cutInto(kMostChildren, parts, (first, last) => `${line}, ${first.split(' ')[0]}–${last}`)),
    line };
}

const fileOf = (line) => line.replace(/:\d+$/, '');

// `model.cpp:12` to `model.cpp:40` is `model.cpp:12–40`.
function rangeOfLines(first, last) {
  return fileOf(first) === fileOf(last) && first !== last
    ? `${first}–${last.slice(fileOf(last).length + 1)}` : first === last ? first
    : `${first} … ${last}`;
}

// The lines that made some actors, as one range of each file: `model.cpp:12–40`.
export function linesOf(plan, actors) {
  const files = new Map();
  for (const actor of actors) {
    const line = String(plan.actors.get(actor, 'line') ?? '');
    if (!line) continue;
    const file = fileOf(line), number = Number(line.slice(file.length + 1)) || 0,
      [low, high] = files.get(file) ?? [number, number];
    files.set(file, [Math.min(low, number), Math.max(high, number)]);
  }
  return [...files].map(([file, [low, high]]) =>
    (low === high ? `${file}:${low}` : `${file}:${low}–${high}`));
}

// Loose actors by the line that made them; lines that are too many as ranges of them.
function byLine(plan, most, loose) {
  const lines = new Map();
  for (const leaf of loose) {
    const line = String(plan.actors.get(leaf.actor, 'line') || 'no source line');
    if (!lines.has(line)) lines.set(line, []);
    lines.get(line).push(leaf);
  }
  const rows = [...lines].map(([line, actors]) => groupOfLine(line, actors));
  if (rows.length <= most) return rows;
  const number = (row) => Number(row.line.slice(fileOf(row.line).length + 1)) || 0;
  rows.sort((a, b) => (fileOf(a.line) < fileOf(b.line) ? -1 : fileOf(a.line) > fileOf(b.line) ? 1
    : number(a) - number(b)));
  return cutInto(most, rows.map((row) => ({ ...row, first: row.line, last: row.line })),
    rangeOfLines);
}

// Groups that users made stay what they are; of many loose actors beside them, those of one line
// are a group.
function ranged(plan, children) {
  if (children.length <= kMostChildren) return children;
  const groups = children.filter((c) => c.children !== null),
    loose = children.filter((c) => c.children === null);
  const kept = groups.length < kMostChildren ? groups : cutInto(kMostChildren / 2, groups);
  return [...kept, ...byLine(plan, kMostChildren - kept.length, loose)];
}

// A group of one group is that group.
function simplified(plan, group) {
  if (group.children === null) return group;
  let { label, children } = group;
  while (children.length === 1 && children[0].children !== null) {
    label = `${label}/${children[0].label}`;
    ({ children } = children[0]);
  }
  return { label, children: ranged(plan, children.map((c) => simplified(plan, c))), actor: -1 };
}

// Groups and actors as numbers, parents before their children: 0 is the plan.
export class Tree {
  constructor(plan, grouping) {
    this.plan = plan;
    this.grouping = grouping;
    this.labels = [];
    this.parents = [];
    this.children = [];
    this.actors = [];  // a leaf's actor, else -1
    this.isRange = [];
    this.leafOf = new Int32Array(plan.size);
    const root = groupsOf(plan, grouping);
    this.#add({ ...root, children: ranged(plan, root.children.map((c) => simplified(plan, c))) });
    this.#measure();
  }

  // How many actors are below, and the loop that nearly all of them are in, or ''.
  #measure() {
    const n = this.size;
    this.sizes = new Int32Array(n);
    this.frames = new Array(n).fill('');
    const counts = new Map();  // group: actors by frame
    for (let v = n - 1; v >= 0; v -= 1) {
      const actor = this.actors[v], parent = this.parents[v];
      const own = actor >= 0 ? new Map([[this.plan.frames[actor], 1]]) : counts.get(v) ?? new Map();
      if (actor >= 0) this.sizes[v] = 1;
      for (const [frame, count] of own) if (frame && count >= 0.8 * this.sizes[v])
        this.frames[v] = frame;
      counts.delete(v);
      if (parent < 0) continue;
      this.sizes[parent] += this.sizes[v];
      if (!counts.has(parent)) counts.set(parent, new Map());
      const around = counts.get(parent);
      for (const [frame, count] of own) around.set(frame, (around.get(frame) ?? 0) + count);
    }
  }
  get size() { return this.parents.length; }
  isGroup(v) { return this.actors[v] < 0; }

  // Without recursion: what is deep in a user's names must not be deep here.
  #add(root) {
    const pending = [[root, -1]];
    while (pending.length) {
      const [group, parent] = pending.pop();
      const v = this.parents.length;
      this.labels.push(group.label);
      this.parents.push(parent);
      this.actors.push(group.actor);
      this.isRange.push(Boolean(group.isRange));
      this.children.push([]);
      if (parent >= 0) this.children[parent].push(v);
      if (group.actor >= 0) this.leafOf[group.actor] = v;
      else for (let i = group.children.length - 1; i >= 0; i -= 1)
        pending.push([group.children[i], v]);
    }
  }

  path(v) {
    const all = [];
    for (; v >= 0; v = this.parents[v]) all.unshift(v);
    return all;
  }
  // Stable over rebuilds of the tree: what is expanded, and where it was put, is remembered by it.
  key(v) { return this.path(v).map((u) => this.labels[u]).join('\u0000'); }
  // The leaves below, up to `most`.
  leaves(v, most = Infinity) {
    const found = [], pending = [v];
    while (pending.length && found.length < most) {
      const u = pending.pop();
      if (this.actors[u] >= 0) found.push(u);
      else for (let i = this.children[u].length - 1; i >= 0; i -= 1)
        pending.push(this.children[u][i]);
    }
    return found;
  }
}

// ---- counters

// Counters by actor. `apply` takes the changes, so that the cost of a tick grows with them.
export class Counters {
  constructor(plan) {
    this.plan = plan;
    this.seq = 0;
    this.names = ['fires', 'dead', 'busy_ns', 'bytes_out'];
    this.now = this.names.map(() => new Float64Array(plan.size));
    this.state = new Uint8Array(plan.size);
    this.waitingFor = new Map();
    const edges = plan.edges.length;
    this.tokens = new Float64Array(edges);
    this.edgeBytes = new Float64Array(edges);
    this.inFlight = new Float64Array(edges);
    this.window = new Float64Array(edges);
    this.tokenRate = new Float64Array(edges);
    this.byteRate = new Float64Array(edges);
    this.time = 0;
    this.wasReset = false;
    // {loop, device, executions, iterations, window, most_parallel, open_ns, achieved_parallelism,
    // limited_by_window}
    this.loops = [];
  }

  // Returns {changes, elapsed in seconds, reset}; a change is [actor, [Δfires, Δdead, Δbusy,
  // Δbytes], state before, state after].
  apply(json) {
    const changes = [];
    const elapsed = this.time > 0 ? (json.time_ns - this.time) / 1e9 : 0;
    this.time = json.time_ns;
    this.seq = json.seq;
    const table = new Table(json.actors), loops = new Table(json.loops);
    if (json.loops) this.loops = loops.rows.map((_, row) => loops.object(row));
    const at = this.names.map((name) => table.index.get(name));
    const idAt = table.index.get('id'), stateAt = table.index.get('state'),
      waitsAt = table.index.get('waiting_for');
    for (const row of table.rows) {
      const actor = this.plan.actorAt.get(String(row[idAt]));
      if (actor === undefined) continue;
      const deltas = at.map((column, i) => {
        const value = Number(row[column] ?? 0), delta = value - this.now[i][actor];
        this.now[i][actor] = value;
        return delta;
      });
      const before = this.state[actor];
      this.state[actor] = Math.max(0, kStates.indexOf(row[stateAt]));
      if (row[waitsAt]) this.waitingFor.set(actor, String(row[waitsAt]));
      else this.waitingFor.delete(actor);
      changes.push([actor, deltas, before, this.state[actor]]);
    }
    this.#applyEdges(new Table(json.edges), elapsed);
    return { changes, elapsed, reset: Boolean(json.reset) };
  }

  #applyEdges(table, elapsed) {
    this.tokenRate.fill(0);
    this.byteRate.fill(0);
    for (let r = 0; r < table.length; r += 1) {
      const e = this.plan.edgeAt.get(String(table.get(r, 'id')));
      if (e === undefined) continue;
      const tokens = Number(table.get(r, 'tokens') ?? 0),
        bytes = Number(table.get(r, 'bytes') ?? 0);
      if (elapsed > 0) {
        this.tokenRate[e] = Math.max(0, tokens - this.tokens[e]) / elapsed;
        this.byteRate[e] = Math.max(0, bytes - this.edgeBytes[e]) / elapsed;
      }
      this.tokens[e] = tokens;
      this.edgeBytes[e] = bytes;
      this.inFlight[e] = Number(table.get(r, 'in_flight') ?? 0);
      this.window[e] = Number(table.get(r, 'window') ?? 0);
    }
  }
}

// The counters summed over every group of a tree.
export class Totals {
  constructor(tree, counters) {
    this.tree = tree;
    const n = tree.size;
    this.sums = counters.names.map(() => new Float64Array(n));
    this.rates = counters.names.map(() => new Float64Array(n));  // a second
    this.states = new Int32Array(n * kStates.length);
    for (let actor = 0; actor < tree.plan.size; actor += 1) {
      const leaf = tree.leafOf[actor];
      counters.now.forEach((values, i) => { this.sums[i][leaf] = values[actor]; });
      this.states[leaf * kStates.length + counters.state[actor]] = 1;
    }
    for (let v = n - 1; v > 0; v -= 1) {
      const parent = tree.parents[v];
      for (const sum of this.sums) sum[parent] += sum[v];
      for (let s = 0; s < kStates.length; s += 1)
        this.states[parent * kStates.length + s] += this.states[v * kStates.length + s];
    }
  }

  apply({ changes, elapsed, reset }) {
    for (const r of this.rates) r.fill(0);
    const scale = elapsed > 0 && !reset ? 1 / elapsed : 0;
    for (const [actor, deltas, before, after] of changes) {
      for (let v = this.tree.leafOf[actor]; v >= 0; v = this.tree.parents[v]) {
        for (let i = 0; i < deltas.length; i += 1) {
          this.sums[i][v] += deltas[i];
          this.rates[i][v] += Math.max(0, deltas[i]) * scale;
        }
        this.states[v * kStates.length + before] -= 1;
        this.states[v * kStates.length + after] += 1;
      }
    }
  }

  count(v, state) { return this.states[v * kStates.length + kStates.indexOf(state)]; }
  // The state that colours a box: the worst that the user must see, then the most frequent one.
  state(v) {
    if (this.count(v, 'failed')) return 'failed';
    if (this.count(v, 'running') || this.rates[0][v] > 0) return 'running';
    if (this.count(v, 'waiting')) return 'waiting';
    if (this.count(v, 'ready')) return 'ready';
    return this.count(v, 'dead') > 0 ? 'dead' : 'idle';
  }
}

// ---- one run

// Events of one run from flight recorders, perhaps only a part of it: they keep the last events,
// and long firings only unless a trace runs. `began` is when it did.
export class Recorded {
  constructor(plan, json, run, began) {
    const ofPlan = ` of plan ${plan.id}`;
    const own = (json?.events ?? []).filter((e) => String(e.run) === run);
    this.isThere = own.length > 0;
    this.events = this.isThere ? (json?.events ?? [])
      .filter((e) => String(e.run) === run || (!e.run && String(e.track).endsWith(ofPlan))) : [];
    this.isWhole = !(json?.lost ?? [])
      .some((l) => String(l.track).endsWith(ofPlan) && l.until_ns > began);
    this.firings = 0;
    [this.fires, this.busy, this.longest] = [0, 1, 2].map(() => new Float64Array(plan.size));
    const sent = new Map();  // flow: track
    // a worker's kernel may be recorded beside its firing
    const place = (e) => `${e.actor} ${e.tag}`,
      ended = new Set(own.filter((e) => e.kind === 'kernel').map(place));
    this.tokens = new Map();  // 'device → device': number of tokens with both ends recorded
    for (const e of own) {
      if (e.kind === 'send' && e.flow) sent.set(String(e.flow), String(e.track));
      if (e.kind !== 'kernel' && (e.kind !== 'firing' || ended.has(place(e)))) continue;
      this.firings += 1;
      const a = plan.actorAt.get(String(e.actor));
      if (a === undefined) continue;
      this.fires[a] += 1;
      this.busy[a] += e.dur_ns;
      this.longest[a] = Math.max(this.longest[a], e.dur_ns);
    }
    const device = (track) => (track.endsWith(ofPlan) ? track.slice(0, -ofPlan.length) : track);
    for (const e of own) {
      if (e.kind !== 'receive' || !sent.has(String(e.flow))) continue;
      const key = `${device(sent.get(String(e.flow)))} → ${device(String(e.track))}`;
      this.tokens.set(key, (this.tokens.get(key) ?? 0) + 1);
    }
  }
}

// ---- what is seen

// The open groups. The root is always open.
export class View {
  constructor(tree) {
    this.tree = tree;
    this.open = new Map([[0, 0]]);  // group: when it was opened
    this.clock = 0;
  }

  // Opens the largest groups while the page stays calm, those that users made first. Returns them,
  // in that order.
  openFirst(calm = 9, most = 28) {
    const opened = [];
    for (;;) {
      const boxes = this.boxes().filter((v) => !this.open.has(v));
      if (boxes.length >= calm) return opened;
      const groups = boxes.filter((v) => this.tree.isGroup(v)).sort((a, b) =>
        this.tree.isRange[a] - this.tree.isRange[b] || this.tree.sizes[b] - this.tree.sizes[a]);
      const next = groups.find((v) => boxes.length - 1 + this.tree.children[v].length <= most);
      if (next === undefined) return opened;
      this.expand(next);
      opened.push(next);
    }
  }

  // Every box on the page, parents first: open groups and what is in them. Not the root.
  boxes() {
    const found = [], pending = [...this.tree.children[0]].reverse();
    while (pending.length) {
      const v = pending.pop();
      found.push(v);
      if (this.open.has(v)) for (let i = this.tree.children[v].length - 1; i >= 0; i -= 1)
        pending.push(this.tree.children[v][i]);
    }
    return found;
  }

  // Returns the groups that were closed to make room, those opened longest ago first.
  expand(v) {
    if (!this.tree.isGroup(v)) return [];
    const closed = [];
    for (const u of this.tree.path(v)) if (!this.open.has(u)) this.open.set(u, (this.clock += 1));
    this.open.set(v, (this.clock += 1));
    const kept = new Set(this.tree.path(v));
    while (this.boxes().length > kMostBoxes) {
      const oldest = [...this.open].filter(([u]) => !kept.has(u)).sort((a, b) => a[1] - b[1])[0];
      if (!oldest) break;
      this.collapse(oldest[0]);
      closed.push(oldest[0]);
    }
    return closed;
  }

  collapse(v) {
    if (v === 0) return;
    for (const u of [...this.open.keys()]) if (u === v || this.tree.path(u).includes(v))
      this.open.delete(u);
  }

  // Opens what is around it, so that it is a box.
  reveal(v) { return this.tree.parents[v] >= 0 ? this.expand(this.tree.parents[v]) : []; }

  // Maps every group and actor to the box that stands for it: itself, or the closed group around
  // it.
  shown() {
    const shown = new Int32Array(this.tree.size);
    for (let v = 1; v < shown.length; v += 1) {
      const parent = this.tree.parents[v];
      shown[v] = this.open.has(parent) && (parent === 0 || shown[parent] === parent) ? v
        : shown[parent];
    }
    return shown;
  }

  // Edges between boxes, as many as there are pairs: [{from, to, edges, isBack}].
  links() {
    const { plan, leafOf, size } = this.tree;
    const shown = this.shown(), found = new Map();
    for (let e = 0; e < plan.from.length; e += 1) {
      if (plan.from[e] < 0 || plan.to[e] < 0) continue;
      const from = shown[leafOf[plan.from[e]]], to = shown[leafOf[plan.to[e]]];
      if (from === to) continue;
      const key = from * size + to;
      const link = found.get(key);
      if (link) {
        link.edges.push(e);
        link.isBack &&= Boolean(plan.isBack[e]);
      } else {
        found.set(key, { from, to, edges: [e], isBack: Boolean(plan.isBack[e]) });
      }
    }
    return [...found.values()];
  }
}

// Returns the next link of a box (step 1) or the one before (-1), incoming ones first, round and
// round: "from to"; undefined: it has none.
export function nextLink(links, box, current, step) {
  const into = links.filter((link) => link.to === box),
    out = links.filter((link) => link.from === box);
  const keys = [...into, ...out].map((link) => `${link.from} ${link.to}`);
  const at = keys.indexOf(current);
  return keys[at < 0 ? (step > 0 ? 0 : keys.length - 1) : (at + step + keys.length) % keys.length];
}

// The children of a group and the edges between them, as positions in the row of children: what a
// layout is made of. Back edges of loops are left out of the ranks, or a loop would be drawn upside
// down.
export function layoutInput(tree, group) {
  const children = tree.children[group];
  const at = new Map(children.map((v, i) => [v, i]));
  const under = new Int32Array(tree.size).fill(-1);
  for (let v = 1; v < tree.size; v += 1) {
    const own = at.get(v);
    under[v] = own !== undefined ? own : under[tree.parents[v]];
  }
  const { plan, leafOf } = tree;
  const pairs = new Map();
  for (let e = 0; e < plan.from.length; e += 1) {
    if (plan.from[e] < 0 || plan.to[e] < 0 || plan.isBack[e]) continue;
    const a = under[leafOf[plan.from[e]]], b = under[leafOf[plan.to[e]]];
    if (a < 0 || b < 0 || a === b) continue;
    const key = a * children.length + b;
    pairs.set(key, (pairs.get(key) ?? 0) + 1);
  }
  // The strongest of too many: dagre's time grows with them faster than what they tell.
  const most = 4 * children.length + 40;
  const strongest = [...pairs].sort((x, y) => y[1] - x[1] || x[0] - y[0]).slice(0, most);
  return { children, edges: strongest.map(([key, weight]) =>
    [Math.floor(key / children.length), key % children.length, weight]) };
}

// ---- search

// Actors and groups whose name, op, id, scope or line has all the words: one of just that name
// first, then the busiest, by what Totals.sums holds.
export function search(tree, words, most = 50, busy = undefined) {
  const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!parts.length) return [];
  const { plan } = tree, whole = parts.join(' ');
  const found = [];
  for (let v = 1; v < tree.size; v += 1) {
    if (tree.isRange[v]) continue;
    const actor = tree.actors[v];
    const name = tree.labels[v].toLowerCase();
    const text = actor < 0 ? name
      : `${name} ${plan.names[actor].toLowerCase()} ${
        String(plan.actors.get(actor, 'op')).toLowerCase()} ${
        String(plan.actors.get(actor, 'id')).toLowerCase()} ${
        String(plan.actors.get(actor, 'scope') ?? '').toLowerCase()} ${
        String(plan.actors.get(actor, 'line') ?? '').toLowerCase()}`;
    if (!parts.every((p) => text.includes(p))) continue;
    const rank = name.startsWith(parts[0]) ? 1 : name.includes(parts[0]) ? 2 : 3;
    found.push([name === whole ? 0 : 1, busy?.[v] ?? 0, rank, actor < 0 ? 0 : 1, v]);
  }
  return found.sort((a, b) => a[0] - b[0] || b[1] - a[1] || a[2] - b[2] || a[3] - b[3] ||
    a[4] - b[4]).slice(0, most).map((f) => f[4]);
}
