// Keeps what answers tell and forget: times of runs, failures, the place of a training, busy
// actors. No DOM.

const kMostTimes = 200, kMostFailures = 500, kHour = 3600e9;

export function median(values) {
  if (!values.length) return NaN;
  const sorted = Float64Array.from(values).sort(), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// A plan of life 17 is another than that of life 18.
const planKey = (plan) => `${plan.id}\n${plan.incarnation}`;

// Times of ended runs by plan, since the page was opened: a node tells of the last 32 only.
export class RunTimes {
  constructor() {
    this.byPlan = new Map();  // id of a plan: {life, times, ids}
    this.ids = new Set();
  }

  // One row a plan, in the order of their owners and numbers: {id, owner, count, failed, times,
  // median, slowest, run, for_ns}.
  rows(state) {
    const plans = state.plans ?? [], recent = [...(state.recent ?? [])].reverse();
    for (const plan of plans)
      if (this.byPlan.get(String(plan.id))?.life !== planKey(plan))
        this.byPlan.set(String(plan.id), {life: planKey(plan), times: []});
    for (const id of [...this.byPlan.keys()])
      if (!plans.some((p) => String(p.id) === id)) this.byPlan.delete(id);
    const told = new Set();
    for (const r of recent) {
      const key = `${r.id} ${r.plan} ${r.took_ns}`;
      told.add(key);
      if (this.ids.has(key) || !r.ok) continue;
      const known = this.byPlan.get(String(r.plan));
      known?.times.push(r.took_ns);
      if (known?.times.length > kMostTimes) known.times.shift();
    }
    this.ids = told;  // a run that is no longer listed does not come back
    const order = (p) => [String(p.owner ?? ''), Number(String(p.id).split('/').pop()) || 0];
    return [...plans]
        .sort(
            (a, b) =>
                (order(a)[0] < order(b)[0]     ? -1 :
                     order(a)[0] > order(b)[0] ? 1 :
                                                 order(a)[1] - order(b)[1]))
        .map((plan) => {
          const {times} = this.byPlan.get(String(plan.id));
          const now = (state.runs ?? []).filter((r) => String(r.plan) === String(plan.id));
          return {
            id: String(plan.id),
            owner: plan.owner,
            actors: plan.actors,
            count: plan.runs_ended ?? 0,
            failed: plan.runs_failed ?? 0,
            times,
            median: median(times),
            slowest: times.length ? Math.max(...times) : NaN,
            running: now.length,
            for_ns: now.length ? Math.max(...now.map((r) => r.for_ns)) : NaN,
          };
        });
  }
}

// Adds what another node has kept of a failure.
function join(failure, {how, times, nodes, flights}) {
  failure.how ||= how;
  failure.times = Math.max(failure.times, times);
  for (const node of nodes) failure.nodes.add(node);
  for (const [node, flight] of flights) failure.flights.set(node, flight);
}

// Failed runs of the last hour, the latest first: {run, plan, time_ns, text, how, times, nodes,
// flights (by node)}. A node that leaves takes its own with it, so the page keeps them.
export class Failures {
  constructor() { this.all = new Map(); }

  add(state) {
    const put = (run, plan, time_ns, text, of = {}) => {
      const key = `${run}\n${text}`;
      if (!this.all.has(key))
        this.all.set(key, {
          run: String(run ?? ''),
          plan: String(plan ?? ''),
          time_ns: Number(time_ns),
          text: String(text || 'it failed'),
          how: '',
          times: 1,
          nodes: new Set(),
          flights: new Map()
        });
      join(this.all.get(key), {
        how: String(of.how ?? ''),
        times: Number(of.times ?? 1),
        nodes: of.node ? [String(of.node)] : [],
        flights: of.node && of.flight ? [[String(of.node), String(of.flight)]] : []
      });
    };
    for (const e of state.errors ?? []) put(e.run, e.plan, e.time_ns, e.text, e);
    for (const r of state.recent ?? [])
      if (!r.ok) put(r.id, r.plan, r.ended_ns, r.error);
    for (const [key, f] of this.all)
      if (f.time_ns < state.time_ns - kHour) this.all.delete(key);
    const sorted =
        [...this.all].sort((a, b) => b[1].time_ns - a[1].time_ns).slice(0, kMostFailures);
    this.all = new Map(sorted);
    // One a run: nodes tell the same failure in their own words, and the first is its reason.
    const runs = new Map();
    for (const [, f] of [...sorted].reverse()) {
      const first = runs.get(f.run);
      if (!f.run || !first)
        runs.set(
            f.run || `${f.time_ns} ${f.text}`,
            {...f, nodes: new Set(f.nodes), flights: new Map(f.flights)});
      else
        join(first, f);
    }
    this.rows = [...runs.values()].sort((a, b) => b.time_ns - a.time_ns);
    return this.rows;
  }
}

// ---- a training

const kLoss = [/^loss$/i, /(^|\/)loss$/i, /loss/i],
      kIsValidation = /(^|[/_ ])(val|valid|validation|eval|test|held_out)/i;

// Returns the loss among the series of one node; undefined: none is.
export function lossOf(series) {
  const curves =
      series.filter((s) => s.kind === 'scalar' && s.points.length && !kIsValidation.test(s.name));
  for (const pattern of kLoss) {
    const found = curves.find((s) => pattern.test(s.name));
    if (found) return found;
  }
  return undefined;
}

export const validationOf = (series) =>
    series.find((s) => s.kind === 'scalar' && s.points.length && kIsValidation.test(s.name));
const rateOf = (series) => series.find(
    (s) => s.kind === 'scalar' && s.points.length && /(\/s$|per_second|speed)/i.test(s.name));

// Steps a second of late: of the last quarter of the steps that are recorded, or of all since it
// began.
function pace(loss, progress) {
  const points = loss?.points ?? [];
  if (points.length >= 8) {
    const [from, to] = [points[Math.floor(points.length * 0.75)], points.at(-1)];
    if (to[1] > from[1] && to[0] > from[0]) return (to[0] - from[0]) / ((to[1] - from[1]) / 1e9);
  }
  const [step, at, value] = progress ?? [];
  return value && at > value.began_ns && step > value.began_step ?
      (step - value.began_step) / ((at - value.began_ns) / 1e9) :
      NaN;
}

// Returns the training that reported last: {node, step, steps, loss, validation, rate, unit,
// left_ns, told_ns, curve, check}; null: none is recorded. A program that reports no progress is
// known by the names of its curves.
export function trainingOf(all) {
  const nodes = new Map();
  for (const s of all) nodes.set(s.node ?? '', [...(nodes.get(s.node ?? '') ?? []), s]);
  let best = null;
  for (const [node, series] of nodes) {
    const curve = lossOf(series), check = validationOf(series), speed = rateOf(series),
          progress = series.find((s) => s.kind === 'progress')?.points.at(-1);
    if (!curve && !progress) continue;
    const lastLoss = curve?.points.at(-1), value = progress?.[2] ?? {};
    const told_ns = Math.max(lastLoss?.[1] ?? 0, progress?.[1] ?? 0),
          step = progress?.[0] ?? lastLoss[0], steps = value.steps > 0 ? value.steps : 0,
          perSecond = pace(curve, progress);
    const training = {
      node,
      step,
      steps,
      loss: progress ? value.loss ?? NaN : lastLoss[2] ?? NaN,
      validation: value.validation ?? check?.points.at(-1)[2] ?? NaN,
      rate: value.rate || (speed?.points.at(-1)[2] ?? NaN),
      unit: value.unit ||
          (value.rate ? '' : speed?.name.match(/([^/]+)(?:_per_second|\/s)$/)?.[1]) || '',
      perSecond,
      told_ns,
      left_ns: steps > step && perSecond > 0 ? ((steps - step) / perSecond) * 1e9 :
          steps > 0 && step >= steps         ? 0 :
                                               NaN,
      curve,
      check,
    };
    if (!best || training.told_ns > best.told_ns) best = training;
  }
  return best && {
    ...best,
    others: [...nodes.values()]
                .filter((s) => lossOf(s) || s.some((one) => one.kind === 'progress'))
                .length -
        1
  };
}

// ---- actors

// The busiest actors of a plan: [{actor, cores, share}], by how busy they were of late, so that the
// row does not jump from tick to tick.
export class Busiest {
  constructor(plan, memory = 0.85) {
    this.cores = new Float64Array(plan.size);
    this.memory = memory;
    this.total = 0;
  }

  // Takes the result of Counters.apply.
  apply({changes, elapsed, reset}) {
    if (!(elapsed > 0) || reset) return;
    const kept = this.memory ** elapsed;
    for (let a = 0; a < this.cores.length; a += 1) this.cores[a] *= kept;
    for (const [actor, deltas] of changes)
      this.cores[actor] += (1 - kept) * Math.max(0, deltas[2]) / 1e9 / elapsed;
    this.total = this.cores.reduce((sum, c) => sum + c, 0);
  }

  // If nothing was busy of late, by all that they ever did.
  top(counters, most = 5) {
    const isNow = this.total > 1e-6, of = isNow ? this.cores : counters.now[2],
          total = isNow ? this.total : of.reduce((sum, c) => sum + c, 0);
    const best = [];
    for (let a = 0; a < of.length; a += 1) {
      if (!(of[a] > 0) || (best.length === most && of[a] <= of[best[most - 1]])) continue;
      best.push(a);
      best.sort((x, y) => of[y] - of[x]);
      if (best.length > most) best.pop();
    }
    return best.map((actor) => ({actor, cores: isNow ? of[actor] : NaN, share: of[actor] / total}));
  }
}

// ---- nodes

// Returns the worst of some rows, and how many there are: a row of one height can say so much.
export function worst(rows, badness) {
  let found, most = -Infinity;
  for (const row of rows) {
    const bad = badness(row);
    if (bad > most) {
      found = row;
      most = bad;
    }
  }
  return {row: found, count: rows.length};
}

// How busy the queues of devices were between two states, of each node.
export class QueueShares {
  constructor() {
    this.last = new Map();  // name of device and queue: {busy, launches, replayed, time}
    this.now = new Map();   // name of device and queue: {share, launches (a second), replayed}
  }

  // Once a state.
  add(state) {
    const time = state.time_ns, seen = new Map();
    for (const node of state.nodes ?? [])
      for (const device of node.devices ?? [])
        for (const queue of device.queues ?? []) {
          const key = `${device.name}\n${queue.name}`, before = this.last.get(key);
          const passed = before ? time - before.time : 0;
          if (before && passed <= 0) {
            seen.set(key, before);
            continue;
          }
          const grown = (now, then) => Math.max(0, now - then);  // a node that begins again
          this.now.set(key, before ? {
            share: Math.min(1, grown(queue.busy_ns, before.busy) / passed),
            launches: grown(queue.launches, before.launches) / (passed / 1e9),
            replayed: grown(queue.replayed, before.replayed) / (passed / 1e9)
          } :
                                     {share: NaN, launches: NaN, replayed: NaN});
          seen.set(
              key,
              {busy: queue.busy_ns, launches: queue.launches, replayed: queue.replayed, time});
        }
    this.last = seen;
    for (const key of [...this.now.keys()])
      if (!seen.has(key)) this.now.delete(key);
  }

  // The queues of a node, each with the name of its device and its share.
  of(node) {
    return (node.devices ?? [])
        .flatMap((device) => (device.queues ?? []).map((queue) => ({
          ...queue,
          device: device.name,
          share: NaN,
          perSecond: NaN,
          replayedPerSecond: NaN,
          ...this.#rates(`${device.name}\n${queue.name}`)
        })));
  }
  #rates(key) {
    const r = this.now.get(key);
    return r && {share: r.share, perSecond: r.launches, replayedPerSecond: r.replayed};
  }
}

// One row of a node: its fullest device, its busiest queue of a device, its slowest peer, the bytes
// that wait to be sent.
export function nodeRow(node, time, shares) {
  const isThere = node.reachable !== false, devices = node.devices ?? [], peers = node.peers ?? [];
  const device = worst(devices, (d) => (d.limit > 0 ? d.in_use / d.limit : d.in_use / 2 ** 60)),
        peer = worst(peers, (p) => p.round_trip_ns);
  const queues = shares?.of(node) ?? [],
        queue = worst(queues, (q) => (Number.isFinite(q.share) ? q.share : -1) + q.depth / 1e12);
  return {
    name: String(node.name),
    state: isThere            ? node.state :
        node.state === 'left' ? 'left' :
        node.state === 'dead' ? 'dead' :
                                'silent',
    since_ns: node.since_ns ? Math.max(0, time - node.since_ns) : NaN,
    why: isThere ? '' : node.why || 'does not answer',
    isThere,
    cores: node.cores,
    cpu: isThere ? node.cpu : NaN,
    memory: isThere ? node.memory?.resident : NaN,
    total: node.memory?.total,
    device: device.row,
    devices: devices.length,
    queue: queue.row,
    queues,
    swapped: devices.reduce((sum, d) => sum + (d.swapped ?? 0), 0),
    peer: peer.row,
    peers: peers.length,
    waiting: peers.reduce((sum, p) => sum + p.queued_bytes + p.unacknowledged_bytes, 0),
  };
}

// All that is amiss, the worst first: nodes that do not answer, runs that hang. Keys have no times,
// so that no sentence is new each tick.
export function amissOf(state, verdicts, timeless) {
  const away = (state.nodes ?? [])
                   .filter((n) => n.reachable === false && n.state !== 'left')
                   .map((n) => ({
                          key: `n ${n.name}`,
                          what: n.name,
                          text: n.why || 'does not answer',
                          kind: 'error'
                        }));
  const said = verdicts.map((v) => ({
                              key: `${v.run} ${v.actor} ${timeless(v.text)}`,
                              what: v.run,
                              text: v.text,
                              kind: 'hang',
                              actor: v.actor
                            }));
  return [...new Map([...away, ...said].map((v) => [v.key, v])).values()];
}

// False for a plan that no node can describe any more: its owner has left, or is dead.
export function hasOwner(plan, state) {
  const owner = (state.nodes ?? []).find((n) => n.name === plan.owner);
  return !owner || (owner.state !== 'left' && owner.state !== 'dead');
}
