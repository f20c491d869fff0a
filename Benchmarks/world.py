"""The bus and the fake org.bluez that clients are measured against. Imported by `run` and `instructions`."""

import contextlib
import os
import pathlib
import shutil
import socket as socketlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / '.bench'

# Session style: everybody may do everything, no limits that matter.
BUS_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
  </policy>
  <limit name="max_incoming_bytes">1000000000</limit><limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_message_size">1000000000</limit>
</busconfig>
"""


class Failure(Exception):
    """A client, the generator or the bus did not do its work."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def build_c():
    BUILD.mkdir(exist_ok=True)
    pkg_config = ['pkg-config', '--cflags', '--libs', 'dbus-1']
    flags = subprocess.run(pkg_config, check=True, capture_output=True, text=True).stdout.split()
    shared = ['-shared', '-fPIC']
    compiler = shutil.which('cc') or 'clang'  # Swift brings clang
    for name, how in (('generator', flags), ('floor', flags), ('wire', flags), ('allocations', shared),
                      ('instructions', shared)):
        source, product = HERE / f'{name}.c', BUILD / name
        newest = max(path.stat().st_mtime for path in (source, HERE / 'measure.h'))
        if not product.exists() or product.stat().st_mtime <= newest:
            subprocess.run([compiler, '-O2', '-Wall', '-Wextra', '-pthread', '-o', product, source, *how], check=True)


def wait_for(condition, what):
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f'{what} does not start')
        time.sleep(0.005)


def answers(path):
    with socketlib.socket(socketlib.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


@contextlib.contextmanager
def world(options):
    """A bus with a generator on it: yields the environment for clients, and the bus daemon."""
    with tempfile.TemporaryDirectory(prefix='bluezkit-bench.') as directory, contextlib.ExitStack() as stack:
        socket, config = pathlib.Path(directory, 'bus'), pathlib.Path(directory, 'bus.conf')
        config.write_text(BUS_CONFIG.format(socket=socket), encoding='utf-8')
        environment = dict(os.environ, DBUS_SYSTEM_BUS_ADDRESS=f'unix:path={socket}',
                           BLUEZKIT_STATE_DIR=str(pathlib.Path(directory, 'state')))

        def launch(command, **how):
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, **how)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        # It complains of limits that only root may raise.
        bus = launch(['dbus-daemon', f'--config-file={config}', '--nofork'], stderr=subprocess.DEVNULL)
        wait_for(lambda: answers(socket), 'dbus-daemon')
        arguments = [f'{name}={value}' for name, value in options.items()]
        generator = launch([BUILD / 'generator', *arguments], stdout=subprocess.PIPE, text=True)
        with generator.stdout:
            if generator.stdout.readline() != 'ready\n':
                raise Failure('the generator does not start')
        yield environment, bus
