// The report of a run, as one page that stands alone: `troupe report RUN -o FILE.html` puts the
// data and this script into it.
import { el } from './dom.js';
import { alike, bytes, clean, duration, kSeeBody, percent, rate } from './format.js';
import { short, shorten, timeless } from './format.js';
import { facts, Graph } from './graph.js';
import { layout } from './layout.js';
import { Layouts } from './layout_cache.js';
import { Counters, kGroupings, kStates, Plan, Recorded, Totals, Tree, View } from './model.js';
import { Curves } from './curves.js';
import { Timeline } from './timeline.js';

const data = JSON.parse(document.getElementById('data').textContent);
const { state } = data;
const plan = new Plan(data.plan);
const counters = new Counters(plan);
counters.apply(data.counters);
const of = (list) => (list ?? []).find((x) => String(x.id) === data.run);
const run = of(state.runs) ?? of(state.recent) ?? { id: data.run };
const summary = (state.plans ?? []).find((p) => String(p.id) === plan.id) ?? {};
if (run.ok !== undefined) {  // the actors' states are of later runs
  counters.state = Uint8Array.from(plan.names,
    (name) => (run.error?.includes(`'${name}'`) ? kStates.indexOf('failed') : 0));
  counters.waitingFor.clear();
}
const took = run.took_ns ?? run.for_ns;
const runs = Math.max(1, summary.runs_started ?? (summary.runs_ended ?? 0) + 1);
// the runs that counters cover
const ofAll = runs > 1
  ? `all ${short(runs)} runs of this plan` : 'this run, the only one of its plan';
const recorded = new Recorded(plan, data.events, data.run,
  run.started_ns ?? run.ended_ns - run.took_ns);
const [fires, dead, busy, out] = counters.now;
const sum = (values) => values.reduce((a, b) => a + b, 0);

const section = (title, note, ...parts) => el('section', {},
  [el('h2', { text: title }), note && el('p', { class: 'quiet', text: note }), ...parts]);
function table(head, rows) {
  if (!rows.length) return el('p', { class: 'quiet', text: 'None.' });
  const row = (cells, tag) =>
    el('tr', {}, cells.map((c, i) => el(tag, { class: i ? 'number' : '' }, [c])));
  return el('div', { class: 'wide' },
    [el('table', {}, [el('thead', {}, [row(head, 'th')]),
      el('tbody', {}, rows.map((r) => row(r, 'td')))])]);
}
const bar = (fraction) => {
  const fill = el('span', { class: 'fill' });
  fill.style.width = `${Math.round(100 * Math.min(1, fraction || 0))}%`;
  return el('span', { class: 'track' }, [fill]);
};

// Groups of actors by a word of theirs, the busiest first: [[word, {actors, fires, most, dead,
// busy, longest, out}]]; of all runs, or of what was recorded of this one.
function grouped(word, of = { fires, busy }) {
  const groups = new Map();
  for (let a = 0; a < plan.size; a += 1) {
    const key = word(a);
    if (key === '' || key === undefined || key === null) continue;
    const g = groups.get(key) ?? { actors: 0, fires: 0, most: 0, dead: 0, busy: 0,
      longest: 0, out: 0 };
    groups.set(key, g);
    g.actors += 1;
    g.fires += of.fires[a];
    g.most = Math.max(g.most, of.fires[a]);
    g.dead += dead[a];
    g.busy += of.busy[a];
    g.longest = Math.max(g.longest, of.longest?.[a] ?? 0);
    g.out += out[a];
  }
  return [...groups].sort((a, b) => b[1].busy - a[1].busy);
}

// Verdicts of /api/diagnose, which has one only if a run hangs.
const accused = () => (data.diagnosis?.verdicts ?? []).filter((v) => v.run === run.id);

// Why a run has not ended yet, which is no accusation.
function waits() {
  const kMost = 8;
  const said = new Set(accused().map((v) => timeless(v.text)));  // it was asked twice
  const all = alike((run.verdicts ?? []).filter((text) => !said.has(timeless(text))));
  if (!all.length) return null;
  const rest = all.length - kMost;
  return section('Waits',
    'Waits of the run when its nodes answered. A run that makes progress also has waits.',
    el('ul', { class: 'waits' },
      [...all.slice(0, kMost), ...(rest > 0 ? [`and ${short(rest)} more`] : [])].map((text) =>
        el('li', { text: clean(text) }))));
}

// The words that nodes have kept of a failed run: their sentences, how to go on, flight records.
function failure() {
  const kept = (state.errors ?? []).filter((e) => String(e.run) === String(run.id) &&
    String(e.incarnation) === String(summary.incarnation ?? e.incarnation));
  if (!kept.length) return [];
  const how = (kept.find((e) => e.owned) ?? kept[0]).how;
  const flights = kept.filter((e) => e.flight);
  return [
    ...alike(kept.map((e) => e.text).filter((text) => text !== run.error))
      .map((text) => el('p', { text: clean(text) })),
    how ? el('p', { class: 'how', text: `To go on: ${clean(how)}` }) : null,
    ...flights.map((e) => el('p', { class: 'quiet',
      text: `Flight record: ${clean(e.flight)} on node ${clean(e.node)}` })),
  ].filter(Boolean);
}

function head() {
  const isOver = run.ok !== undefined;
  const total = sum(busy);
  return el('header', { class: 'report-head' }, [
    el('h1', { text: `Run ${clean(run.id)}` }),
    el('p', { class: 'quiet', text: `Plan ${clean(plan.id)} · answered by ${clean(state.node)}, ${
      new Date(state.time_ns / 1e6).toISOString().slice(0, 19).replace('T', ' ')} UTC` }),
    ...[run.error].filter(Boolean)
      .map((text) => el('div', { class: 'verdict error' }, [el('p', { text: clean(text) }),
        ...failure()])),
    ...[data.diagnosis?.error].filter(Boolean).map((why) =>
      el('p', { class: 'quiet', text: `The diagnosis of the run failed: ${clean(why)}` })),
    ...accused().map((v) => el('div', { class: 'verdict hang' },
      [el('p', { text: clean(v.text) })])),
    el('div', { class: 'numbers' }, [
      [isOver ? (run.ok ? 'ended well' : 'failed') : 'is running', 'outcome'],
      [duration(took), 'time'], [short(plan.size), 'actors'],
      run.fired > 0 ? [short(run.fired), 'firings']
        : [short(sum(fires)), runs > 1 ? `firings in ${short(runs)} runs` : 'firings'],
      runs > 1 ? [short(runs), 'runs of its plan']
        : [total > 0 && took > 0 ? short(total / took) : '–', 'cores kept busy'],
    ].map(([number, name]) =>
      el('div', {}, [el('b', { text: number }), el('span', { text: name })])))]);
}

function topology() {
  const drawing = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  drawing.setAttribute('role', 'tree');
  drawing.setAttribute('aria-label', 'Actors and groups of actors');
  drawing.id = 'graph';
  const details = el('div', { class: 'details quiet', text: 'Double-click a group to open it.' });
  const layouts = new Layouts((job) =>
    Promise.resolve({ boxes: job.boxes, ...layout(globalThis.dagre, job.boxes, job.edges) }));
  const graph = new Graph(drawing, layouts, {
    select: (target) => {
      graph.select(target);
      const v = target?.box;
      details.textContent = v === undefined ? 'Double-click a group to open it.'
        : [clean(graph.tree.labels[v]), `${short(graph.totals.sums[0][v])} firings`,
          `busy ${duration(graph.totals.sums[2][v])}`,
        `${bytes(graph.totals.sums[3][v])} out`, graph.tree.actors[v] >= 0
          ? clean(plan.actors.get(graph.tree.actors[v], 'line'))
          : `${graph.tree.sizes[v]} actors`].filter(Boolean).join(' · ');
    },
    toggle: (v) => {
      if (graph.view.open.has(v)) graph.view.collapse(v);
      else graph.view.expand(v);
      graph.draw(v);
    },
  });
  const show = async (grouping) => {
    const tree = new Tree(plan, grouping), view = new View(tree);
    graph.setModel(tree, view, new Totals(tree, counters), counters);
    await graph.drawFirst();
    document.documentElement.dataset.ready = '1';
  };
  const choice = el('select', { 'aria-label': 'Group by' },
    kGroupings.map((g) => el('option', { value: g, text: `by ${g}` })));
  choice.value = plan.firstGrouping;
  choice.onchange = () => show(choice.value);
  return [section('Plan', `The numbers cover ${ofAll}.`,
    el('div', { class: 'bar' }, [choice, details]), el('div', { class: 'frame' }, [drawing])),
    () => show(plan.firstGrouping)];
}

function history() {
  const own = recorded.isThere ? recorded.events : data.events?.events ?? [];
  const tip = el('div', { id: 'tip', role: 'status', hidden: true });
  const canvas = el('canvas', { role: 'img' });
  const note = own.length
    ? `${short(own.length)} events on ${
      new Set(own.map((e) => `${e.node} ${e.track}`)).size} tracks${
      data.events.dropped ? `; ${short(data.events.dropped)} older ones were overwritten` : ''}. ${
      recorded.isThere ? '' : 'The events of this run are overwritten; these are of other runs. '
      }Scroll to zoom.`
    : 'The flight recorder holds nothing.';
  const timeline = new Timeline(canvas, tip);
  return [section('Timeline', note, own.length ? el('div', { class: 'frame low' }, [canvas]) : null,
    tip), () => own.length && timeline.showAll({ ...data.events, events: own })];
}

// Tables by operation and by actor: `line` makes the cells between the name and the source line.
function byWork(covers, columns, of, line) {
  const actors = Array.from(of.busy.keys()).sort((a, b) => of.busy[b] - of.busy[a]).slice(0, 15)
    .filter((a) => of.busy[a] > 0);
  const one = (a) => ({ fires: of.fires[a], busy: of.busy[a], longest: of.longest?.[a],
    out: out[a] });
  return [el('h3', { text: `Slowest operations: ${covers}` }),
    table(['Op', ...columns], grouped((a) => plan.actors.get(a, 'op'), of).slice(0, 12)
      .filter(([, g]) => g.busy > 0).map(([op, g]) => [clean(op), ...line(g)])),
    el('h3', { text: `Slowest actors: ${covers}` }),
    table(['Actor', ...columns, 'Line'],
      actors.map((a) => [shorten(clean(plan.names[a]), 48), ...line(one(a)),
        shorten(clean(plan.actors.get(a, 'line')), 60)]))];
}

// The run's own firings, if they were recorded; the counters are of all runs of its plan.
function slowest() {
  const quiet = (text) => el('p', { class: 'quiet', text });
  const timed = (g, total) => [duration(g.busy), g.fires ? duration(g.busy / g.fires) : '–',
    bar(g.busy / total), percent(g.busy / total)];
  const total = sum(busy) || 1, own = sum(recorded.busy) || 1;
  const parts = [];
  if (runs > 1) {
    const so = `${short(recorded.firings)}${
      run.fired > 0 ? ` of ${short(run.fired)}` : ''} firings of this run are recorded`;
    parts.push(quiet(`${so}${
      recorded.isWhole ? '' : '; earlier ones are overwritten'}. ` +
      'A flight recorder keeps the last firings of 20 µs and more, and shorter ones ' +
      'during a trace.'));
    if (recorded.firings > 0)
      parts.push(...byWork('this run, as far as it is recorded',
        ['Recorded', 'Busy', 'A firing', '', 'Share', 'Longest'], recorded,
        (g) => [short(g.fires), ...timed(g, own), duration(g.longest)]));
  }
  parts.push(...byWork(ofAll, ['Firings', 'Busy', 'A firing', '', 'Share', 'Bytes out'],
    { fires, busy }, (g) => [short(g.fires), ...timed(g, total), bytes(g.out)]),
    quiet('Times of counters are sampled: about one firing in a thousand is measured.'));
  return section('Slowest', '', ...parts);
}

function memory() {
  const nodes = (state.nodes ?? []).filter((n) => n.reachable !== false);
  return section('Memory',
    'Memory of the nodes, over all runs: now, and the maximum since they started. ' +
      'It is not counted by run.',
    table(['Device', 'In use', 'Reserved', 'At most', 'Free', 'Limit', 'Swapped', ''],
      nodes.flatMap((n) => (n.devices ?? []).map((d) => [clean(d.name), bytes(d.in_use),
        bytes(d.reserved), bytes(d.peak), d.free ? bytes(d.free) : '–',
        d.limit ? bytes(d.limit) : '–', d.swapped ? bytes(d.swapped) : '–',
        bar(d.limit ? d.peak / d.limit : 0)]))),
    table(['Device', 'Queue', 'Busy', 'Work', 'Launches', 'Replayed', 'To the device', 'From it'],
      nodes.flatMap((n) => (n.devices ?? []).flatMap((d) => (d.queues ?? []).map((q) => [
        clean(d.name), clean(q.name), duration(q.busy_ns), short(q.enqueued), short(q.launches),
        short(q.replayed), bytes(q.to_device.bytes),
        bytes(q.from_device.bytes + q.from_peer.bytes)])))),
    table(['Process', 'Resident', 'Total', ''],
      nodes.filter((n) => n.memory?.resident).map((n) => [clean(n.name), bytes(n.memory.resident),
        bytes(n.memory.total), bar(n.memory.resident / n.memory.total)])));
}

function loops() {
  const key = (loop, device) => `${loop}\n${device}`;
  const open = new Map((run.loops ?? []).map((l) => [key(l.loop, l.device), l]));
  const actors = new Map(grouped((a) => plan.frames[a] &&
    key(plan.frames[a], plan.actors.get(a, 'device'))));
  return section('Loops',
    'Parallelism on each device: the average number of open iterations, of the most that may be.',
    plan.residents.size > 0 ? el('p', { class: 'quiet', text: kSeeBody }) : null,
    el('h3', { text: `Loops: ${ofAll}` }),
    table(['Loop', 'Device', 'Executions', 'Iterations', 'Open for', 'Parallelism',
      'Waited for more', 'Busy', 'Open now'],
      counters.loops.filter((l) => l.executions > 0).map((l) => {
      const now = open.get(key(l.loop, l.device));
      return [clean(l.loop), shorten(clean(l.device), 26), short(l.executions),
        short(l.executions + l.iterations), duration(l.open_ns),
        `${l.open_ns > 0 ? short(l.achieved_parallelism) : '–'} of ${short(l.window)}`,
        percent(l.limited_by_window),
        duration(actors.get(key(l.loop, l.device))?.busy ?? 0),
        now ? short(now.last - now.first + 1) : '–'];
    })));
}

function communication() {
  const pairs = new Map();
  const cut = [];
  for (let e = 0; e < plan.edges.length; e += 1) {
    if (!plan.isCut[e] || plan.from[e] < 0 || plan.to[e] < 0) continue;
    cut.push(e);
    const end = (a) => clean(plan.actors.get(a, 'device') ?? plan.actors.get(a, 'node'));
    const key = `${end(plan.from[e])} → ${end(plan.to[e])}`;
    const p = pairs.get(key) ?? { edges: 0, tokens: 0, bytes: 0 };
    pairs.set(key, p);
    p.edges += 1;
    p.tokens += counters.tokens[e];
    p.bytes += counters.edgeBytes[e];
  }
  cut.sort((a, b) => counters.edgeBytes[b] - counters.edgeBytes[a]);
  const transports = (state.nodes ?? []).flatMap((n) => (n.transport?.sent_bytes === undefined ? []
    : [[clean(n.name), bytes(n.transport.sent_bytes), bytes(n.transport.received_bytes),
      short(n.transport.sent_messages), n.round_trip_ns ? duration(n.round_trip_ns) : '–',
      bytes(n.transport.queued_bytes), short(n.transport.reconnects ?? 0)]]));
  const tokens = new Map([...recorded.tokens].map(([name, count]) => [clean(name), count]));
  const last = (name, p) => (runs > 1 ? short(tokens.get(name) ?? 0) : took > 0
    ? `${bytes(p.bytes / (took / 1e9))}/s` : '–');
  return section('Communication',
    `Values sent between partitions.${runs > 1
      ? ' This run: tokens with both ends recorded; tokens sent together count as one.'
      : ''}`,
    el('h3', { text: `Devices: ${ofAll}` }),
    table(['From and to', 'Edges', 'Tokens', 'Bytes', runs > 1 ? 'This run' : 'Per second'],
      [...pairs].sort((a, b) => b[1].bytes - a[1].bytes).slice(0, 20).map(([name, p]) =>
        [name, short(p.edges), short(p.tokens), bytes(p.bytes), last(name, p)])),
    el('h3', { text: `Edges: ${ofAll}` }),
    table(['Edge', 'Tokens', 'Bytes', 'A token', 'Window'],
      cut.slice(0, 12).filter((e) => counters.tokens[e] > 0)
      .map(
        (e) =>
        [
          `${shorten(clean(plan.names[plan.from[e]]),
            30)} → ${shorten(clean(plan.names[plan.to[e]]), 30)}`, short(counters.tokens[e]),
            bytes(counters.edgeBytes[e]), bytes(counters.edgeBytes[e] / counters.tokens[e]),
            counters.window[e] ? short(counters.window[e]) : '–'])),
    transports.length ? el('h3',
      { text: 'Transport of the nodes since they started, over all runs' }) : null,
    transports.length ? table(['Node', 'Sent', 'Received', 'Messages', 'Round trip', 'Queued',
      'Reconnects'], transports) : null);
}

const [planSection, drawPlan] = topology();
const [historySection, drawHistory] = history();
const training = el('div');
const body = el('main', { class: 'report' },
  [head(), waits(), planSection, historySection, slowest(), loops(), communication(), memory()]);
const series = data.scalars?.series ?? [];
if (series.length)
  body.append(section('Training', 'Values that the program has recorded, in all runs.', training));
body.append(section('Nodes', 'The nodes when they answered.',
  facts((state.nodes ?? [])
    .map((n) => [clean(n.name),
      `${clean(n.state)}${n.cores ? `, ${short(n.cpu)} of ${n.cores} cores busy` : ''}${n.why
        ? `, ${clean(n.why)}` : ''}`]))));
if (run.fired && run.ok === undefined)
  body.append(el('p', { class: 'quiet',
    text: `${short(run.fired)} firings in this run so far${run.for_ns
      ? `, ${rate(run.fired / (run.for_ns / 1e9))}` : ''}.` }));
document.body.append(body);
if (series.length) new Curves(training).set(series);
document.title = `Run ${clean(run.id)} · Troupe`;
drawPlan();
drawHistory();
