"""Checks the links of finished pages. Imported by scripts/docs."""

import functools
import html.parser
import json
import os
import pathlib
import posixpath
import urllib.parse


class Page(html.parser.HTMLParser):
    """The addresses and anchors of a page, and whether it has what makes it readable for everyone."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors, self.problems, self.tags = [], set(), [], []
        self.feed(path.read_text(encoding='utf-8'))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.links += [(tag, attributes[key]) for key in ('href', 'src') if attributes.get(key) is not None]
        if 'id' in attributes:
            if attributes['id'] in self.anchors:
                self.problems.append(f'has the anchor {attributes["id"]} twice')
            self.anchors.add(attributes['id'])
        if tag == 'img' and not attributes.get('alt'):
            self.problems.append(f'has an image without a text: {attributes.get("src")}')
        if tag == 'html' and not attributes.get('lang'):
            self.problems.append('does not say its language')
        if tag == 'script':
            self.problems.append('has a script')

    def close(self):
        super().close()
        if self.tags.count('h1') != 1 or self.tags.count('title') < 1:
            self.problems.append('does not have one title and one heading of the first level')
        levels = [int(tag[1]) for tag in self.tags if len(tag) == 2 and tag[0] == 'h' and tag[1].isdigit()]
        self.problems += [f'has a heading h{b} after h{a}' for a, b in zip(levels, levels[1:]) if b > a + 1]
        return self


class Site:
    """Our pages, and the documentation of the modules if it is there."""

    def __init__(self, folder, has_modules=True):
        self.folder, self.has_modules = pathlib.Path(folder), has_modules

    @functools.cache
    def page(self, path):
        return Page(self.folder / path).close()

    @functools.cache
    def headings(self, path):
        """The anchors of a page of DocC, which makes it from this file in the browser."""
        found = set()

        def look(part):
            if isinstance(part, dict):
                if part.get('type') == 'heading':
                    found.add(part.get('anchor'))
                part = list(part.values())
            if isinstance(part, list):
                for each in part:
                    look(each)
        look(json.loads((self.folder / 'data' / f'{path.rstrip("/")}.json').read_text(encoding='utf-8')))
        return found

    def problem(self, page, tag, link):
        """What is wrong with a link, or None."""
        scheme, server, path, _, _, anchor = urllib.parse.urlparse(link)
        if scheme or server:
            # Readers may follow a link to another server; a page that needs something from there is wrong.
            return None if tag == 'a' and scheme in ('http', 'https', 'mailto') else 'is on another server'
        if path.startswith('/'):
            return 'works only at the top of a server'
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        anchor = urllib.parse.unquote(anchor)
        if target.startswith('documentation') or target.startswith('..'):
            if not self.has_modules:
                return None
            if not path.endswith('/') or not (self.folder / target / 'index.html').exists():
                return f'leads to {target}, which does not exist'
            return f'{target} has no heading {anchor}' if anchor and anchor not in self.headings(target) else None
        if not (self.folder / target).is_file():
            return f'leads to {target}, which does not exist'
        if anchor and anchor not in self.page(target).anchors:
            return f'{target} has no anchor {anchor}'
        return None

    def problems(self, pages):
        for page in pages:
            for problem in self.page(page).problems:
                yield f'{page} {problem}'
            for tag, link in self.page(page).links:
                problem = self.problem(page, tag, link)
                if problem:
                    yield f'{page}: "{link}" {problem}'

    def problems_of(self, source, links):
        """The same of links that are in pages of DocC, from the top of the site."""
        found = ((link, self.problem('index.html', 'a', link)) for link in links)
        return [f'{source}: "{link}" {problem}' for link, problem in found if problem]

    def size(self):
        """Number of files, and bytes."""
        sizes = [os.path.getsize(path) for path in self.folder.rglob('*') if path.is_file()]
        return len(sizes), sum(sizes)
