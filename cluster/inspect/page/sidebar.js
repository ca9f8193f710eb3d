// The left side: what is amiss, runs, nodes. Every row has its height and every number its place,
// so nothing moves while they change.
import {el, keyed, setAttribute, setText} from './dom.js';
import {bytes, clean, duration, short, shorten} from './format.js';
import {meter, setMeter, setNodeMeters} from './meter.js';
import {RunTable} from './runs.js';

export class Side {
  // callbacks: plan(id), actor(id), overview()
  constructor(root, callbacks) {
    this.callbacks = callbacks;
    this.verdicts = el('div', {class: 'verdicts', role: 'status', 'aria-live': 'polite'});
    this.more = el('button', {class: 'link', onclick: () => callbacks.overview()});
    this.runs = new RunTable({plan: (id) => callbacks.plan(id)}, {isShort: true});
    this.nodes = el('div', {class: 'cards'});
    const section = (title, ...children) =>
        el('section', {}, [el('h2', {text: title}), ...children]);
    root.append(
        el('section', {class: 'amiss'},
           [el('div', {class: 'title'}, [el('h2', {text: 'Amiss'}), this.more]), this.verdicts]),
        section('Runs', this.runs.root), section('Nodes', this.nodes));
  }

  // {rows (of RunTimes), amiss, failures, nodes (of nodeRow), accused}
  update({rows, amiss, failures, nodes, accused}) {
    this.#updateAmiss(amiss, failures);
    this.runs.update(rows, accused);
    keyed(
        this.nodes, nodes, (n) => n.name, () => this.#makeNode(),
        (card, n) => this.#updateNode(card, n));
  }

  // The worst, of three lines; the others are in the overview.
  #updateAmiss(amiss, failures) {
    const failed = failures.length ? [{
      key: `x ${failures[0].run} ${failures[0].time_ns}`,
      what: failures[0].run,
      text: failures[0].text,
      kind: 'error'
    }] :
                                     [];
    const all = [...amiss, ...failed],
          rest = amiss.length + failures.length - Math.min(1, all.length);
    setText(this.more, rest > 0 ? `and ${short(rest)} more` : '');
    const shown = all.length ? all.slice(0, 1) :
                               [{key: 'none', what: '', text: 'Nothing is amiss.', kind: 'well'}];
    keyed(
        this.verdicts, shown, (v) => `${v.key} ${v.actor ? 1 : 0}`,
        (v) => el(v.actor ? 'button' : 'div', {}, [el('b'), el('span', {class: 'text'})]),
        (box, v) => {
          box.className = `verdict ${v.kind}${v.actor ? ' leads' : ''}`;
          box.onclick = v.actor ? () => this.callbacks.actor(v.actor) : null;
          setText(box.children[0], shorten(clean(v.what), 26));
          setText(box.children[1], shorten(clean(v.text), 400));
          setAttribute(box, 'title', clean(v.text));
        });
  }

  #makeNode() {
    const name = el('b'), state = el('span', {class: 'right quiet'}),
          why = el('p', {class: 'why', hidden: true});
    const rows = Object.fromEntries([
      ['cpu', 'cpu'], ['memory', 'memory'], ['device', 'device'], ['queue', 'queue'],
      ['swapped', 'swapped'], ['peer', 'peer']
    ].map(([key, label]) => [key, meter(label)]));
    const card = el('div', {class: 'card node'}, [
      el('div', {class: 'line'}, [el('span', {class: 'dot'}), name, state]),
      ...Object.values(rows).map((m) => m.root), why
    ]);
    return Object.assign(card, {name, state, why, rows});
  }

  #updateNode(card, n) {
    const {device, queue, swapped, peer} = card.rows;
    card.className = `card node ${n.state}`;
    setText(card.name, clean(n.name));
    setText(
        card.state,
        `${clean(n.state)}${Number.isFinite(n.since_ns) ? ` ${duration(n.since_ns)}` : ''}`);
    card.why.hidden = n.isThere;
    setText(card.why, clean(n.why));
    setAttribute(card.why, 'title', clean(n.why));
    for (const row of Object.values(card.rows)) row.root.hidden = !n.isThere;
    if (!n.isThere) return;
    setNodeMeters(card.rows, n, {isCell: false});
    setText(
        device.name,
        n.devices > 1 ? `worst of ${n.devices}` :
                        shorten(clean(n.device?.name ?? 'device').split('/').pop(), 11));
    setText(
        queue.name,
        n.queue ? shorten(clean(`${n.queue.device.split('/').pop()} ${n.queue.name}`), 14) :
                  'queue');
    setMeter(
        swapped, n.swapped && n.device?.limit ? n.swapped / n.device.limit : 0, bytes(n.swapped));
    swapped.fill.classList.remove('high');
    setText(
        peer.name,
        n.peers > 1 ? `worst of ${n.peers}` :
            n.peers ? `→ ${shorten(clean(n.peer.node), 9)}` :
                      'peer');
    setMeter(peer, 0, n.peer ? (n.peer.round_trip_ns ? duration(n.peer.round_trip_ns) : '–') : '–');
    setAttribute(
        peer.root, 'title',
        n.peer ? `a ping to ${clean(n.peer.node)}, the slowest of ${n.peers}; ${
                     bytes(n.waiting)} wait to be sent or acknowledged` :
                 '');
  }
}
