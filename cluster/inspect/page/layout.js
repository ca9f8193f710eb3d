// Positions of boxes. `layout` places one group's children, alone, with dagre; `Stretch` makes room
// if some of them are open, so that placed boxes stay in place. No DOM here: it runs in a worker
// and in tests.

export const kBoxHeight = 52, kGap = 22, kRankGap = 36, kMostWidth = 1500;

// Width by the number of characters: a worker cannot measure text, and boxes that differ little
// look calmer.
export const boxWidth = (label, isGroup) => Math.round(Math.min(270,
  Math.max(isGroup ? 178 : 164, 36 + 8.4 * Math.min(26, label.length) + (isGroup ? 24 : 0))));

// Sets of boxes that edges connect, each in the order of the boxes.
function components(count, edges) {
  const parent = Int32Array.from({ length: count }, (_, i) => i);
  const find = (i) => {
    while (parent[i] !== i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (const [a, b] of edges) parent[find(a)] = find(b);
  const sets = new Map();
  for (let i = 0; i < count; i += 1) {
    const root = find(i);
    if (!sets.has(root)) sets.set(root, []);
    sets.get(root).push(i);
  }
  return [...sets.values()];
}

// One component with dagre, from the top to the bottom: {width, height, at: Map(box, [x, y] of the
// centre), routes: Map(edge, points)}.
function placeComponent(dagre, members, boxes, edges) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: 'TB', nodesep: kGap, ranksep: kRankGap, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const i of members) graph.setNode(String(i), { width: boxes[i][0], height: boxes[i][1] });
  for (const [a, b, weight] of edges)
    graph.setEdge(String(a), String(b), { weight: 1 + Math.log2(weight) });
  dagre.layout(graph);
  const at = new Map(members.map((i) => [i, [graph.node(String(i)).x, graph.node(String(i)).y]]));
  const routes = new Map(edges.map(([a, b]) =>
    [`${a} ${b}`, graph.edge(String(a), String(b)).points.map((p) => [p.x, p.y])]));
  const { width, height } = graph.graph();
  return width > kMostWidth ? wrapped(at, boxes) : { width, height, at, routes };
}

// Ranks that are too wide for a window go on in further rows. Their edges are drawn without dagre's
// points.
function wrapped(at, boxes) {
  const ranks = new Map();
  for (const [i, [x, y]] of at) {
    if (!ranks.has(y)) ranks.set(y, []);
    ranks.get(y).push([x, i]);
  }
  const placed = new Map();
  let top = 0, width = 0;
  for (const [, rank] of [...ranks].sort((a, b) => a[0] - b[0])) {
    rank.sort((a, b) => a[0] - b[0]);
    let row = [], used = 0;
    const finish = () => {
      if (!row.length) return;
      let x = (kMostWidth - used + kGap) / 2, tallest = 0;
      for (const i of row) {
        placed.set(i, [x + boxes[i][0] / 2, top + boxes[i][1] / 2]);
        x += boxes[i][0] + kGap;
        tallest = Math.max(tallest, boxes[i][1]);
      }
      width = Math.max(width, x);
      top += tallest + kRankGap;
      row = [];
      used = 0;
    };
    for (const [, i] of rank) {
      if (used + boxes[i][0] > kMostWidth) finish();
      row.push(i);
      used += boxes[i][0] + kGap;
    }
    finish();
  }
  return { width: Math.max(width, kMostWidth), height: top - kRankGap, at: placed,
    routes: new Map() };
}

// boxes: [[width, height], ...]; edges: [[from, to, weight], ...], each pair once. Components stand
// side by side in rows, in the order of their first box. Returns {width, height, at: [[x, y], ...]
// centres, routes: {"from to": [[x, y], ...]}}.
export function layout(dagre, boxes, edges) {
  const sets = components(boxes.length, edges);
  const setOf = new Int32Array(boxes.length);
  sets.forEach((set, s) => set.forEach((i) => { setOf[i] = s; }));
  const edgesOf = sets.map(() => []);
  for (const edge of edges) edgesOf[setOf[edge[0]]].push(edge);
  const parts = sets.map((set, s) => (set.length === 1
    ? { width: boxes[set[0]][0], height: boxes[set[0]][1],
      at: new Map([[set[0], [boxes[set[0]][0] / 2, boxes[set[0]][1] / 2]]]), routes: new Map() }
    : placeComponent(dagre, set, boxes, edgesOf[s])));

  const area = parts.reduce((sum, p) => sum + (p.width + kGap) * (p.height + kGap), 0);
  const limit = Math.max(Math.sqrt(area * 1.9), ...parts.map((p) => p.width));
  const at = new Array(boxes.length), routes = {};
  let x = 0, y = 0, tallest = 0, width = 0;
  for (const part of parts) {
    if (x > 0 && x + part.width > limit) { y += tallest + kGap; x = 0; tallest = 0; }
    for (const [i, [bx, by]] of part.at) at[i] = [x + bx, y + by];
    for (const [edge, points] of part.routes)
      routes[edge] = points.map(([px, py]) => [x + px, y + py]);
    x += part.width + kGap;
    width = Math.max(width, x - kGap);
    tallest = Math.max(tallest, part.height);
  }
  return { width, height: y + tallest, at, routes };
}

// A monotone map of one axis that gives intervals the length they need: [begin, end, wanted].
// Nowhere does it shrink anything, so what did not overlap still does not.
export class Stretch {
  constructor(intervals) {
    const marks = [...new Set(intervals.flatMap(([begin, end]) => [begin, end]))].sort(
      (a, b) => a - b);
    this.from = marks;
    this.to = [];
    this.slopes = [];
    let at = marks[0] ?? 0;
    for (let i = 0; i < marks.length; i += 1) {
      this.to.push(at);
      if (i + 1 === marks.length) break;
      const middle = (marks[i] + marks[i + 1]) / 2;
      let slope = 1;
      for (const [begin, end, wanted] of intervals) if (begin < middle && middle < end)
        slope = Math.max(slope, wanted / (end - begin));
      this.slopes.push(slope);
      at += (marks[i + 1] - marks[i]) * slope;
    }
  }
  map(x) {
    const { from, to, slopes } = this;
    if (!from.length || x <= from[0]) return x;
    let i = from.length - 1;
    while (i > 0 && from[i] > x) i -= 1;
    return to[i] + (x - from[i]) * (slopes[i] ?? 1);
  }
}

// Inside an open box: room for its name above, and around.
export const kPad = 18, kTitle = 38;

// All boxes of a view, as rectangles on one plane: Map(box, {x, y, width, height, depth, isOpen}),
// and routes of edges between siblings. `layoutOf(group)` is its layout, or undefined while it is
// under way: then the group stays closed.
export function compose(tree, open, layoutOf) {
  const rects = new Map(), routes = new Map();
  const sizeOf = new Map();

  // From the inside to the outside: what an open group needs.
  const measure = (group) => {
    const plan = layoutOf(group);
    const children = tree.children[group];
    const wide = [], high = [];
    for (let i = 0; i < children.length; i += 1) {
      const v = children[i];
      if (!open.has(v) || !layoutOf(v)) continue;
      const inner = measure(v);
      const [w, h] = plan.boxes[i], [x, y] = plan.at[i];
      wide.push([x - w / 2, x + w / 2, inner.width]);
      high.push([y - h / 2, y + h / 2, inner.height]);
    }
    const across = new Stretch(wide), down = new Stretch(high);
    const size = { across, down, width: across.map(plan.width) + 2 * kPad,
      height: down.map(plan.height) + kPad + kTitle };
    sizeOf.set(group, size);
    return size;
  };

  const place = (group, left, top, depth) => {
    const plan = layoutOf(group), { across, down } = sizeOf.get(group);
    const children = tree.children[group];
    for (let i = 0; i < children.length; i += 1) {
      const v = children[i], inner = sizeOf.get(v), isOpen = inner !== undefined;
      const [w, h] = isOpen ? [inner.width, inner.height] : plan.boxes[i];
      const x = left + across.map(plan.at[i][0]) - w / 2, y = top + down.map(plan.at[i][1]) - h / 2;
      rects.set(v, { x, y, width: w, height: h, depth, isOpen });
      if (isOpen) place(v, x + kPad, y + kTitle, depth + 1);
    }
    for (const [pair, points] of Object.entries(plan.routes)) {
      const [a, b] = pair.split(' ').map(Number);
      routes.set(`${children[a]} ${children[b]}`,
        points.map(([x, y]) => [left + across.map(x), top + down.map(y)]));
    }
  };
  if (layoutOf(0)) {
    measure(0);
    place(0, 0, 0, 0);
  }
  return { rects, routes };
}
