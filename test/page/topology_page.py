#!/usr/bin/python3
"""topology_page.py SOURCE: prints the page's time to interactive for scripts/bench.

It is measured for 1,000, 10,000 and 100,000 actors, from the navigation until the graph is drawn
and takes keys, by the page's own clock; headless Chromium and the made-up node share the machine.
Also the time from a click on a group until it is open.
"""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser  # noqa: E402

OPEN = """(async () => {
  document.querySelector('#tab-graph')?.click();
  const count = () => document.querySelectorAll('.box').length, before = count(),
    begin = performance.now();
  const groups = [...document.querySelectorAll('.box.group:not(.open)')];
  groups[Math.floor(groups.length / 2)].dispatchEvent(new MouseEvent('dblclick', {bubbles: true}));
  while (count() === before) await new Promise((done) => requestAnimationFrame(done));
  return performance.now() - begin;
})()"""


def measure(source, actors, browser):
    server = subprocess.Popen(
        [os.path.join(source, 'test/page/fake_node.py'), source, '--actors', str(actors)],
        stdout=subprocess.PIPE,
        text=True,
    )
    url = server.stdout.readline().strip()
    ready, opened = [], []
    try:
        for _ in range(5):
            page = browser.open(url, 1440, 900)
            ready.append(float(page.until('document.documentElement.dataset.interactive')))
            opened.append(page.ask(OPEN))
            page.call('Page.close')
    finally:
        server.kill()
        server.wait()
    return ready, opened


def main():
    with Browser() as browser:
        for actors in (1000, 10_000, 100_000):
            ready, opened = measure(sys.argv[1], actors, browser)
            for name, values, budget in (
                ('interactive', ready, 2000 if actors == 10_000 else None),
                ('open_a_group', opened, None),
            ):
                line = {
                    'name': f'topology_page_{name}_{actors}',
                    'value': round(statistics.median(values), 1),
                    'unit': 'ms',
                    'min': round(min(values), 1),
                    'max': round(max(values), 1),
                    'peer': 'none',
                    'peer_value': None,
                    'ratio': None,
                    'threads': 1,
                    'peer_version': '',
                }
                if budget:
                    line['budget_value'] = budget
                print(json.dumps(line), flush=True)


if __name__ == '__main__':
    main()
