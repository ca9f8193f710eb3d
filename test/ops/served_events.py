"""served_events.py FOLDER TAG...: prints the values that TensorBoard serves of event files.

It prints one line a value, with texts in quotes.

TAG is `histogram:NAME` or `text:NAME`. The script waits until TensorBoard, which loads beside
serving, lists all of them.
"""

import json
import os
import re
import sys
import time
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

os.environ['CUDA_VISIBLE_DEVICES'] = ''
from tensorboard import default, program  # noqa: E402

PLUGINS = {
    'histogram': ('histograms/tags', 'histograms/histograms'),
    'text': ('text/tags', 'text/text'),
}
folder, *wanted = sys.argv[1:]
tensorboard = program.TensorBoard(default.get_plugins())
tensorboard.configure(
    argv=[
        None,
        '--logdir',
        folder,
        '--host',
        '127.0.0.1',
        '--port',
        '0',
        '--load_fast',
        'false',
        '--reload_interval',
        '1',
    ]
)
url = tensorboard.launch().rstrip('/')
opener = build_opener(ProxyHandler({}))  # it is on this machine


def get(path):
    with opener.open(f'{url}/data/plugin/{path}', timeout=60) as answer:
        return json.load(answer)


def listed():
    """{(kind, tag): run}."""
    return {
        (kind, tag): run
        for kind, (tags, _) in PLUGINS.items()
        for run, names in get(tags).items()
        for tag in names
    }


began = time.monotonic()
while (
    not {tuple(w.split(':', 1)) for w in wanted} <= set(listed()) and time.monotonic() - began < 120
):
    time.sleep(0.1)
for (kind, tag), run in sorted(listed().items()):
    for value in get(f'{PLUGINS[kind][1]}?run={quote(run, safe="")}&tag={quote(tag, safe="")}'):
        if kind == 'histogram':
            _, step, buckets = value
            print(
                'histogram',
                tag,
                step,
                min(b[0] for b in buckets),
                max(b[1] for b in buckets),
                round(sum(b[2] for b in buckets), 6),
            )
        else:
            print(
                'text', tag, value['step'], repr(re.sub('<[^>]*>|\n', '', value['text']))
            )  # which comes as HTML
sys.stdout.flush()
os._exit(0)  # its threads go on serving
