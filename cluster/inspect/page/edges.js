// How an edge is drawn between two rectangles: {x, y, width, height}. Returns {path, middle: [x,
// y]}.

const round = (n) => Math.round(n * 10) / 10;

function curveThrough(points) {
  // Quadratic pieces through the middles: smooth, and never outside of the points' hull.
  let path = `M${round(points[0][0])},${round(points[0][1])}`;
  if (points.length === 2) return `${path}L${round(points[1][0])},${round(points[1][1])}`;
  for (let i = 1; i + 1 < points.length; i += 1) {
    const [x, y] = points[i], [nx, ny] = points[i + 1];
    const isLast = i + 2 === points.length;
    path +=
      `Q${round(x)},${round(y)} ${round(isLast ? nx : (x + nx) / 2)},${round(isLast ? ny
        : (y + ny) / 2)}`;
  }
  return path;
}

// Draws an edge that dagre did not route: down from the bottom to the top, or around the right if
// it leads back up.
function drawFree(a, b) {
  const ax = a.x + a.width / 2, bx = b.x + b.width / 2;
  const contains = (p, q) => p.x <= q.x && p.y <= q.y && p.x + p.width >= q.x + q.width &&
    p.y + p.height >= q.y + q.height;
  if (contains(a, b) || contains(b, a) || b.y < a.y + a.height - 1) {
    const right = a.x + a.width, end = b.x + b.width,
      bend = Math.max(right, end) + 26 + Math.min(60, Math.abs(a.y - b.y) / 8);
    const ay = a.y + Math.min(a.height / 2, 23), by = b.y + Math.min(b.height / 2, 23);
    if (Math.abs(ay - by) < 4 && end < a.x)
      return { path: `M${round(a.x)},${round(ay)}L${round(end)},${round(by)}`,
        middle: [(a.x + end) / 2, ay] };
    return {
      path: `M${round(right)},${round(ay)}C${round(bend)},${round(ay)} ${round(bend)},${
        round(by)} ${round(end)},${round(by)}`, middle: [bend - 8, (ay + by) / 2] };
  }
  const ay = a.y + a.height, reach = Math.max(16, (b.y - ay) / 2);
  return {
    path: `M${round(ax)},${round(ay)}C${round(ax)},${round(ay + reach)} ${round(bx)},${
      round(b.y - reach)} ${round(bx)},${round(b.y)}`,
    middle: [(ax + bx) / 2, (ay + b.y) / 2],
  };
}

export function drawEdge(a, b, route) {
  if (!route || route.length < 3) return drawFree(a, b);
  const ax = Math.min(Math.max(route[0][0], a.x + 8), a.x + a.width - 8),
    bx = Math.min(Math.max(route.at(-1)[0], b.x + 8), b.x + b.width - 8);
  const points = [[ax, a.y + a.height], ...route.slice(1, -1), [bx, b.y]];
  if (points[0][1] > points.at(-1)[1]) return drawFree(a, b);
  return { path: curveThrough(points), middle: points[Math.floor(points.length / 2)] };
}
