// The right side: everything of what is selected: an actor, a group or a link.
import { el, setText } from './dom.js';
import { alike, bytes, clean, duration, kSeeBody, range } from './format.js';
import { rate, short, shorten } from './format.js';
import { describeFlow, facts, kStateWords } from './graph.js';
import { kStates, linesOf } from './model.js';

// How far the iterations of a loop ran side by side, on average over the time that it was open.
function parallelism(l) {
  return ['Parallelism',
    `${l.open_ns > 0 ? short(l.achieved_parallelism)
      : '–'} of ${l.window} iterations, over ${duration(l.open_ns)}${l.device
        ? ` on ${shorten(clean(l.device), 24)}` : ''}`];
}

// `queue 'jobs' for 3 s, in iteration 2 of loop 'w', in run a/3`: the object of
// an actor's wait, or the actor that awaits its token.
export function describeWait(w) {
  const at = w.state?.startsWith('actor ') ? `an answer of ${w.state}` : w.state ||
    'its kernel to end';
  const what = { token: w.device, grant: `room at ${w.from}, which has not granted its token`,
    device: 'its predicate, from the device' }[w.kind] ?? at;
  return [`${what}${w.for_ns > 0 ? ` for ${duration(w.for_ns)}` : ''}`, w.tag && `in ${w.tag}`,
    w.run && `in run ${w.run}`].filter(Boolean).join(', ');
}

// Rows of a running query's operator: what it holds and what it has sent.
export function operatorRows(o) {
  if (!o) return [];
  return [
    ['Blocked', `${short(o.blocked)} messages`],
    ['State', `${short(o.state_size)} events, ${short(o.peak_state)} at most`],
    ['Output', `${short(o.events_out)} events, ${short(o.retractions_out)} retractions`],
    ['Live bytes', `${bytes(o.live_bytes)}, ${bytes(o.peak_bytes)} at most`],
    o.clipped + o.dropped + o.refused > 0
      ? ['Amiss', `${short(o.clipped)} clipped, ${short(o.dropped)} dropped, ${
        short(o.refused)} refused`] : null,
  ].filter(Boolean);
}

export class Panel {
  // callbacks: goTo(actor id), close()
  constructor(root, callbacks) {
    this.root = root;
    this.callbacks = callbacks;
    this.title = el('h2');
    this.chip = el('span', { class: 'chip' });
    this.body = el('div', { class: 'body' });
    root.append(el('div', { class: 'head' },
      [el('div', { class: 'titles' }, [this.title, this.chip]),
        el('button', { class: 'icon', 'aria-label': 'Close', title: 'Close (Esc)',
          onclick: () => callbacks.close(), text: '×' })]), this.body);
  }

  hide() { this.root.hidden = true; }

  #show(title, state, parts) {
    this.root.hidden = false;
    setText(this.title, shorten(title, 120));
    this.title.title = title;
    this.chip.hidden = !state;
    this.chip.className = `chip ${state}`;
    setText(this.chip, kStateWords[state] ?? '');
    // Rebuilt only where it says something new, so that text can be selected and a focus stays.
    const next = el('div', { class: 'body' }, parts);
    if (next.innerHTML === this.body.innerHTML) return;
    const focused = this.body.contains(document.activeElement)
      ? document.activeElement.textContent : null;
    const top = this.root.scrollTop;
    this.body.replaceWith(next);
    this.body = next;
    this.root.scrollTop = top;
    if (focused !== null) Array.from(next.querySelectorAll('button'))
      .find((b) => b.textContent === focused)?.focus();
  }

  #link(tree, actor) {
    return el('button', { class: 'link',
      onclick: () => this.callbacks.goTo(String(tree.plan.actors.get(actor, 'id'))),
      text: shorten(clean(tree.plan.names[actor]), 34) });
  }

  #counterRows(graph, v) {
    const { totals } = graph;
    const [fires, dead, busy, out] = totals.sums.map((s) => s[v]),
      rates = totals.rates.map((r) => r[v]);
    return [
      ['Firings', `${short(fires)}${rates[0] > 0 ? ` · ${rate(rates[0])}` : ''}`],
      ['Dead tokens',
        dead > 0 ? `${short(dead)}${rates[1] > 0 ? ` · ${rate(rates[1])}` : ''}` : '0'],
      ['Busy', `${duration(busy)}${rates[2] > 0 ? ` · ${short(rates[2] / 1e9)} cores` : ''}`],
      ['Bytes out', `${bytes(out)}${rates[3] > 0 ? ` · ${bytes(rates[3])}/s` : ''}`],
      ['A firing', fires > 0 && busy > 0 ? duration(busy / fires) : '–'],
    ];
  }

  showGroup(graph, v) {
    const { tree, totals, counters } = graph;
    const states = kStates.filter((s) => totals.count(v, s) > 0).map((s) =>
      el('span', { class: `count ${s}`, text: `${short(totals.count(v, s))} ${kStateWords[s]}` }));
    const leaves = tree.leaves(v, 20000);
    const busiest = leaves.map((u) => tree.actors[u]).sort((a, b) =>
      counters.now[2][b] - counters.now[2][a]).slice(0, 8).filter((a) => counters.now[2][a] > 0);
    const amiss = leaves.map((u) => tree.actors[u])
      .filter((a) => kStates[counters.state[a]] === 'failed').slice(0, 8);
    const waiting = leaves.map((u) => tree.actors[u])
      .filter((a) => kStates[counters.state[a]] === 'waiting').slice(0, 6);
    const list = (title, actors, value) => (actors.length
      ? [el('h3', { text: title }),
        el('ul', { class: 'list' },
          actors.map((a) => el('li', {},
            [this.#link(tree, a), el('span', { class: 'right', text: value(a) })])))] : []);
    this.#show(clean(tree.labels[v]), totals.state(v), [
      el('p', { class: 'quiet',
        text: tree.path(v).slice(1, -1).map((u) => shorten(clean(tree.labels[u]), 24))
        .join(' › ') || `in plan ${clean(tree.plan.id)}` }),
      el('div', { class: 'counts' }, states),
      facts([['Actors', short(tree.sizes[v])],
        ['Lines', linesOf(tree.plan, leaves.map((u) => tree.actors[u])).slice(0, 4)
          .map((lines) => shorten(clean(lines), 48)).join(', ')],
        tree.frames[v] && ['Loop', shorten(clean(tree.frames[v]), 40)],
        ...counters.loops.filter((l) => l.loop === tree.frames[v] && l.executions > 0)
          .map(parallelism), ...this.#counterRows(graph, v)]),
      ...list('Failed', amiss, () => ''),
      ...list('Busiest', busiest, (a) => duration(counters.now[2][a])),
      ...list('Waiting', waiting,
        (a) => (counters.waitingFor.has(a)
          ? `for ${shorten(clean(this.#nameOf(tree, counters.waitingFor.get(a))), 16)}` : '')),
    ]);
  }

  #nameOf(tree, id) {
    const actor = tree.plan.actorAt.get(id);
    return actor === undefined ? id : tree.plan.names[actor];
  }

  // `details`: what /api/actor said, or null before it has; `failure`: why it has not.
  showActor(graph, v, details, failure) {
    const { tree, totals, counters } = graph;
    const { plan } = tree, actor = tree.actors[v];
    const known = { ...plan.actors.object(actor), ...(details ?? {}) };
    const parts = [el('p', { class: 'quiet',
      text: [clean(known.op), tree.path(v).slice(1, -1).map((u) =>
        shorten(clean(tree.labels[u]), 24)).join(' › ')].filter(Boolean).join(' · ') })];
    const waitsFor = counters.waitingFor.get(actor);
    const [awaited, waits] = [true, false].map((isToken) =>
      alike((details?.waits ?? []).filter((w) => (w.kind === 'token') === isToken)
        .map(describeWait)));
    if (waits.length || waitsFor)
      parts.push(this.#waits('Waits for ', waits, waitsFor && this.#end(tree, waitsFor)));
    if (awaited.length) parts.push(this.#waits('Awaited by', awaited));
    if (known.op === 'ResidentLoop')
      parts.push(el('p', { class: 'quiet', text: kSeeBody }));
    for (const error of (details?.errors ?? details?.last_errors ?? []).slice(-3))
      parts.push(el('div', { class: 'verdict error' },
        [el('p', { text: shorten(clean(error.text ?? error), 500) })]));
    parts.push(facts([
      ...this.#counterRows(graph, v), ...operatorRows(details?.operator),
      details?.bytes_in === undefined ? null
        : ['Bytes in', details.bytes_in === null ? 'not known: of a shape that only runs know'
          : bytes(details.bytes_in)],
      details?.queue ? ['Queue',
        `${short(details.queue.elements)} of ${short(details.queue.capacity)} elements`] : null,
      ['Node', shorten(clean(known.node), 40)], ['Device', shorten(clean(known.device), 40)],
      ['Partition', clean(known.partition)],
      known.frame ? ['Frame', shorten(clean(known.frame), 40)] : null,
      this.#openIterations(details), details?.loop?.executions > 0 ? parallelism(details.loop)
        : null, ['Id', clean(known.id)],
      known.line ? ['Line', el('code', { text: shorten(clean(known.line), 120) })] : null,
    ]));
    for (const complaint of (details?.operator?.complaints ?? []).slice(0, 3))
      parts.push(el('p', { class: 'quiet', text: shorten(clean(complaint), 200) }));
    parts.push(...this.#edges(tree, actor, 'Inputs', plan.to, plan.from),
      ...this.#edges(tree, actor, 'Outputs', plan.from, plan.to));
    const attributes = typeof known.attributes === 'string'
      ? [known.attributes && ['', known.attributes]].filter(Boolean)
      : Array.isArray(known.attributes)
        ? known.attributes.map((a) => [a.name ?? a[0], a.value ?? a[1]])
      : Object.entries(known.attributes ?? {});
    if (attributes.length)
      parts.push(el('h3', { text: 'Attributes' }),
        facts(attributes.map(([name, value]) => [shorten(clean(name), 24),
          shorten(clean(typeof value === 'string' ? value : JSON.stringify(value)), 80)])));
    if (failure) parts.push(el('p', { class: 'quiet', text: clean(failure) }));
    this.#show(clean(tree.labels[v]), totals.state(v), parts);
  }

  #openIterations(details) {
    const open = details?.open_iterations ?? [];
    if (!open.length) return null;
    return ['Open iterations',
      open.slice(0, 3).map((o) =>
        `${range(o.first, o.last)} of run ${clean(o.run)}, ${o.window} at most`).join('; ')];
  }

  #end(tree, id) {
    const actor = tree.plan.actorAt.get(id);
    return actor !== undefined ? this.#link(tree, actor) : el('span', { text: clean(id) });
  }

  #waits(title, sentences, end) {
    return el('div', { class: 'verdict hang' },
      [el('b', { text: title }), end,
        ...sentences.slice(0, 4).map((text) => el('p', { text: shorten(clean(text), 300) }))]);
  }

  #edges(tree, actor, title, ends, others) {
    const { plan } = tree;
    const found = [];
    for (let e = 0; e < ends.length && found.length < 12; e += 1)
      if (ends[e] === actor && others[e] >= 0) found.push(e);
    if (!found.length) return [];
    return [el('h3', { text: title }),
      el('ul', { class: 'list' },
        found.map((e) => el('li', {},
          [this.#link(tree, others[e]),
            el('span', { class: 'right', text: this.#typeOf(plan, e) })])))];
  }
  #typeOf(plan, e) {
    const shape = plan.edges.get(e, 'shape');
    return shorten(
      clean(
        `${plan.edges.get(e, 'dtype') ?? ''}${shape === undefined || shape === null || shape === ''
          ? '' : ` ${Array.isArray(shape) ? `[${shape.join(', ')}]` : shape}`}`), 26);
  }

  showLink(graph, link) {
    const { tree } = graph;
    const { plan } = tree;
    const flow = graph.flow(link);
    const names = [link.from, link.to].map((v) => shorten(clean(tree.labels[v]), 40));
    this.#show(`${names[0]} → ${names[1]}`, flow.isFull ? 'waiting' : '', [
      flow.isFull ? el('div', { class: 'verdict hang' },
        [el('p', { text: `No credit is left: ${names[0]} may send again when ${
          names[1]} has taken a token.` })]) : null,
      facts([['Edges', short(link.edges.length)],
        flow.cut ? ['Between partitions', short(flow.cut)] : null, ...describeFlow(flow)]),
      el('h3', { text: 'Values' }),
      el('ul', { class: 'list' },
        link.edges.slice(0, 16).map((e) => el('li', {},
          [this.#link(tree, plan.from[e]),
            el('span', { class: 'right', text: this.#typeOf(plan, e) })]))),
    ]);
  }
}
