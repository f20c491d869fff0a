#!/usr/bin/env python3
"""Proves the rig with an independent client and server: bleak and bluez-peripheral drive bluetoothd, bumble
plays the other side. Run it in the guest: `Tests/Rig/run -- python Tests/Rig/selftest.py`. Prints one line per check."""

import asyncio
import ctypes
import os
import socket
import struct
import sys
import time

from bleak import BleakClient, BleakScanner
from bluez_peripheral.advert import Advertisement
from bluez_peripheral.agent import NoIoAgent
from bluez_peripheral.gatt.characteristic import CharacteristicFlags, characteristic
from bluez_peripheral.gatt.service import Service
from bluez_peripheral.util import Adapter, get_message_bus

HEART, SINK, COC = (f'F0:F1:F2:00:00:0{i}' for i in (1, 2, 3))
AF_BLUETOOTH, BTPROTO_L2CAP, SOL_BLUETOOTH, BT_SNDMTU = 31, 0, 274, 12  # Python may be built without them
failures = 0


def rig_uuid(number):
    return f'bb1e{number:04x}-5d3b-4c6f-9a5e-000000000000'


def check(name, ok, detail=''):
    global failures
    failures += not ok
    print(f'{"ok  " if ok else "FAIL"} {time.monotonic():7.2f} {name} {detail}', flush=True)


async def ctl(line):
    reader, writer = await asyncio.open_unix_connection(os.environ['RIG_CONTROL'])
    writer.write(line.encode() + b'\n')
    answer = (await reader.readline()).decode().strip()
    writer.close()
    if not answer.startswith('ok'):
        raise RuntimeError(f'{line}: {answer}')
    return answer[3:]


async def find(address, **kind):
    device = await BleakScanner.find_device_by_address(address, timeout=20, **kind)
    check(f'find {address}', device is not None, device and device.name)
    return device


async def heart():
    found = await BleakScanner.discover(timeout=4, service_uuids=['0000180d-0000-1000-8000-00805f9b34fb'])
    check('scan by service UUID finds only the heart', [d.address for d in found] == [HEART], [d.name for d in found])
    values, gone = asyncio.Queue(), asyncio.Event()
    async with BleakClient(found[0], disconnected_callback=lambda c: gone.set()) as client:
        check('read 2A38', await client.read_gatt_char('2a38') == b'\x01')
        await client.write_gatt_char('2a39', b'\x01', response=True)
        try:
            await client.write_gatt_char('2a39', b'\x02', response=True)
            check('write of a bad control point fails', False)
        except Exception as e:
            check('write of a bad control point fails', True, repr(e))
        await client.start_notify('2a37', lambda c, data: values.put_nowait(bytes(data)))
        await ctl('heart notify 2a37 0048')
        check('notification', await asyncio.wait_for(values.get(), 5) == b'\x00\x48')
        await ctl('heart measure 300 7')
        check('16-bit measurement', await asyncio.wait_for(values.get(), 5) == bytes.fromhex('1f2c010700cc00'))
        await ctl('heart beat 5')
        beats = [await asyncio.wait_for(values.get(), 5) for i in range(12)]
        await ctl('heart beat 0')
        check('beats count up from 60', [b[1] for b in beats] == list(range(60, 72)), beats[0].hex())
        check('every tenth beat has the energy', [b[0] for b in beats] == [0x16] * 9 + [0x1E] + [0x16] * 2)
        check('the heart has one link', await ctl('heart connections') == '1')
        await ctl('heart disconnect')
        await asyncio.wait_for(gone.wait(), 10)
        check('disconnected by the peripheral', not client.is_connected and await ctl('heart connections') == '0')
    await ctl('heart name New Heart')
    renamed = await BleakScanner.find_device_by_filter(lambda d, a: a.local_name == 'New Heart', timeout=20)
    check('the new name is in the scan response', renamed is not None)
    await ctl('heart name Rig Heart')
    async with BleakClient(await find(HEART)) as client:
        check('reconnected, read 2A29', await client.read_gatt_char('2a29') == b'BluezKit rig')


async def sink():
    async with BleakClient(await find(SINK)) as client:
        long = bytes(i % 251 for i in range(512))
        check('long value read', len(await client.read_gatt_char(rig_uuid(0x15))) == 512)
        await client.write_gatt_char(rig_uuid(0x15), long, response=True)
        check('long value written', await client.read_gatt_char(rig_uuid(0x15)) == long)
        for i in range(50):
            await client.write_gatt_char(rig_uuid(0x12), bytes(20), response=False)
        await asyncio.sleep(1)
        check('write without response', await client.read_gatt_char(rig_uuid(0x1C)) == struct.pack('<I', 1000))
        values = asyncio.Queue()
        await client.start_notify(rig_uuid(0x14), lambda c, data: values.put_nowait(bytes(data)))
        await ctl('sink indicate 0014 0102')
        check('indication', await asyncio.wait_for(values.get(), 5) == b'\x01\x02')
        descriptors = {d.uuid[4:8]: await client.read_gatt_descriptor(d.handle)
                       for d in client.services.get_characteristic(rig_uuid(0x18)).descriptors}
        check('descriptors', descriptors.get('2901') == b'A description', sorted(descriptors))
        bus = await get_message_bus()  # without an agent, bluetoothd refuses to pair
        await NoIoAgent().register(bus)
        await client.pair()
        check('pair, read an encrypted value', await client.read_gatt_char(rig_uuid(0x16)) == b'encrypted')
    client = BleakClient(await find(SINK))
    await client.connect()
    check('encrypted read after reconnecting', await client.read_gatt_char(rig_uuid(0x16)) == b'encrypted')
    await client.unpair()  # also ends the link and removes the device


def connect_l2cap(address, psm):
    """A blocking LE L2CAP channel. Python's own connect cannot say that the address is an LE random one."""
    sock = socket.socket(AF_BLUETOOTH, socket.SOCK_SEQPACKET, BTPROTO_L2CAP)
    libc = ctypes.CDLL(None, use_errno=True)
    for call, bdaddr, port, kind in ((libc.bind, bytes(6), 0, 1),
                                     (libc.connect, bytes.fromhex(address.replace(':', ''))[::-1], psm, 2)):
        sockaddr = struct.pack('<HH6sHBx', AF_BLUETOOTH, port, bdaddr, 0, kind)
        if call(sock.fileno(), sockaddr, len(sockaddr)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return sock


async def coc():
    async with BleakClient(await find(COC)) as client:
        psm, = struct.unpack('<H', await client.read_gatt_char(rig_uuid(0x41)))

        def echo():
            sock = connect_l2cap(COC, psm)
            mtu, = struct.unpack('<H', sock.getsockopt(SOL_BLUETOOTH, BT_SNDMTU, 2))
            data = bytes(i % 253 for i in range(min(mtu, 600)))
            sock.send(data)
            got = sock.recv(65536)
            sock.close()
            return mtu, got == data

        mtu, same = await asyncio.to_thread(echo)
        check('L2CAP channel echoes', same, f'psm={psm:#x} send MTU={mtu}')


class TestService(Service):
    def __init__(self):
        super().__init__(rig_uuid(0x50), True)
        self.value = b'from BlueZ'

    @characteristic(rig_uuid(0x51), CharacteristicFlags.READ | CharacteristicFlags.WRITE)
    def stored(self, options):
        return self.value

    @stored.setter
    def stored_set(self, value, options):
        self.value = bytes(value)

    @characteristic(rig_uuid(0x52), CharacteristicFlags.NOTIFY)
    def notified(self, options):
        return b''


async def peripheral():
    bus = await get_message_bus()
    service = TestService()
    await service.register(bus)
    adapter = await Adapter.get_first(bus)
    await Advertisement('BlueZ side', [rig_uuid(0x50)], 0, 0).register(bus, adapter)
    services = await ctl('central connect 00:B1:5E:00:00:01/P')
    check('central connects to BlueZ', 'bb1e0050' in services.lower(), services)
    check('central reads', bytes.fromhex(await ctl(f'central read {rig_uuid(0x51)}')) == b'from BlueZ')
    await ctl(f'central write {rig_uuid(0x51)} 616263')
    check('central writes', service.value == b'abc')
    reader, writer = await asyncio.open_unix_connection(os.environ['RIG_CONTROL'])
    writer.write(b'watch\n')
    await reader.readline()
    await ctl(f'central subscribe {rig_uuid(0x52)}')
    service.notified.changed(b'\x01\x02\x03')
    event = b''
    while b'notified' not in event:
        event = await asyncio.wait_for(reader.readline(), 10)
    check('central is notified', event.endswith(b'010203\n'), event.decode().strip())
    await ctl('central disconnect')


async def main():
    for part in (heart, sink, coc, peripheral):
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            try:
                await asyncio.wait_for(part(), 120)
            except Exception as e:
                check(part.__name__, False, repr(e))
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(asyncio.run(main()))
