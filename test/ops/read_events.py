"""read_events.py FOLDER: prints the values that TensorBoard's reader finds in event files.

It prints one line a value, with texts in quotes.
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1])
events.Reload()
tags = events.Tags()
for tag in tags['scalars']:
    for e in events.Scalars(tag):
        print('scalar', tag, e.step, round(e.value, 6), e.wall_time)
for tag in tags['histograms']:
    for e in events.Histograms(tag):
        h = e.histogram_value
        print('histogram', tag, e.step, h.min, h.max, h.num, h.sum, len(h.bucket))
for tag in tags['tensors']:
    for e in events.Tensors(tag):
        print(
            'text',
            tag,
            e.step,
            repr(e.tensor_proto.string_val[0].decode()),
            events.SummaryMetadata(tag).plugin_data.plugin_name,
        )
