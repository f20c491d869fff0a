"""Bar charts of the benchmark, as SVG, from what `Benchmarks/run --json` has written. Imported by scripts/docs."""

import html
import json
import re

from website.pages import ROOT

RESULTS = 'Benchmarks/results.json'
PAGE = 'Docs/PERFORMANCE.md'
NAMES = {'floor': 'floor, in C', 'wire': 'wire, in C', 'bleak': 'bleak', 'simpleble': 'SimpleBLE', 'bluezkit': 'BluezKit',
         'bluezkit-static': 'BluezKit, static'}
# The figure, the heading of its chart, and what is shown.
CHARTS = [
    ('notify-20', 'A notification at full speed: processor time'),
    ('scan-1000-duplicates-repeated', 'A report of a scan, 1,000 devices: processor time'),
    ('start-10', 'From start to powered on'),
    ('memory', 'Resident memory, with 10,000 devices'),
]
ON_HOME = ('notify-20', 'start-10')
WIDTH, LABEL, VALUE, ROW, BAR = 380, 104, 66, 26, 16


def read():
    return json.loads((ROOT / RESULTS).read_text(encoding='utf-8'))


def number(value):
    """As Benchmarks/run prints it."""
    return f'{value:.2f}' if value < 10 else f'{value:.1f}' if value < 100 else f'{value:,.0f}'


def bars(figure):
    """Clients and their medians, least first."""
    found = [(NAMES[client], client, figure['clients'][client]['median']) for client in NAMES if client in figure['clients']]
    return sorted(found, key=lambda bar: bar[2])


def chart(name, heading, figure):
    rows, unit = bars(figure), figure['unit']
    scale = (WIDTH - LABEL - VALUE) / rows[-1][2]
    text = '; '.join(f'{title} {number(value)} {unit}' for title, _, value in rows)
    parts = [f'<figure class="chart"><figcaption>{html.escape(heading)}</figcaption>',
             f'<svg viewBox="0 0 {WIDTH} {ROW * len(rows)}" role="img" aria-labelledby="chart-{name}">',
             f'<title id="chart-{name}">{html.escape(heading)}: {html.escape(text)}</title>']
    for index, (title, client, value) in enumerate(rows):
        top = index * ROW
        kind = 'ours' if client.startswith('bluezkit') else 'peer' if client in ('bleak', 'simpleble') else 'floor'
        length = max(value * scale, 1)
        parts.append(f'<text x="{LABEL - 8}" y="{top + 17}" text-anchor="end">{html.escape(title)}</text>'
                     f'<rect class="{kind}" x="{LABEL}" y="{top + 5}" width="{length:.1f}" height="{BAR}" rx="2"/>'
                     f'<text x="{LABEL + length + 6:.1f}" y="{top + 17}">{number(value)} {unit}</text>')
    return '\n'.join([*parts, '</svg></figure>'])


def html_of(names=None):
    figures = read()['figures']
    return '<div class="charts">\n' + '\n'.join(
        chart(name, heading, figures[name]) for name, heading in CHARTS if names is None or name in names) + '\n</div>\n<p class="note">Medians; shorter is better.</p>\n'


def problems():
    """What the stored results and the table of the page do not agree on."""
    figures, rows = read()['figures'], {}
    for line in (ROOT / PAGE).read_text(encoding='utf-8').splitlines():
        cells = [cell.strip() for cell in line.strip('|').split('|')]
        if len(cells) > 5:
            rows.setdefault(cells[0], []).append(cells[1:6])
    for name, figure in figures.items():
        if 'bluezkit' not in figure['clients']:
            continue  # Benchmarks/run does not print it in this table
        same = rows.get(figure['title'].strip())  # rows with the same title are in the same order
        if not same:
            yield f'{PAGE} has no row "{figure["title"].strip()}" ({RESULTS}, {name})'
            continue
        for client, cell in zip(('floor', 'wire', 'bleak', 'simpleble', 'bluezkit'), same.pop(0)):
            stored = figure['clients'].get(client)
            shown = re.match(r'[\d.,]+', cell)
            expected = number(stored['to_floor'] or stored['median']) if stored else None
            if (shown.group() if shown else None) != expected:
                yield f'{PAGE}, "{figure["title"].strip()}", {client}: "{cell}", but {RESULTS} has {expected}'
