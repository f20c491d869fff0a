"""The pages of the site that are made from Markdown, in the order of the navigation, and where each file of the repository is in
the site. Imported by scripts/docs."""

import pathlib
import re
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The modules with documentation of their own, and what each is for.
MODULES = {
    'BluezKit': 'CoreBluetooth for Linux',
    'CoreBluetoothAsync': 'The same API with Swift concurrency',
    'BluezKitProfiles': 'Typed standard services for both roles',
    'BluezKitGLib': 'GTK apps and other programs with a GLib main loop',
    'BluezKitSimulator': 'A scriptable BlueZ, for tests',
}
# Guides that are articles of a module's catalog: the module, the article and its name in the navigation.
GUIDES = [
    ('BluezKit', 'GettingStarted', 'Getting started'),
    ('BluezKit', 'PortingFromIOS', 'Porting from iOS'),
    ('CoreBluetoothAsync', 'UsingCoreBluetoothAsync', 'With Swift concurrency'),
    ('BluezKit', 'StateRestoration', 'State restoration'),
    ('BluezKit', 'Keeper', 'A keeper'),
    ('BluezKit', 'Testing', 'Testing without a radio'),
    ('BluezKit', 'Profiles', 'Standard services'),
    ('BluezKit', 'GLibMainLoop', 'GTK and GLib'),
    ('BluezKit', 'Troubleshooting', 'Troubleshooting'),
]
# Documents: group of the navigation, then file, name of the page, and its name in the navigation.
DOCUMENTS = {
    'Reference': [
        ('Docs/CONTRACT.md', 'contract', 'Contract'),
        ('Docs/COMPATIBILITY.md', 'compatibility', 'Compatibility'),
        ('Docs/LIMITS.md', 'limits', 'Limits'),
        ('Docs/ERRORS.md', 'errors', 'Errors'),
        ('Docs/GLOSSARY.md', 'glossary', 'Glossary'),
        ('Docs/DEMO.md', 'demo', 'bluez-demo'),
        ('Docs/RECORDING.md', 'recording', 'Recordings of devices'),
        ('Docs/TRACE.md', 'trace', 'Traces'),
        ('Examples/README.md', 'examples', 'Examples'),
    ],
    'Background': [
        ('Docs/ARCHITECTURE.md', 'architecture', 'Architecture'),
        ('Docs/THREADING.md', 'threading', 'Threading'),
        ('Docs/BLUEZ.md', 'bluez', 'BlueZ'),
        ('Docs/BLUEZ-REPORTS.md', 'bluez-reports', 'Faults of BlueZ'),
        ('Docs/BLUETOOTHD-SERVER.md', 'bluetoothd-server', 'Services of bluetoothd'),
        ('Docs/PERFORMANCE.md', 'performance', 'Performance'),
        ('Docs/THROUGHPUT.md', 'throughput', 'Throughput'),
        ('Benchmarks/README.md', 'benchmarks', 'Benchmarks'),
    ],
    'Project': [
        ('CHANGELOG.md', 'changelog', 'Changelog'),
        ('CONTRIBUTING.md', 'contributing', 'Contributing'),
        ('Docs/RELEASING.md', 'releasing', 'Releases'),
        ('SECURITY.md', 'security', 'Security'),
        ('Tests/Rig/README.md', 'rig', 'The test rig'),
    ],
}
HOME = 'README.md'
IMAGES = ('.png', '.svg', '.jpg')


def sources():
    """Each Markdown file that becomes a page, with the page's file."""
    return {HOME: 'index.html',
            **{source: f'{name}.html' for group in DOCUMENTS.values() for source, name, _ in group}}


def problems():
    """Documents that have been forgotten here."""
    for path in sorted((ROOT / 'Docs').glob('*.md')):
        if f'Docs/{path.name}' not in sources():
            yield f'Docs/{path.name} is not a page of the site: add it to scripts/website/pages.py'


def article(module, name):
    """The address of an article, or of a module's own page if the article is called like it."""
    path = f'documentation/{module.lower()}/'
    return path if name == module else f'{path}{name.lower()}/'


def navigation():
    """Groups of links: the name of the group, and title and address of each page."""
    yield 'Guides', [(title, article(module, name)) for module, name, title in GUIDES]
    yield 'API', [(module, article(module, module)) for module in MODULES]
    for group, pages in DOCUMENTS.items():
        yield group, [(title, f'{name}.html') for _, name, title in pages]


def slug(title):
    """The anchor that GitHub gives to a heading."""
    return re.sub(r'[^\w\- ]', '', title.strip().lower()).replace(' ', '-')


def docc_anchor(title):
    """The anchor that DocC gives to a heading: without punctuation, with a hyphen for spaces and dashes."""
    kept = ''.join(c for c in title if c in '-–—' or (c != '`' and not unicodedata.category(c).startswith('P')))
    return re.sub(r'[\s–—-]+', '-', kept.strip())


def place(path):
    """Where a file of the repository is in the site, without an anchor; None if it is not part of it."""
    path = str(path)
    if path in sources():
        return sources()[path]
    catalog = re.fullmatch(r'Sources/\w+/(\w+)\.docc/(\w+)\.md', path)
    if catalog:
        return article(*catalog.groups())
    if path.endswith(IMAGES):
        return f'images/{pathlib.PurePath(path).name}'
    return None
