#!/usr/bin/env python3
"""Proves the rig with an independent client and server: bleak and bluez-peripheral drive bluetoothd, bumble
plays the other side. Run it in the guest: `Tests/Rig/run -- python Tests/Rig/selftest.py`. Prints one line per check."""

import asyncio
import ctypes
import errno
import fcntl
import hashlib
import os
import select
import socket
import struct
import sys
import termios
import time
from types import SimpleNamespace

from bleak import BleakClient, BleakScanner
from bluez_peripheral.advert import Advertisement
from bluez_peripheral.agent import NoIoAgent
from bluez_peripheral.gatt.characteristic import CharacteristicFlags, characteristic
from bluez_peripheral.gatt.service import Service
from bluez_peripheral.util import Adapter, get_message_bus
from bumble import hci

from gattserver import Server, Variant
from radio import Air, Radio

BLUEZ = '00:B1:5E:00:00:01/P'
HEART, SINK, COC, CENTRAL = (f'F0:F1:F2:00:00:0{i}' for i in (1, 2, 3, 4))
# Python may be built without them.
AF_BLUETOOTH, BTPROTO_L2CAP, SOL_BLUETOOTH, BT_SECURITY, BT_RCVMTU = 31, 0, 274, 4, 13
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


class Hasty(Radio):
    """A radio that is reset in the moment in which it connects, if it is `hasty`."""

    hasty = False

    def create_le_connection(self, peer_address):
        super().create_le_connection(peer_address)
        if self.hasty:
            self.on_packet(bytes(hci.HCI_Reset_Command()))


async def radio():
    """Two radios on an air of their own: an end of a link that the other does not know is lost."""
    air = Air()
    central, peripheral = Hasty('central', air, '00:00:00:00:00:01'), Radio('peripheral', air, HEART)
    changed = asyncio.Event()
    for end in (central, peripheral):
        end.host = SimpleNamespace(on_packet=lambda packet: changed.set())

    async def linked(end, wanted, within=5):
        async def until():
            while bool(end.le_connections) != wanted:
                changed.clear()
                await changed.wait()

        try:
            await asyncio.wait_for(until(), within)
        except asyncio.TimeoutError:
            return False
        return True

    def begin():
        peripheral.le_legacy_advertiser.start()
        central.on_packet(bytes(hci.HCI_LE_Create_Connection_Command(
            le_scan_interval=96, le_scan_window=48, initiator_filter_policy=0, peer_address_type=0,
            peer_address=peripheral.public_address, own_address_type=0, connection_interval_min=24,
            connection_interval_max=40, max_latency=0, supervision_timeout=42, min_ce_length=0, max_ce_length=0)))

    async def connect():
        begin()
        return await linked(peripheral, True)

    async def disconnect():
        for connection in list(central.le_connections.values()):
            central.on_packet(bytes(hci.HCI_Disconnect_Command(connection_handle=connection.handle, reason=0x13)))
        peripheral.in_range = True
        return not central.le_connections and await linked(peripheral, False)

    check('two radios link', await connect() and len(central.le_connections) == 1)
    peripheral.in_range = False
    check('the end of a link that was not heard of', await disconnect())
    central.hasty = True
    check('a central that is reset as it connects', await connect() and await linked(peripheral, False))
    central.hasty = False
    check('links go on', await connect() and await linked(central, True))
    # 1 s: more than twice the supervision timeout
    check('a link with both ends stays', not await linked(central, False, within=1) and await linked(peripheral, True))
    await disconnect()

    # The advertiser stops as it is being answered, or just before.
    advertiser = peripheral.le_legacy_advertiser
    central.listeners = [lambda advertisement: asyncio.get_running_loop().call_soon(advertiser.stop)]
    check('who has heard an advertisement can connect', await connect() and len(central.le_connections) == 1)
    await disconnect()
    heard = asyncio.Event()
    central.listeners = [lambda advertisement: (advertiser.stop(), heard.set())]
    begin()
    await asyncio.wait_for(heard.wait(), 5)
    check('who has stopped is not connected to', not central.le_connections and central.pending_le_connection is not None)


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
        for _ in range(100):
            if (got := await client.read_gatt_char(rig_uuid(0x1C))) == struct.pack('<I', 1000):
                break
        check('write without response', got == struct.pack('<I', 1000))
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


class Channel:
    """A program's end of an LE L2CAP channel. Python's own sockets cannot say that an address is an LE random one."""

    libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, sock=None, mtu=2048):
        # A stream: the kernel keeps the rest of an SDU. Never a recv that waits: on Linux 6.1 nothing arrives meanwhile.
        self.sock = sock or socket.socket(AF_BLUETOOTH, socket.SOCK_STREAM, BTPROTO_L2CAP)
        if sock is None:
            self.mtu = struct.pack('<H', mtu)

    def call(self, function, psm, address='00:00:00:00:00:00', kind=1):
        sockaddr = struct.pack('<HH6sHBx', AF_BLUETOOTH, psm, bytes.fromhex(address.replace(':', ''))[::-1], 0, kind)
        if function(self.sock.fileno(), sockaddr, len(sockaddr)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def connect(self, address, psm):
        self.call(self.libc.bind, 0)
        self.sock.setsockopt(SOL_BLUETOOTH, BT_RCVMTU, self.mtu)
        self.call(self.libc.connect, psm, address, 2)
        return self

    def listen(self, psm, security=1):
        self.sock.setsockopt(SOL_BLUETOOTH, BT_SECURITY, bytes([security, 0]))
        self.call(self.libc.bind, psm)
        self.sock.setsockopt(SOL_BLUETOOTH, BT_RCVMTU, self.mtu)
        self.sock.listen(5)
        return self

    def wait(self, events):
        poll = select.poll()
        poll.register(self.sock, events)
        return dict(poll.poll(30000)).get(self.sock.fileno(), 0)

    def accept(self):
        """The next channel, and the central's address: 1 is public, 2 random."""
        if not self.wait(select.POLLIN):
            raise TimeoutError('no channel')
        sockaddr, size = ctypes.create_string_buffer(14), ctypes.c_uint32(14)
        fd = self.libc.accept(self.sock.fileno(), sockaddr, ctypes.byref(size))
        _, _, address, _, kind = struct.unpack('<HH6sHB', sockaddr.raw[:13])
        return Channel(socket.socket(AF_BLUETOOTH, socket.SOCK_STREAM, BTPROTO_L2CAP, fd)), address[::-1].hex(':').upper(), kind

    def send(self, data, piece=600):
        for start in range(0, len(data), piece):
            while True:
                try:
                    self.sock.send(data[start:start + piece], socket.MSG_DONTWAIT)
                    break
                except BlockingIOError:
                    self.wait(select.POLLOUT)

    def flush(self):
        """Waits until all is on the air: TIOCOUTQ is the room in the buffer. Closing drops what waits for credits."""
        size = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        while struct.unpack('i', fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4)))[0] < size:
            time.sleep(0.05)

    def receive(self, count):
        """So many bytes, or fewer if the channel ends."""
        data = b''
        while len(data) < count:
            events = self.wait(select.POLLIN)
            try:
                piece = self.sock.recv(count - len(data), socket.MSG_DONTWAIT)
            except BlockingIOError:
                piece = None
            except OSError:
                piece = b''
            if not piece and (piece is not None or events & select.POLLHUP or not events):
                break  # after a lost link there is no end to read
            data += piece or b''
        return data


def pattern(count):
    return bytes((i + (i >> 8) + (i >> 16)) & 255 for i in range(count))


def digest(data):
    return f'{len(data)} {hashlib.sha256(data).hexdigest()}'


async def coc():
    """Channels that BlueZ's side opens."""
    events = await Events().start()
    data = pattern(60000)
    async with BleakClient(await find(COC)) as client:
        psm, = struct.unpack('<H', await client.read_gatt_char(rig_uuid(0x41)))

        def connect(psm=psm):
            return Channel().connect(COC, psm)

        channel = await asyncio.to_thread(connect)
        await asyncio.to_thread(channel.send, data[:5000])
        check('L2CAP channel echoes', await asyncio.to_thread(channel.receive, 5000) == data[:5000])
        channel.sock.close()
        check('closed', await events.next('coc channel-closed 0080 5000') and await ctl('coc channel count') == '0')

        await ctl('coc channel mode sink')
        await ctl('coc channel pause')
        channel = await asyncio.to_thread(connect)
        sending = asyncio.create_task(asyncio.to_thread(channel.send, data))
        await asyncio.sleep(2)
        check('a device that does not read stops the program', not sending.done() and await ctl('coc channel credits') != ''
              and (await ctl('coc channel hash')).startswith('0 '), await ctl('coc channel credits'))
        await ctl(f'coc channel expect {len(data)}')
        await ctl('coc channel pauses 20')
        await ctl('coc channel resume')
        await sending
        await asyncio.to_thread(channel.flush)
        check('all of it arrives, with pauses', await events.next(f'channel-received {digest(data)}'))
        await ctl('coc channel send 30000')
        check('and back', await asyncio.to_thread(channel.receive, 30000) == pattern(30000)
              and await events.next(f'channel-sent {digest(pattern(30000))}'))
        await ctl('coc channel close')
        check('closed by the device', await asyncio.to_thread(channel.receive, 1) == b'')

        def refused(psm=psm):
            try:
                connect(psm)
            except OSError as e:
                return errno.errorcode[e.errno]

        check('no such PSM', await asyncio.to_thread(refused, 0x99) == 'ECONNREFUSED')
        await ctl('coc channel refuse 0x0004')
        check('refused', await asyncio.to_thread(refused) == 'ECONNREFUSED')
        await ctl('coc channel reset')
        await ctl('coc channel closing on')
        await asyncio.to_thread(refused)
        check('closed as it opens', await events.next('coc channel-closed 0080') and await ctl('coc channel count') == '0')
        await ctl('coc channel reset')
        for hostile in ('mtu', 'overflow'):
            channel = await asyncio.to_thread(connect)
            await ctl(f'coc channel hostile {hostile}')
            check(f'the kernel ends a channel: {hostile}', await events.next('coc channel-closed 0080')
                  and await asyncio.to_thread(channel.receive, 1) == b'')
            channel.sock.close()
        bus = await get_message_bus()
        await NoIoAgent().register(bus)
        channel = await asyncio.to_thread(connect, 0x81)
        check('a PSM that demands encryption: the kernel pairs', await events.next('coc paired'), await ctl('coc state'))
        await ctl('coc channel send 1000')
        await events.next('channel-sent')
        await asyncio.sleep(1)
        await ctl('coc disconnect')
        check('what came before the end of the link is read', await asyncio.to_thread(channel.receive, 2000) == pattern(1000))
        channel.sock.close()
    client = BleakClient(await find(COC))
    await client.connect()
    await client.unpair()
    await ctl('coc forget')
    bus.disconnect()


async def listener():
    """Channels that a central opens to BlueZ's side."""
    app = await application().start()
    await app.register()
    await app.advertise(Type=Variant('s', 'peripheral'))
    events = await Events().start()
    server, encrypted = Channel().listen(0x90), Channel().listen(0x91, security=2)
    await ctl(f'central connect {BLUEZ}')
    check('no such PSM', await fails('central channel open 92', 'refused 0x0002'))
    await ctl('central channel open 90')
    channel, address, kind = await asyncio.to_thread(server.accept)
    check('the central of the channel', (address, kind) == (CENTRAL, 2), f'{address} {kind}')
    data = pattern(40000)
    await ctl('central channel mode sink')
    await ctl(f'central channel expect {len(data)}')
    await asyncio.to_thread(channel.send, data)
    check('a central receives', await events.next(f'central channel-received {digest(data)}'))
    await ctl('central channel send 40000')
    await asyncio.sleep(2)  # the program is slow
    check('a central sends', await asyncio.to_thread(channel.receive, 40000) == data)
    channel.sock.close()
    check('closed by the program', await events.next('central channel-closed 0090'))
    check('encryption is required', await fails('central channel open 91', 'refused 0x0008'))
    await app.be_agent()
    await ctl('central channel open 91 pair')
    channel, _, _ = await asyncio.to_thread(encrypted.accept)
    await ctl('central channel close')
    check('closed by the central', await asyncio.to_thread(channel.receive, 1) == b'')

    def drain():
        count = 0
        while count < 20:
            server.accept()[0].sock.close()
            count += 1

    draining = asyncio.create_task(asyncio.to_thread(drain))
    await ctl('central channel churn 90 20')
    await ctl('central channel flood 90 100')
    check('a flood of requests leaves the link', await ctl('central connections') == '1')
    await ctl('central disconnect')
    server.sock.close()
    encrypted.sock.close()
    draining.cancel()
    await ctl('central channel reset')
    await ctl('central forget')
    await app.call('RemoveDevice', 'o', ['/org/bluez/hci0/dev_F0_F1_F2_00_00_04'], interface='org.bluez.Adapter1')
    app.bus.disconnect()


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
    bus.disconnect()  # and with it the advertisement, which would take turns with the next part's


class Events:
    """What the devices say, from now on."""

    async def start(self):
        self.reader, self.writer = await asyncio.open_unix_connection(os.environ['RIG_CONTROL'])
        self.writer.write(b'watch\n')
        await self.reader.readline()
        self.heard = []
        return self

    async def next(self, text):
        """Whether an event with this text has come or comes within 10 s; each counts once."""
        try:
            while not (found := [line for line in self.heard if text in line]):
                self.heard.append((await asyncio.wait_for(self.reader.readline(), 10)).decode())
        except asyncio.TimeoutError:
            return False
        self.heard.remove(found[0])
        return True


async def fails(line, error):
    try:
        await ctl(line)
    except RuntimeError as e:
        return str(e).endswith(f'error {error}')
    return False


def application():
    app = Server(log=lambda text: None)
    app.service('/app/t', rig_uuid(0x61), primary=False)
    app.service('/app/s', rig_uuid(0x60), includes=['/app/t'])
    app.characteristic('/app/s/a', rig_uuid(0x62), ['read', 'write'], bytes(i % 251 for i in range(512)))
    app.descriptor('/app/s/a/d', '2901', ['read', 'write'], b'text')
    app.characteristic('/app/s/b', rig_uuid(0x63), ['notify'])
    app.characteristic('/app/s/c', rig_uuid(0x64), ['indicate'])
    app.characteristic('/app/s/d', rig_uuid(0x65), ['read', 'encrypt-read'], b'secret')
    app.characteristic('/app/s/e', rig_uuid(0x66), ['write', 'write-without-response'])
    return app


async def called(app, text):
    """Waits up to 5 s for bluetoothd to make a call."""
    for _ in range(50):
        if any(text in call for call in app.calls):
            return True
        await asyncio.sleep(0.1)
    return False


async def server():
    """The central's commands, and what bluetoothd makes of them (Docs/BLUETOOTHD-SERVER.md)."""
    app = await application().start()
    await app.register()
    await app.advertise(Type=Variant('s', 'peripheral'), LocalName=Variant('s', 'Server'), Discoverable=Variant('b', True),
                        ServiceUUIDs=Variant('as', ['180d']),
                        ManufacturerData=Variant('a{qv}', {0xFFFF: Variant('ay', b'\x01\x02')}))
    for _ in range(20):  # it takes turns with those of other parts
        heard = await ctl('central advertisement 00:B1:5E:00:00:01')
        if heard.endswith('Server'):
            break
    check('advertisement', heard == 'connectable=1 size=13+8 flags=06 uuids=180d manufacturer=ffff:0102 name=Server', heard)
    found = await ctl(f'central connect {BLUEZ}')
    check('central connects', found.startswith('mtu=517 1800 1801 180a '), found)
    table = await ctl('central services')
    check('services', all(word in table for word in (
        f'secondary:{rig_uuid(0x61)}@', f'primary:{rig_uuid(0x60)}@', f'include:{rig_uuid(0x61)}',
        f'characteristic:{rig_uuid(0x62)}@', ':read,write descriptor:2901@')), table[-200:])
    a, b, c, d, e = (rig_uuid(n) for n in range(0x62, 0x67))
    check('read', await ctl(f'central read {a}') == bytes(app.values['/app/s/a']).hex())
    check('readat', await ctl(f'central readat {a} 510') == bytes(app.values['/app/s/a'][510:]).hex())
    check('bluetoothd passes the offset', any('offset=510' in call for call in app.calls))
    check('descriptor read', await ctl(f'central readdescriptor {a} 2901') == b'text'.hex())
    await ctl(f'central writedescriptor {a} 2901 6e6577')
    check('descriptor written', app.values['/app/s/a/d'] == b'new')
    await ctl(f'central writelong {a} {"cd" * 508}')
    check('long write of 508 bytes', app.values['/app/s/a'] == b'\xcd' * 508)
    check('509 are too long', await fails(f'central writelong {a} {"cd" * 509}', 'att 0x0d'))
    check('a request of 511 as well', await fails(f'central write {a} {"cd" * 511}', 'att 0x0d'))
    check('prepare answers', await ctl(f'central preparewrite {a} 0 0102') == '0 0102')
    await ctl('central execute 0')
    await ctl('central execute 1')
    check('cancelled', app.values['/app/s/a'] == b'\xcd' * 508)
    await ctl(f'central preparewrite {a} 0 0102')
    await ctl('central execute 1')
    check('executed', app.values['/app/s/a'] == b'\x01\x02')
    await ctl(f'central write {e} 05 0')
    check('command', await called(app, '/app/s/e WriteValue 05'))
    check('encryption is required', await fails(f'central read {d}', 'att 0x0f'))
    events = await Events().start()
    await ctl(f'central2 connect {BLUEZ} 23')
    for name in ('central', 'central2'):
        await ctl(f'{name} subscribe {b}')
    app.notify('/app/s/b', b'\x07')
    check('both centrals are notified', await events.next(f'central2 notified {b} 07')
          and await events.next(f'central notified {b} 07'))
    await ctl(f'central2 unsubscribe {b}')
    await ctl(f'central indications {c}')
    app.notify('/app/s/c', b'\x08')
    check('indication', await events.next(f'central indicated {c} 08') and await called(app, '/app/s/c Confirm'))
    check('wrong configuration', await fails(f'central configure {c} 1', 'att 0xfd'))
    await ctl('central2 disconnect')
    device = '/org/bluez/hci0/dev_F0_F1_F2_00_00_04'
    check('the device is connected', await app.get('Connected', 'org.bluez.Device1', device) is True)
    await ctl(f'central unsubscribe {b}')  # a bond would remember it
    await app.be_agent()
    await ctl('central pair')
    check('paired: read', await ctl(f'central read {d}') == b'secret'.hex())
    await app.call('Disconnect', interface='org.bluez.Device1', path=device)
    check('Device1.Disconnect ends the link', await events.next('central disconnected'))
    await ctl(f'central connect {BLUEZ}')
    check('bonded: read', await ctl(f'central read {d}') == b'secret'.hex())
    await ctl('central disconnect')
    await ctl('central forget')
    await app.call('RemoveDevice', 'o', [device], interface='org.bluez.Adapter1')
    await ctl(f'central2 churn {BLUEZ} {b} 3')
    check('churn: as many ends as starts', await called(app, '/app/s/b StopNotify'))
    app.bus.disconnect()


async def adapters():
    """Two adapters in range of each other: bleak on hci1 is the central of an application on hci0."""
    app = await application().start()
    await ctl('rig adapters 2')
    for _ in range(80):
        if await app.get('Powered', 'org.bluez.Adapter1', '/org/bluez/hci1') is True:
            break
        await asyncio.sleep(0.25)
    await app.register()
    await app.advertise(Type=Variant('s', 'peripheral'), LocalName=Variant('s', 'Zero'),
                        Discoverable=Variant('b', True), ServiceUUIDs=Variant('as', [rig_uuid(0x60)]))
    device = await BleakScanner.find_device_by_filter(
        lambda d, a: rig_uuid(0x60) in a.service_uuids, timeout=20, bluez={'adapter': 'hci1'})
    check('hci1 finds hci0', device is not None and device.address == BLUEZ[:-2], device)
    values = asyncio.Queue()
    async with BleakClient(device, bluez={'adapter': 'hci1'}) as client:
        value = await client.read_gatt_char(rig_uuid(0x62))
        check('hci1 reads', bytes(value) == bytes(app.values['/app/s/a']))
        await client.write_gatt_char(rig_uuid(0x62), b'abc', response=True)
        check('hci1 writes', app.values['/app/s/a'] == b'abc')
        await client.start_notify(rig_uuid(0x63), lambda c, data: values.put_nowait(bytes(data)))
        app.notify('/app/s/b', b'\x01')
        check('hci1 is notified', await asyncio.wait_for(values.get(), 5) == b'\x01')
    await ctl('rig adapters 1')
    app.bus.disconnect()


async def main():
    for part in (radio, heart, sink, coc, peripheral, server, listener, adapters):
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            try:
                await asyncio.wait_for(part(), 120)
            except Exception as e:
                check(part.__name__, False, repr(e))
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(asyncio.run(main()))
