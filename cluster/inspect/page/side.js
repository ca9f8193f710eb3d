// The left side: what is amiss, what runs, who is there.
import { el, keyed, setAttribute, setText } from './dom.js';
import { alike, bytes, clean, duration, percent, range, rate, short, shorten, timeless } from './format.js';

function meter(label) {
  const fill = el('span', { class: 'fill' });
  const value = el('span', { class: 'value' });
  return { root: el('div', { class: 'meter' }, [el('span', { class: 'label', text: label }), el('span', { class: 'track' }, [fill]), value]), fill, value };
}
function setMeter(m, fraction, text) {
  m.fill.style.width = `${Math.round(100 * Math.min(1, Math.max(0, fraction || 0)))}%`;
  m.fill.classList.toggle('high', fraction > 0.9);
  setText(m.value, text);
}

export class Side {
  // callbacks: plan(id), actor(id)
  constructor(root, callbacks) {
    this.callbacks = callbacks;
    this.fired = new Map();  // run: [time, fired, rate]
    this.verdicts = el('div', { class: 'verdicts', role: 'status', 'aria-live': 'polite' });
    this.runs = el('div', { class: 'cards' });
    this.recent = el('div', { class: 'recent' });
    this.nodes = el('div', { class: 'cards' });
    this.noRuns = el('p', { class: 'quiet', text: 'No run is under way.' });
    const section = (title, ...children) => el('section', {}, [el('h2', { text: title }), ...children]);
    this.amiss = section('Amiss', this.verdicts);
    this.amiss.hidden = true;
    root.append(this.amiss, section('Runs', this.noRuns, this.runs, this.recent), section('Nodes', this.nodes));
  }

  // verdicts: of /api/diagnose, which accuses only where a run hangs; a run's own sentences say why it has not ended yet.
  update(state, verdicts) {
    const runs = state.runs ?? [];
    this.#updateVerdicts(state, verdicts);
    this.accused = new Set(verdicts.map((v) => String(v.run)));
    this.noRuns.hidden = runs.length > 0;
    keyed(this.runs, runs, (r) => r.id, (r) => this.#makeRun(r), (card, r) => this.#updateRun(card, r, state.time_ns));
    keyed(this.recent, [...(state.recent ?? [])].sort((a, b) => b.ended_ns - a.ended_ns).slice(0, 6), (r) => r.id, () => el('button', { class: 'past' }, [el('span', { class: 'mark' }), el('span', { class: 'id' }), el('span', { class: 'took' }), el('span', { class: 'why' })]),
      (row, r) => {
        setText(row.children[0], r.ok ? '✓' : '✕');
        row.classList.toggle('bad', !r.ok);
        setText(row.children[1], clean(r.id));
        setText(row.children[2], duration(r.took_ns));
        setText(row.children[3], r.ok ? '' : shorten(clean(r.error), 300));
        row.title = r.ok ? `run ${clean(r.id)} of plan ${clean(r.plan)} ended well` : clean(r.error);
        row.onclick = () => this.callbacks.plan(r.plan);
      });
    keyed(this.nodes, state.nodes ?? [], (n) => n.name, () => this.#makeNode(), (card, n) => this.#updateNode(card, n, state.time_ns));
  }

  #updateVerdicts(state, verdicts) {
    const said = verdicts.map((v) => ({ key: `${v.run} ${v.actor} ${timeless(v.text)}`, text: v.text, run: v.run, kind: 'hang', actor: v.actor }));
    const failed = (state.recent ?? []).filter((r) => !r.ok && state.time_ns - r.ended_ns < 60e9).sort((a, b) => b.ended_ns - a.ended_ns).slice(0, 2)
      .map((r) => ({ key: `x ${r.id}`, text: r.error || 'failed', run: r.id, kind: 'error' }));
    const away = (state.nodes ?? []).filter((n) => n.reachable === false && n.state !== 'left')
      .map((n) => ({ key: `n ${n.name}`, text: n.why || `${n.name} does not answer`, run: n.name, kind: 'error' }));
    const all = [...new Map([...said, ...failed, ...away].map((v) => [v.key, v])).values()];
    this.amiss.hidden = all.length === 0;
    keyed(this.verdicts, all, (v) => v.key, (v) => el(v.actor ? 'button' : 'div', {}, [el('b'), el('span', { class: 'text' })]), (box, v) => {
      box.className = `verdict ${v.kind}${v.actor ? ' leads' : ''}`;
      box.onclick = v.actor ? () => this.callbacks.actor(v.actor) : null;
      setText(box.children[0], clean(v.run));
      setText(box.children[1], shorten(clean(v.text), 400));
    });
  }

  #makeRun(run) {
    const card = el('button', { class: 'card run' }, [
      el('div', { class: 'line' }, [el('span', { class: 'pulse' }), el('b'), el('span', { class: 'right' })]),
      el('div', { class: 'line quiet' }, [el('span'), el('span', { class: 'right' })]),
      el('div', { class: 'loops' })]);
    card.onclick = () => this.callbacks.plan(run.plan);
    return card;
  }

  #updateRun(card, run, time) {
    const [top, below, loops] = card.children;
    const seen = this.fired.get(run.id);
    const perSecond = seen && time > seen[0] ? Math.max(0, (run.fired - seen[1]) / ((time - seen[0]) / 1e9)) : 0;
    this.fired.set(run.id, [time, run.fired]);
    const waits = (run.waits ?? []).length, amiss = this.accused.has(String(run.id));
    card.title = [run.id, ...alike(run.verdicts ?? []).slice(0, 3)].map((text) => shorten(clean(text), 300)).join('\n');
    card.classList.toggle('amiss', amiss);
    setText(top.children[1], shorten(clean(run.id), 16));  // its number is at the end
    setText(top.children[2], duration(run.for_ns));
    setText(below.children[0], `step ${short(run.step)} · ${short(run.fired)} fired`);
    setText(below.children[1], run.state === 'ending' ? 'ending' : perSecond > 0 ? rate(perSecond) : waits ? `waits for ${waits}` : '');
    keyed(loops, (run.loops ?? []).slice(0, 4), (l) => `${l.loop} ${l.tag} ${l.node} ${l.device}`, () => {
      const m = meter('');
      m.root.meter = m;
      return m.root;
    }, (root, l) => {
      const m = root.meter, open = l.last - l.first + 1;
      setText(root.children[0], `↻ ${shorten(clean(l.loop), 14)}`);
      setMeter(m, l.window > 0 ? open / l.window : 0, range(l.first, l.last));
      m.fill.classList.remove('high');
      root.title = `loop ${clean(l.loop)} on ${clean(l.node)}: ${open} iterations are open, of at most ${l.window}`;
    });
  }

  #makeNode() {
    const cpu = meter('cpu'), memory = meter('memory'), devices = el('div');
    const links = el('div', { class: 'links' });
    const card = el('div', { class: 'card node' }, [
      el('div', { class: 'line' }, [el('span', { class: 'dot' }), el('b'), el('span', { class: 'right quiet' })]), cpu.root, memory.root, devices, el('p', { class: 'quiet why' }), links]);
    Object.assign(card, { cpu, memory, devices, links });
    return card;
  }

  #updateNode(card, node, time) {
    const top = card.children[0], isThere = node.reachable !== false;
    card.className = `card node ${isThere ? node.state : 'away'}`;
    setText(top.children[1], clean(node.name));
    setText(top.children[2], node.since_ns ? `${clean(node.state)} for ${duration(Math.max(0, time - node.since_ns))}` : clean(node.state));
    for (const part of [card.cpu.root, card.memory.root, card.devices, card.links]) part.hidden = !isThere;
    setText(card.children[4], isThere ? '' : clean(node.why || 'does not answer'));
    if (!isThere) return;
    setMeter(card.cpu, node.cpu / node.cores, node.cores ? `${short(node.cpu)} of ${node.cores}` : '–');
    const memory = node.memory ?? {};
    setMeter(card.memory, memory.resident / memory.total, memory.resident ? bytes(memory.resident) : '–');
    const devices = (node.devices ?? []).slice(0, 8).flatMap((d) => (d.swapped ? [d, { ...d, key: `${d.name} swapped` }] : [d]));
    keyed(card.devices, devices, (d) => d.key ?? d.name, () => {
      const m = meter('');
      m.root.meter = m;
      return m.root;
    }, (root, d) => {
      if (d.key) {
        setText(root.children[0], 'swapped');
        setMeter(root.meter, d.limit > 0 ? d.swapped / d.limit : 0, bytes(d.swapped));
        root.title = `${clean(d.name)}: ${bytes(d.swapped)} moved to the host's memory`;
        return;
      }
      const name = clean(d.name).split('/').pop();
      setText(root.children[0], shorten(name, 12));
      setMeter(root.meter, d.limit > 0 ? d.in_use / d.limit : 0, bytes(d.in_use));
      root.title = `${clean(d.name)}: ${bytes(d.in_use)} in use, ${bytes(d.peak)} at most${d.limit ? `, of ${bytes(d.limit)}` : ''}`;
    });
    keyed(card.links, (node.peers ?? []).slice(0, 8), (p) => p.node, () => el('div', { class: 'line quiet' }, [el('span'), el('span', { class: 'right' })]), (root, p) => {
      const waiting = p.queued_bytes + p.unacknowledged_bytes;
      setText(root.children[0], `→ ${shorten(clean(p.node), 16)}`);
      setText(root.children[1], `${waiting ? `${bytes(waiting)} waiting · ` : ''}${p.round_trip_ns ? duration(p.round_trip_ns) : '–'}`);
      setAttribute(root, 'title', `to ${clean(p.node)}: ${bytes(p.sent_bytes)} sent, ${bytes(p.received_bytes)} received, ${bytes(p.queued_bytes)} queued, ${bytes(p.unacknowledged_bytes)} unacknowledged; a ping takes ${p.round_trip_ns ? duration(p.round_trip_ns) : 'an unknown time'}`);
    });
    setAttribute(card, 'title', `${clean(node.address)}\n${Object.entries(node.labels ?? {}).map(([k, v]) => `${clean(k)}=${clean(v)}`).join(' ')}\n${clean(node.engine)}`);
    if (node.cores) card.cpu.root.title = `${percent(node.cpu / node.cores)} of ${node.cores} cores`;
  }
}
