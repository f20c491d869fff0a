"""Spreads the tests of one program over several processes, by the times that they took last. Imported by scripts/test.

A test has a name, `Suite/function(label:)`, and in each kind of world (`unit`, `rig`, `arm64`) a time.
"""

import json
import pathlib
import re
import subprocess

DEFAULT = 0.03  # seconds, of a test whose time is not known, and at least of any


def listed(program, work, prefix=()):
    """The tests of a program, which is run by the command `prefix`: name, and the file that it is in."""
    stream = work / 'tests.json'
    stream.unlink(missing_ok=True)
    subprocess.run([*prefix, program, '--testing-library', 'swift-testing', '--list-tests', '--event-stream-output-path', stream,
                    '--event-stream-version', '0'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=True)
    return {name(record['payload']['id']): record['payload']['sourceLocation']['_filePath']
            for record in records(stream)
            if record['kind'] == 'test' and record['payload']['kind'] == 'function'}


def name(identifier):
    """`BluezKitTests.Suite/test()/File.swift:1:2` → `Suite/test()`. Modules have no tests of one name."""
    return re.sub(r'/[^/]*\.swift:\d+:\d+$', '', identifier.partition('.')[2])


def records(stream):
    for line in pathlib.Path(stream).read_text(errors='replace').split('\n'):  # not at U+2028
        try:
            yield json.loads(line)
        except ValueError:  # the last one, of a process that was killed
            pass


class Outcome:
    """What a run's event stream says: seconds of each test that ended, those that were skipped, failed, or have not ended."""

    def __init__(self, stream):
        self.seconds, self.skipped, self.failed, began, functions = {}, set(), set(), {}, set()
        if not pathlib.Path(stream).exists():
            self.unended = set()
            return
        for record in records(stream):
            payload = record['payload']
            if record['kind'] == 'test':
                if payload['kind'] == 'function':
                    functions.add(payload['id'])
                continue
            test = payload.get('testID')
            if test not in functions:
                continue
            if payload['kind'] == 'testStarted':
                began[test] = payload['instant']['absolute']
            elif payload['kind'] == 'testEnded' and test in began:
                self.seconds[name(test)] = payload['instant']['absolute'] - began[test]
            elif payload['kind'] == 'testSkipped':
                self.skipped.add(name(test))
            elif payload['kind'] == 'issueRecorded' and not payload.get('issue', {}).get('isKnown'):
                self.failed.add(name(test))
        self.unended = {name(test) for test in began} - set(self.seconds)


def spread(tests, count, seconds):
    """Lists of tests that take about equally long: the longest first, each to the list that is shortest so far."""
    lists, sums = [[] for _ in range(count)], [0.0] * count
    expected = {test: max(seconds.get(test, 0), DEFAULT) for test in tests}
    for test in sorted(tests, key=lambda test: (-expected[test], test)):
        shortest = sums.index(min(sums))
        lists[shortest].append(test)
        sums[shortest] += expected[test]
    return lists


def pattern(tests):
    """A regular expression that matches the identifiers of these tests, and no others."""
    assert tests, 'there are fewer tests than processes'
    suites = {}
    for test in tests:
        suite, _, function = test.rpartition('/')
        suites.setdefault(suite, []).append(function)
    parts = [f'{re.escape(suite)}/(?:{"|".join(re.escape(f) for f in sorted(functions))})/' if suite
             else f'(?:{"|".join(re.escape(f) for f in sorted(functions))})/' for suite, functions in sorted(suites.items())]
    return r'^\w+\.(?:' + '|'.join(parts) + ')'


class Times:
    """How long tests took, by world: those of the last runs here, else those that the repository has (Tests/times.tsv)."""

    def __init__(self, repository, local):
        self.local, self.seconds = local, {}
        for file in repository, local:
            if file.exists():
                for line in file.read_text().splitlines():
                    if line and not line.startswith('#'):
                        world, test, seconds = line.split('\t')
                        self.seconds.setdefault(world, {})[test] = float(seconds)

    def of(self, world):
        return self.seconds.get(world, {})

    def learn(self, world, seconds):
        """A mean of old and new: a machine that was busy once does not turn everything over."""
        known = self.seconds.setdefault(world, {})
        for test, value in seconds.items():
            known[test] = value if test not in known else (known[test] + value) / 2

    def forget(self, world, listed):
        """Those that are no longer there."""
        known = self.seconds.get(world, {})
        for test in set(known) - set(listed):
            del known[test]

    def save(self, file=None, least=0.0, comment=''):
        lines = [f'{world}\t{test}\t{seconds:.2f}' for world, tests in sorted(self.seconds.items())
                 for test, seconds in sorted(tests.items()) if seconds >= least]
        (file or self.local).write_text(comment + '\n'.join(lines) + '\n')
