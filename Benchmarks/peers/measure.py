"""What the peers measure and print: the fields are those of bluezkit-bench."""

import ctypes
import json
import os
import resource
import sys
import time

try:
    COUNTER = ctypes.CDLL(None).allocations_so_far  # Benchmarks/allocations.c, if that is preloaded
    COUNTER.restype = ctypes.c_longlong
except AttributeError:
    def COUNTER():
        return 0

SENSOR = 'F0:F1:F2:00:00:01'
HEART_RATE_SERVICE = '0000180d-0000-1000-8000-00805f9b34fb'
HEART_RATE = '00002a37-0000-1000-8000-00805f9b34fb'
CONTROL = '00002a39-0000-1000-8000-00805f9b34fb'


class Measurement:
    """What this process has used up to now."""

    def __init__(self):
        self.time_ns = time.monotonic_ns()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.cpu_us = round((usage.ru_utime + usage.ru_stime) * 1e6)
        self.allocations = COUNTER()


def rss_kib():
    with open('/proc/self/statm', encoding='ascii') as file:
        return int(file.read().split()[1]) * 4


def report(**fields):
    """Prints and ends the process at once: taking a library down is not measured."""
    print(json.dumps(dict(fields, rss_kib=rss_kib())), flush=True)
    os._exit(0)


def fail(what):
    print(what, file=sys.stderr, flush=True)
    os._exit(1)


class Values:
    """Counts notifications; all must come, in order."""

    def __init__(self, count):
        self.count, self.received = count, 0
        self.before = self.first = Measurement()

    def add(self, value):
        number = int.from_bytes(value[:4], 'little')
        if number != self.received:
            fail(f'value {number} came when {self.received} was due')
        if not number:
            self.first = Measurement()
        self.received += 1
        if self.received == self.count:
            report_events(self.count, self.before, self.first)


def report_events(count, before, first):
    last = Measurement()
    report(events=count, cpu_us=last.cpu_us - before.cpu_us, allocations=last.allocations - before.allocations,
           first_ns=first.time_ns, seconds=(last.time_ns - first.time_ns) / 1e9)


class Reports:
    """Counts reports of a scan between the generator's marks. Keeps each new device, as apps do."""

    def __init__(self):
        self.devices, self.reports, self.marks = [], 0, []

    def add(self, device, name):
        self.reports += 1
        if len(self.marks) < 2:
            self.devices.append(device)
        if name != f'mark {len(self.marks)}':
            return
        self.marks.append((Measurement(), self.reports))
        if len(self.marks) < 3:
            return
        (begin, at_begin), (middle, at_middle), (end, at_end) = self.marks
        report(new=at_middle - at_begin - 1, new_cpu_us=middle.cpu_us - begin.cpu_us,
               new_allocations=middle.allocations - begin.allocations, updates=at_end - at_middle - 1,
               updates_cpu_us=end.cpu_us - middle.cpu_us, updates_allocations=end.allocations - middle.allocations)
