"""Runs jobs, several at a time, and shows what runs, for how long, and what is left. Imported by scripts/test."""

import os
import pathlib
import signal
import subprocess
import sys
import time

DEAF = 75  # Tests/Rig/run: Linux has gone deaf in that guest, for every program


class Job:
    """A command with a time limit.

    command: a list, or a function that makes one when the job begins.
    cores: how many processors it keeps busy, at the most. `alone`: it measures, so nothing runs beside it.
    guess: seconds that it may take, where it has never run.
    second_try: called with the job when it has failed the first time; whether it is run once more (`tries` is 1 then).
    check: called with the job when it has succeeded; returns what is wrong, or None.
    """

    def __init__(self, name, command, needs=(), cores=1.0, limit=600, alone=False, what='', check=None, repeat=None,
                 guess=30.0, second_try=None):
        self.name, self.command, self.needs, self.cores, self.limit = name, command, tuple(needs), cores, limit
        self.alone, self.what, self.check, self.guess = alone, what, check, guess
        self.repeat = repeat or (lambda job: f'scripts/test {job.name}')
        self.state, self.seconds, self.process, self.problem, self.began = 'waiting', 0.0, None, None, 0.0
        self.processor = 0.0  # seconds of processor time, with that of its processes that have ended
        self.tries, self.second_try = 0, second_try


def duration(seconds):
    return f'{int(seconds) // 60}:{int(seconds) % 60:02d}'


class Display:
    """On a terminal, a block of lines at its end that is drawn again and again; elsewhere, a line for each thing that happens,
    and what runs every half minute."""

    def __init__(self):
        self.live = sys.stdout.isatty() and os.environ.get('TERM', 'dumb') != 'dumb'
        self.drawn, self.last = 0, time.monotonic()
        self.green, self.red, self.dim, self.plain = (
            ('\033[32m', '\033[31m', '\033[2m', '\033[0m') if self.live and 'NO_COLOR' not in os.environ else ('',) * 4)

    def say(self, text):
        self.erase()
        print(text, flush=True)

    def erase(self):
        if self.drawn:
            print(f'\033[{self.drawn}A\033[J', end='', flush=True)
            self.drawn = 0

    def status(self, lines):
        if self.live:
            self.erase()
            width = os.get_terminal_size().columns - 1
            for line in lines:
                print(self.dim + line[:width] + self.plain)
            sys.stdout.flush()
            self.drawn = len(lines)
        elif time.monotonic() - self.last >= 30:
            self.last = time.monotonic()
            print('    ' + ' · '.join(line.strip() for line in lines), flush=True)


class Runner:
    """Runs jobs in the order in which they are given, as far as their needs and the processors allow."""

    def __init__(self, jobs, logs, expected):
        self.jobs, self.logs, self.expected = jobs, logs, expected
        self.display, self.start = Display(), time.monotonic()
        # Tests mostly wait: what they are said to use is more than they do.
        self.cores = (os.cpu_count() or 1) + 0.5
        names = [job.name for job in jobs]
        assert len(set(names)) == len(names), f'a name is used twice: {names}'

    def run(self):
        """Returns whether all have passed. Those that do not need what failed still run."""
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, self.interrupted)
        while True:
            for job in self.jobs:
                if job.state == 'running':
                    self.look_after(job)
            for job in self.jobs:
                if job.state == 'waiting' and self.may_begin(job):
                    self.begin(job)
            if not any(job.state in ('waiting', 'running') for job in self.jobs):
                break
            self.display.status(self.status())
            time.sleep(0.1)
        self.display.erase()
        return all(job.state == 'passed' for job in self.jobs)

    def may_begin(self, job):
        needs = [other for other in self.jobs if other.name in job.needs]
        if any(other.state in ('failed', 'skipped') for other in needs):
            job.state = 'skipped'
            self.display.say(f'{job.name}: not run, as {", ".join(o.name for o in needs if o.state != "passed")} failed')
            return False
        if not all(other.state == 'passed' for other in needs):
            return False
        running = [other for other in self.jobs if other.state == 'running']
        if job.alone:
            return not running and not any(other.state == 'waiting' and not other.alone for other in self.jobs)
        if any(other.alone for other in running):
            return False
        return not running or sum(other.cores for other in running) + job.cores <= self.cores

    def begin(self, job):
        command = job.command(job) if callable(job.command) else job.command
        job.log = self.logs / f'{job.name}.log'
        job.output = open(job.log, 'wb')
        job.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=job.output, stderr=subprocess.STDOUT, start_new_session=True)
        job.state, job.began, job.tries = 'running', time.monotonic(), job.tries + 1
        if not self.display.live:
            self.display.say(f'{self.at()} {job.name}: begins{", " + job.what if job.what else ""}')

    def look_after(self, job):
        status, job.seconds = self.status_of(job), time.monotonic() - job.began
        if status is None:
            if job.seconds < job.limit:
                return
            self.end(job)
            job.problem = f'stopped after {job.limit} s'
        elif status == DEAF and job.tries == 1:
            job.log.rename(job.log.with_suffix('.deaf.log'))
            self.display.say(f'{job.name}: Linux has gone deaf in that guest; again in a new one ({job.log.with_suffix(".deaf.log")})')
            job.state = 'waiting'
            return
        elif status != 0:
            job.problem = f'exit status {status}' if status > 0 else f'ended by signal {-status}'
        elif job.check:
            job.problem = job.check(job)
        self.end(job)  # what it has left running
        job.output.close()
        if job.problem and job.tries == 1 and job.second_try and job.second_try(job):
            job.log.rename(job.log.with_suffix('.first.log'))
            self.display.say(f'{self.at()} {job.name}: {job.problem}; what failed, once more ({job.log.with_suffix(".first.log")})')
            job.state, job.problem = 'waiting', None
            return
        job.state = 'failed' if job.problem else 'passed'
        mark = f'{self.display.red}✘' if job.problem else f'{self.display.green}✔'
        self.display.say(f'{self.at()} {mark} {job.name}{self.display.plain}'
                         f' {"FAILED: " + job.problem if job.problem else "passed"} ({duration(job.seconds)})')

    def status_of(self, job):
        """The exit status, as Popen.poll() returns it, and with it the processor time."""
        if job.process.returncode is None:
            ended, status, usage = os.wait4(job.process.pid, os.WNOHANG)
            if ended:
                job.process.returncode = os.waitstatus_to_exitcode(status)
                job.processor += usage.ru_utime + usage.ru_stime
        return job.process.returncode

    def end(self, job):
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(job.process.pid, sign)
            except (ProcessLookupError, PermissionError):
                return
            for _ in range(20):
                if self.status_of(job) is not None:
                    break
                time.sleep(0.1)

    def interrupted(self, sign, _):
        self.display.erase()
        for job in self.jobs:
            if job.state == 'running':
                self.end(job)
        print(f'stopped by {signal.Signals(sign).name}', file=sys.stderr)
        sys.exit(128 + sign)

    def at(self):
        return duration(time.monotonic() - self.start)

    def status(self):
        running = [job for job in self.jobs if job.state == 'running']
        waiting = [job for job in self.jobs if job.state == 'waiting']
        lines = []
        for job in running:
            lines.append(f'  {job.name} {duration(job.seconds)} of about {duration(self.expected(job))}')
        rest = sum(self.expected(job) * min(job.cores, self.cores) for job in waiting)
        longest = max((max(self.expected(job) - job.seconds, 0) for job in running), default=0)
        left = max(longest, rest / self.cores + longest / 2)
        ended = sum(job.state not in ('waiting', 'running') for job in self.jobs)
        lines.append(f'{self.at()} elapsed; {ended} of {len(self.jobs)} jobs done, {len(running)} running; about {duration(left)} left')
        return lines
