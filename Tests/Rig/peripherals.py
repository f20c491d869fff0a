#!/usr/bin/env python3
"""Virtual Bluetooth LE devices for tests, on a virtual radio that the kernel takes part in.

Puts a virtual controller behind /dev/vhci, so that the kernel has an hci0, and other devices in range of it
(devices.py), on one air (radio.py), all in this one process. The stack behind the devices is Google's bumble,
so that a test of BlueZ does not test BlueZ against itself.

Control: lines on a unix socket ($RIG_CONTROL), `TARGET COMMAND [ARGUMENT...]`, each answered by one line,
`ok [TEXT]` or `error TEXT`. `help` lists the commands. After `watch`, the connection gets one line per event.
"""

import asyncio
import ctypes
import glob
import inspect
import os
import re
import socket
import struct
import time

from bumble.att import ATT_Error

from central import Central, Central2
from channels import ChannelRefused
from devices import CoC, Crowd, Dual, Heart, Sensor, Sink
from phone import Phone
from radio import Air, DualRadio, KernelRadio, Radio

SOCKET = os.environ.get('RIG_CONTROL', '/run/rig/peripherals.sock')


class ManagementEvents:
    """What the kernel tells bluetoothd about one of its controllers (BlueZ, doc/mgmt-api.txt)."""

    SUSPENDED, RESUMED = 0x002D, 0x002E
    # Of <bluetooth/bluetooth.h> and <bluetooth/hci.h>: Python has them only where it was built with these.
    AF_BLUETOOTH, BTPROTO_HCI, CONTROL_CHANNEL, NO_DEVICE = 31, 1, 3, 0xFFFF

    def __init__(self, index):
        self.index = index
        self.socket = socket.socket(self.AF_BLUETOOTH, socket.SOCK_RAW, self.BTPROTO_HCI)
        address = struct.pack('<HHH', self.AF_BLUETOOTH, self.NO_DEVICE, self.CONTROL_CHANNEL)
        if ctypes.CDLL(None).bind(self.socket.fileno(), address, len(address)):
            raise OSError('no socket for the events of the kernel')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def wait(self, event):
        """Until the event; not for long, as a controller that is switched off has none."""
        self.socket.settimeout(2)
        try:
            while struct.unpack_from('<HH', self.socket.recv(4096)) != (event, self.index):
                pass
        except TimeoutError:
            pass


class Rig:
    """The air, everything on it, and the control socket. Its own commands are those of the target `rig`."""

    key = 'rig'

    def __init__(self):
        self.watchers, self.air = set(), Air()
        self.kernels = [KernelRadio(self.air, 0)]
        self.targets = {t.key: t for t in (self, *(kind(self) for kind in (Heart, Sink, CoC, Central, Central2, Phone,
                                                                             Crowd)))}

    def event(self, text):
        print(f'{time.monotonic():.3f} {text}', flush=True)
        for writer in self.watchers:
            writer.write(f'event {text}\n'.encode())

    async def serve(self):
        for target in self.targets.values():
            if target is not self:
                await target.start()
        await self.kernels[0].plug()
        server = await asyncio.start_unix_server(self.on_client, SOCKET + '.new')
        os.rename(SOCKET + '.new', SOCKET)  # the socket's name appears when everything is ready
        await server.serve_forever()

    async def on_client(self, reader, writer):
        try:
            while line := await reader.readline():
                words = line.decode().split()
                if words == ['watch']:
                    self.watchers.add(writer)
                    answer = 'ok'
                else:
                    answer = await self.execute(words)
                writer.write(answer.encode() + b'\n')
        finally:
            self.watchers.discard(writer)
            writer.close()

    async def execute(self, words):
        try:
            if words == ['help']:
                return 'ok ' + ' | '.join(' '.join(f'{t.key} {inspect.getdoc(getattr(t, name))}'.split())
                                          for t in self.targets.values() for name in dir(t) if name.startswith('cmd_'))
            target, command, *arguments = words
            method = getattr(self.targets[target], 'cmd_' + command)
        except (KeyError, ValueError, AttributeError):
            return f'error unknown command: {" ".join(words)} (try: help)'
        try:
            return f'ok {await method(*arguments) or ""}'.rstrip()
        except ATT_Error as e:
            return f'error att {e.error_code:#04x}'
        except ChannelRefused as e:
            return f'error {e}'
        except asyncio.CancelledError:  # bumble's way to say so to what waits for an answer
            return 'error disconnected'
        except Exception as e:  # whatever it is, the test should see it
            return f'error {type(e).__name__}: {e}'.replace('\n', ' ')

    async def cmd_unplug(self, index='0'):
        """unplug [N]: take the kernel's controller away"""
        self.kernels[int(index)].unplug()

    async def cmd_plug(self, index='0'):
        """plug [N]: give the kernel a controller again"""
        await self.kernels[int(index)].plug()

    async def cmd_adapters(self, count):
        """adapters COUNT: so many adapters, plugged in, in range of each other and of all others; hci1 is
        00:B1:5E:00:00:02. Answers before bluetoothd has them"""
        while len(self.kernels) > max(int(count), 1):
            if (kernel := self.kernels.pop()).radio:
                kernel.unplug()
        while len(self.kernels) < int(count):
            self.kernels.append(KernelRadio(self.air, len(self.kernels)))
        for kernel in self.kernels:
            if not kernel.radio:
                await kernel.plug()

    async def cmd_sensors(self, count):
        """sensors COUNT: put sensor1, sensor2... on the air, peripherals like the others"""
        for number in range(1, int(count) + 1):
            if (key := f'sensor{number}') not in self.targets:
                self.targets[key] = Sensor(self, number)
                await self.targets[key].start()

    async def cmd_dual(self, switch):
        """dual on|off: replug hci0 with classic Bluetooth as well, and put `dual` on the air, which has it too; or neither"""
        kernel = self.kernels[0]
        if isinstance(kernel.radio, DualRadio) == (switch == 'on'):
            return
        if 'dual' not in self.targets:
            self.targets['dual'] = Dual(self)
            await self.targets['dual'].start()
        await self.targets['dual'].cmd_advertise(switch)
        if kernel.radio:
            kernel.unplug()
        await kernel.plug(DualRadio if switch == 'on' else Radio)
        if switch == 'on':
            kernel.radio.classic = [Dual.address]

    async def cmd_pages(self):
        """pages: how often hci0 has tried to connect by classic Bluetooth"""
        return str(self.kernels[0].radio.pages)

    async def cmd_duplicates(self, kind):
        """duplicates address|data: what the kernel's controller takes for a duplicate advertisement"""
        if kind not in ('address', 'data'):
            raise ValueError(kind)
        Radio.duplicate_filter = kind

    async def cmd_deaf(self, kind):
        """deaf on|off|scan|power: the kernel's controller hears no advertisement; with scan only until its next scan
        begins, with power until it is switched on again"""
        if kind not in ('on', 'off', 'scan', 'power'):
            raise ValueError(kind)
        self.kernels[0].radio.deafness = kind

    async def cmd_cross(self, when):
        """cross late|early|off: calling off the kernel's next attempt, which the event `rig connects` tells, crosses with it:
        late, the link is made in that very moment; early, for a second, the kernel has heard the device and asked for no
        link yet"""
        if when not in ('late', 'early', 'off'):
            raise ValueError(when)
        tell, radio = lambda: self.event('rig connects'), self.kernels[0].radio
        radio.crosses = tell if when == 'late' else None
        radio.hesitates = tell if when == 'early' else None

    async def cmd_scans(self, address=None):
        """scans [ADDRESS]: answers when the kernel's controller scans for devices; with an address, when it listens for
        that device to connect to it"""
        await self.becomes(lambda radio: radio.le_scan_type == 1 if address is None else self.awaits(radio, address))

    async def cmd_ignores(self, address):
        """ignores ADDRESS: answers when the kernel's controller does not listen for that device to connect to it"""
        await self.becomes(lambda radio: not self.awaits(radio, address), scanning=False)

    @staticmethod
    def awaits(radio, address):
        return bool(radio.le_scan_enable and radio.le_scanning_filter_policy & 1) and address in {
            device.to_string(with_type_qualifier=False) for device in radio.accept_list}

    async def becomes(self, condition, scanning=True):
        """Waits until the kernel has a controller, that scans or not, for which the condition holds."""
        deadline = asyncio.get_running_loop().time() + 20  # less than the 40 s after which BlueZ ends an attempt
        while not ((radio := self.kernels[0].radio) and (radio.le_scan_enable or not scanning) and condition(radio)):
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError('not within 20 s')
            await asyncio.sleep(0.02)

    async def cmd_suspend(self):
        """suspend: the kernel does to Bluetooth what it does before the machine sleeps; the machine keeps running"""
        # Linux (6.1 to 7.2) never ends a discovery whose end it interrupts by this, and is deaf from then on.
        while any(time.monotonic() - kernel.radio.last_command < 0.3 for kernel in self.kernels if kernel.radio):
            await asyncio.sleep(0.05)
        await self.force_suspend('Y')

    async def cmd_resume(self):
        """resume: as after waking up"""
        await self.force_suspend('N')

    async def force_suspend(self, answer):
        def force():
            for path in glob.glob('/sys/kernel/debug/bluetooth/hci*/force_suspend'):
                with open(path) as file:
                    if file.read().strip() == answer:
                        continue
                with ManagementEvents(int(re.search(r'hci(\d+)', path)[1])) as events:
                    with open(path, 'w') as file:
                        file.write(answer)
                    # Linux 7.2 only begins with it then, and does nothing if it is resumed at once.
                    events.wait(events.SUSPENDED if answer == 'Y' else events.RESUMED)
        # The kernel answers when its controllers have, which are here.
        await asyncio.to_thread(force)

    async def cmd_reports(self):
        """reports: how many advertising reports the kernel's controller has sent to the kernel"""
        return str(self.kernels[0].radio.reports)

    async def cmd_stop(self):
        """stop: end the process"""
        asyncio.get_running_loop().call_later(0.1, os._exit, 0)


async def main():
    await Rig().serve()


if __name__ == '__main__':
    asyncio.run(main())
