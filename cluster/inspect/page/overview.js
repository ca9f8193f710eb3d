// The first tab: one line of progress, the loss, nodes, busiest actors, what is amiss, failed runs.
// Each has its position, which stays.
import {el, keyed, setAttribute, setText} from './dom.js';
import {bytes, clean, duration, percent, rate, roughly, short, shorten} from './format.js';
import {kStateWords} from './graph.js';
import {kStates} from './model.js';
import {LossCurve} from './loss.js';
import {meter, setMeter, setNodeMeters} from './meter.js';
import {RunTable} from './runs.js';

const kMostFailed = 200, kMostPoints = 600;

const percents = (done) => `${(100 * done).toFixed(done < 0.1 ? 1 : 0)} %`;
const withCommas = (n) => (Number.isFinite(n) ? Math.round(n).toLocaleString('en-US') : '–');
const exact = (n) =>
    (Number.isFinite(n) ? (Math.abs(n) >= 1e4 || (Math.abs(n) < 1e-3 && n !== 0) ?
                               short(n) :
                               Number(n.toPrecision(4)).toString()) :
                          '–');
// `14:02:11` of the reader's clock.
const clockTime = (ns) => new Date(ns / 1e6).toTimeString().slice(0, 8);

// The places of a failed run's flight records, and how often it failed.
function flightWords({flights, times}) {
  const records = [...flights].map(
      ([node, flight]) => `${shorten(clean(flight), 300)} on node ${shorten(clean(node), 40)}`);
  return (records.length ? `Flight record${records.length > 1 ? 's' : ''}: ${
                               records.slice(0, 8).join('; ')}. ` :
                           '') +
      (times > 1 ? `${withCommas(times)} failures of this kind.` : '');
}

export class Overview {
  // callbacks: plan(id), actor(id)
  constructor(root, callbacks) {
    this.callbacks = callbacks;
    this.firings = [];  // [seconds, time_ns, a second] of the plan that is shown
    const card = (name, title, ...children) => {
      const heading = el('h2', {text: title}), note = el('span', {class: 'quiet note'});
      const body =
          el('section', {class: `tile ${name}`, 'aria-label': title},
             [el('div', {class: 'title'}, [heading, note]), el('div', {class: 'body'}, children)]);
      Object.assign(body, {heading, note});
      return body;
    };
    this.progress = el(
        'section', {class: 'tile progress', 'aria-label': 'Progress'},
        Array.from({length: 5}, () => el('div', {class: 'figure'}, [
                                  el('span', {class: 'label'}), el('b'), el('span', {class: 'of'})
                                ])));
    this.done = el('span', {class: 'fill'});
    this.bar = el('div', {class: 'track done'}, [this.done]);
    this.progress.append(this.bar);
    const loss = el('section', {class: 'tile loss', 'aria-label': 'Loss'});
    this.loss = new LossCurve(loss);
    this.amiss = el('ul', {class: 'entries', role: 'status', 'aria-live': 'polite'});
    this.amissTile = card('amiss', 'Amiss', this.amiss);
    this.failed = el('ul', {class: 'entries'});
    this.failedTile = card('failed', 'Failed runs', this.failed);
    this.busiest = el('tbody');
    this.busiestTile = card(
        'busiest', 'Busiest actors',
        this.#table(
            'actors',
            [
              ['Actor', 'actor'], ['Line', 'line'], ['Node', 'node'], ['State', 'state'],
              ['Cores', 'busy']
            ],
            this.busiest));
    this.nodes = el('tbody');
    this.nodesTile = card(
        'nodes', 'Nodes',
        this.#table(
            'nodes',
            [
              ['Node', 'node'], ['State', 'state'], ['CPU', 'meter'], ['Memory', 'meter'],
              ['Fullest device', 'meter wide'], ['Queue', 'meter narrow'],
              ['Slowest peer', 'peer']
            ],
            this.nodes));
    this.runs = new RunTable({plan: (id) => callbacks.plan(id)});
    this.runsTile = card('runs', 'Runs', this.runs.root);
    root.append(
        this.progress, el('div', {class: 'column'}, [loss, this.nodesTile]),
        el('div', {class: 'column'},
           [this.amissTile, this.failedTile, this.busiestTile, this.runsTile]));
  }

  #table(name, columns, body) {
    return el('table', {class: `fixed ${name}`}, [
      el('colgroup', {}, columns.map(([, kind]) => el('col', {class: kind}))),
      el('thead', {},
         [el('tr', {},
             columns.map(([text, kind]) => el('th', {scope: 'col', class: kind, text})))]),
      body
    ]);
  }

  // {state, training, rows (of RunTimes), failures, amiss, nodes, busiest: {plan, counters, top},
  // firings a second}
  update(given) {
    this.#updateProgress(given);
    this.#updateLoss(given);
    this.#updateAmiss(given.amiss);
    this.#updateFailed(given.failures);
    this.#updateNodes(given.nodes);
    this.#updateBusiest(given.busiest);
    setText(
        this.runsTile.note, `${short(given.rows.reduce((n, r) => n + r.running, 0))} under way`);
    this.runs.update(given.rows, given.accused);
  }

  #figures(rows) {
    Array.from(this.progress.children).slice(0, 5).forEach((figure, i) => {
      const [label, value, of] = rows[i];
      setText(figure.children[0], label);
      setText(figure.children[1], value);
      setText(figure.children[2], of);
    });
  }

  #updateProgress({state, training, rows, failures, firings}) {
    this.bar.hidden = !training?.steps;
    if (training) {
      const done = training.steps ? training.step / training.steps : NaN;
      // A training that stands still, or has gone: neither its pace nor its end is known.
      const quiet = state.time_ns - training.told_ns;
      const isLate = quiet > Math.max(20e9, 20e9 / (training.perSecond || Infinity));
      this.done.style.width = `${Math.min(100, 100 * (done || 0)).toFixed(2)}%`;
      this.#figures([
        [
          'Step', withCommas(training.step),
          training.steps ? `of ${withCommas(training.steps)} · ${percents(done)}` :
                           'total unknown'
        ],
        ['Loss', exact(training.loss), ''],
        ['Validation', exact(training.validation), ''],
        [
          'Rate',
          Number.isFinite(training.rate) ? short(training.rate) :
                                           rate(training.perSecond || 0).replace('/s', ''),
          `${
              Number.isFinite(training.rate) ? shorten(clean(training.unit), 14) || 'units' :
                                               'steps'} a second`
        ],
        [
          'Time left', training.left_ns === 0 ? 'done' : isLate ? '–' : duration(training.left_ns),
          training.left_ns === 0 ? '' :
              isLate              ? `no report for ${duration(quiet)}` :
              Number.isFinite(training.left_ns) ?
                       `until ${clockTime(state.time_ns + training.left_ns).slice(0, 5)}` :
                       ''
        ],
      ]);
      setAttribute(
          this.progress, 'title',
          `${training.node ? `reported by ${clean(training.node)} ` : 'reported '}${
              duration(Math.max(0, state.time_ns - training.told_ns))} ago${
              training.others ? `; ${training.others} more record a training` : ''}`);
      return;
    }
    const sum = (of) => rows.reduce((n, r) => n + (r[of] || 0), 0);
    this.#figures([
      ['Runs under way', short(sum('running')), ''],
      ['Ended', withCommas(sum('count')), ''],
      ['Failed', short(failures.length), 'in the last hour'],
      ['Firings', firings > 0 ? short(firings) : '–', 'a second'],
      ['Plans', short(rows.length), ''],
    ]);
  }

  #updateLoss({state, training, firings}) {
    if (Number.isFinite(firings)) this.firings.push([state.time_ns, state.time_ns, firings]);
    if (this.firings.length > kMostPoints) this.firings.shift();
    const curve = training?.curve;
    if (curve) {
      this.loss.set({
        title: curve.name === 'loss' ? 'Loss' : curve.name,
        name: curve.name,
        points: curve.points,
        check: training.check
      });
      return;
    }
    const now = state.time_ns;
    this.loss.set(
        this.firings.length > 2 ? {
          title: 'Firings a second',
          name: 'firings',
          points: this.firings.map(([at, t, v]) => [(at - now) / 1e9, t, v]),
          format: (s) => (s > -0.5 ? 'now' : `−${duration(-s * 1e9)}`)
        } :
                                  null,
        'No program records a loss: records.scalar("loss", step, loss) shows it here, ' +
          'records.progress({.step = step, .steps = steps}) the line above.');
  }

  #updateAmiss(all) {
    setText(this.amissTile.note, all.length ? `${all.length}` : '');
    this.amissTile.classList.toggle('bad', all.length > 0);
    const rows =
        all.length ? all : [{key: 'none', what: '', text: 'Nothing is amiss.', kind: 'well'}];
    keyed(
        this.amiss, rows, (v) => v.key,
        (v) => el('li', {}, [el(v.actor ? 'button' : 'div', {class: 'entry'},
                                [el('b'), el('span', {class: 'text'})])]),
        (li, v) => {
          const [box] = li.children;
          box.className = `entry ${v.kind}`;
          box.onclick = v.actor ? () => this.callbacks.actor(v.actor) : null;
          setText(box.children[0], shorten(clean(v.what), 30));
          setText(box.children[1], shorten(clean(v.text), 400));
          setAttribute(li, 'title', clean(v.text));
        });
  }

  #updateFailed(failures) {
    setText(this.failedTile.note, failures.length ? `${failures.length} in the last hour` : '');
    this.failedTile.classList.toggle('bad', failures.length > 0);
    const rows = failures.slice(0, kMostFailed);
    keyed(
        this.failed, rows.length ? rows : [{key: 'none'}],
        (f) => f.key ?? `${f.run} ${f.time_ns} ${f.text}`,
        (f) =>
            (
                f.key ? el('li', {class: 'quiet', text: 'No run has failed in the last hour.'}) :
                        el('li', {}, [el('details', {class: 'entry error'},
                                         [el('summary', {},
                                             [
                                               el('b'), el('span', {class: 'when quiet'}),
                                               el('span', {class: 'text'})
                                             ]),
                                          el('p', {class: 'how'}), el('p', {class: 'flight'})])])),
        (li, f) => {
          if (f.key) return;
          const [name, when, text] = li.firstChild.firstChild.children;
          setText(name, shorten(clean(f.run), 30) || 'a run');
          setText(
              when,
              `${clockTime(f.time_ns)}${
                  f.nodes.size ? ` · on ${shorten([...f.nodes].map(clean).join(', '), 40)}` : ''}`);
          setText(text, shorten(clean(f.text), 1000));
          setAttribute(li, 'title', clean(f.text));
          const [, how, flight] = li.firstChild.children;
          setText(how, f.how ? `To go on: ${shorten(clean(f.how), 1000)}` : '');
          setText(flight, flightWords(f));
        });
  }

  #updateNodes(nodes) {
    const alive = nodes.filter((n) => n.isThere && n.state === 'alive').length,
          present = nodes.filter((n) => n.state !== 'left').length;
    setText(this.nodesTile.note, `${alive} of ${present} alive`);
    this.nodesTile.classList.toggle('bad', nodes.some((n) => !n.isThere && n.state !== 'left'));
    keyed(this.nodes, nodes, (n) => n.name, () => this.#makeNode(), (row, n) => {
      row.className = `node ${n.state}`;
      setText(row.name, shorten(clean(n.name), 12));
      setAttribute(row.name, 'title', clean(n.name));
      setText(row.state, clean(n.state));
      setText(row.since, Number.isFinite(n.since_ns) ? roughly(n.since_ns) : '');
      for (const cell of row.ofNode) cell.hidden = !n.isThere;
      row.why.hidden = n.isThere;
      setText(row.why, n.isThere ? '' : clean(n.why));
      setAttribute(row.why, 'title', clean(n.why));
      if (!n.isThere) return;
      const {peer} = n;
      setNodeMeters(row, n, {isCell: true});
      setText(
          row.peer,
          peer ? `${peer.round_trip_ns ? duration(peer.round_trip_ns) : '–'}${
                     n.peers > 1 ? `, worst of ${n.peers}` : ''}` :
                                   '–');
      setAttribute(
          row.peer, 'title',
          peer ?
              `a ping to ${clean(peer.node)}; ${bytes(n.waiting)} wait to be sent or acknowledged` :
              '');
    });
  }

  #makeNode() {
    const name = el('b'), state = el('span', {class: 'word'}),
          since = el('span', {class: 'quiet since'});
    const [cpu, memory, device, queue] = [meter(), meter(), meter(), meter()],
                                peer = el('td', {class: 'peer'}),
                                why = el('td', {class: 'why', colspan: 5, hidden: true});
    const meters = [cpu, memory, device, queue].map((m) => el('td', {class: 'meter'}, [m.root])),
          cells = [...meters, peer];
    const row = el('tr', {}, [
      el('td', {class: 'name'}, [el('span', {class: 'dot'}), name]),
      el('td', {class: 'state'}, [state, since]), ...cells, why
    ]);
    return Object.assign(
        row, {name, state, since, cpu, memory, device, queue, peer, why, ofNode: cells});
  }

  #updateBusiest({plan, counters, top} = {}) {
    setText(
        this.busiestTile.querySelector('th.busy'),
        !top?.length || Number.isFinite(top[0].cores) ? 'Cores' : 'Share');
    setText(this.busiestTile.note, plan ? `of plan ${shorten(clean(plan.id), 24)}` : '');
    const rows = Array.from({length: 5}, (_, i) => top?.[i] ?? null);
    keyed(
        this.busiest, rows.map((row, i) => ({row, i})), ({i}) => i, () => this.#makeActor(),
        (tr, {row}) => {
          const [name, line, node, state, busy] = tr.children;
          tr.link.hidden = !row;
          setText(line, row ? shorten(clean(plan.actors.get(row.actor, 'line')), 14) || '–' : '');
          setText(node, row ? shorten(clean(plan.actors.get(row.actor, 'node')), 8) : '');
          tr.meter.root.hidden = !row;
          const word = row ? kStates[counters.state[row.actor]] : '';
          state.className = `state ${word}`;
          setText(state, row ? kStateWords[word] : '');
          if (!row) return;
          const scope = clean(plan.actors.get(row.actor, 'scope') ?? ''),
                label = clean(plan.names[row.actor]);
          setText(tr.link, shorten(label, 18));
          setAttribute(
              name, 'title',
              `${label}, ${clean(plan.actors.get(row.actor, 'op'))}${
                  scope ? `, in ${scope}` : ''}`);
          tr.link.onclick = () => this.callbacks.actor(String(plan.actors.get(row.actor, 'id')));
          setMeter(
              tr.meter, row.share,
              Number.isFinite(row.cores) ? row.cores.toFixed(row.cores < 0.095 ? 3 : 2) :
                                           percent(row.share));
          tr.meter.fill.classList.remove('high');
          setAttribute(busy, 'title', `${percent(row.share)} of what this plan keeps busy`);
        });
  }

  #makeActor() {
    const link = el('button', {class: 'link'}), m = meter();
    return Object.assign(
        el('tr', {},
           [
             el('td', {class: 'name'}, [link]), el('td'), el('td'), el('td', {class: 'state'}),
             el('td', {class: 'meter'}, [m.root])
           ]),
        {link, meter: m});
  }
}
