"""The virtual devices on the air: peripherals and a crowd of beacons, each with its commands. (Centrals: central.py.)

A command is a method named cmd_*: its arguments are the words of the line, what it returns is the answer, and its
documentation string is its line of `help`.
"""

import asyncio
import random
import struct
import time

from bumble import gatt, hci
from bumble.att import ATT_CID, ATT_Error, ATT_Error_Response, Attribute, ErrorCode
from bumble.core import UUID, AdvertisingData, PhysicalTransport
from bumble.core import TimeoutError as NoLink
from bumble.device import Device, DeviceConfiguration
from bumble.gatt import Characteristic, CharacteristicValue, Descriptor, Service
from bumble.hci import Address
from bumble.host import Host
from bumble.keys import MemoryKeyStore
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.profiles.gap import GenericAccessService
from bumble.transport.common import AsyncPipeSink
from bumble.utils import AsyncRunner

from channels import Channels
from radio import ADV_NONCONN_IND, Advertisement, Radio

P, X = Characteristic.Properties, Attribute.Permissions
RW = X.READABLE | X.WRITEABLE


def rig_uuid(number):
    """The rig's own UUIDs: bb1eNNNN-5d3b-4c6f-9a5e-000000000000."""
    return UUID(f'bb1e{number:04x}-5d3b-4c6f-9a5e-000000000000')


class Virtual:
    """A device on the air with a bumble host. Subclasses add services and commands (methods named cmd_*)."""

    address = name = None
    services_advertised, flags = (), 0x06  # LE General Discoverable Mode, BR/EDR Not Supported
    address_type = hci.OwnAddressType.RANDOM

    def __init__(self, rig):
        self.rig, self.advertise, self.values, self.characteristics = rig, True, {}, {}
        self.advertising = asyncio.Lock()  # one change at a time
        self.radio = Radio(self.key, rig.air, 'F0:00:00:00:00:00')
        address = Address(self.address)
        config = DeviceConfiguration(name=self.name, address=address, irk=(bytes(address) * 3)[:16])
        config.advertising_data = self.advertising_data()
        config.scan_response_data = bytes(AdvertisingData([(0x09, self.name.encode())]))
        config.advertising_interval_min = config.advertising_interval_max = 100
        self.device = Device(config=config, host=Host(self.radio, AsyncPipeSink(self.radio)))
        self.device.on(Device.EVENT_CONNECTION, self.on_connection)
        self.bonds = {}
        # bluetoothd loses a request whose demand for encryption arrives before it has waited for its socket again. No real
        # answer is that fast: it comes in a later connection event.
        self.respond, self.device.gatt_server.send_response = self.device.gatt_server.send_response, self.send_response
        # Pairing: Just Works unless `pairing` says otherwise.
        self.io, self.passkey, self.accept = PairingDelegate.NO_OUTPUT_NO_INPUT, 123456, True
        self.entered = asyncio.Queue()  # passkeys typed on this device, see cmd_enter
        self.device.pairing_config_factory = lambda connection: PairingConfig(
            sc=True, mitm=self.io != PairingDelegate.NO_OUTPUT_NO_INPUT, bonding=True, delegate=Delegate(self),
            identity_address_type=PairingConfig.AddressType.RANDOM)

    def send_response(self, bearer, response):
        if isinstance(response, ATT_Error_Response) and response.error_code in (
                ErrorCode.INSUFFICIENT_AUTHENTICATION, ErrorCode.INSUFFICIENT_ENCRYPTION):
            asyncio.get_running_loop().call_later(0.1, self.respond, bearer, response)
        else:
            self.respond(bearer, response)

    async def encrypt(self, connection):
        """With the keys of the bond, once. bluetoothd loses the attributes of a link that is encrypted before it has taken it,
        which it shows by asking for that (src/device.c, device_attach_att); unless it has no bond."""
        if self.device.connections.get(connection.handle) is not connection:
            raise asyncio.CancelledError  # its end has been told already
        try:
            await asyncio.wait_for(connection.cancel_on_disconnection(connection.taken.wait()), 10)
        except asyncio.TimeoutError:
            self.event('encrypts unasked')
        async with connection.securing:
            if not connection.encryption:
                await connection.encrypt()

    def advertising_data(self, *manufacturers):
        entries = [(0x01, bytes([self.flags]))]
        short = b''.join(u.to_bytes() for u in self.services_advertised if len(u.to_bytes()) == 2)
        long = b''.join(u.to_bytes() for u in self.services_advertised if len(u.to_bytes()) == 16)
        entries += [(0x03, short)] if short else []
        entries += [(0x07, long)] if long else []
        entries += [(0xFF, manufacturer) for manufacturer in manufacturers]
        return bytes(AdvertisingData(entries))

    async def update_advertising(self):
        """Advertises what it has to say now, if it shall and has no link."""
        async with self.advertising:
            await self.device.stop_advertising()
            if self.advertise and not self.radio.le_connections:
                await self.device.start_advertising(own_address_type=self.address_type)

    async def start(self):
        await self.device.power_on()
        self.device.keystore = MemoryKeyStore()
        await self.update_advertising()

    def event(self, text):
        self.rig.event(f'{self.key} {text}')

    async def link_to(self, address):
        """A link as central. bumble takes the attempt back when its own timeout is over, so that the next one can begin."""
        heard = []
        with self.radio.listening(lambda advertisement: heard.append(advertisement.advertiser_address == address)):
            try:
                return await self.device.connect(
                    address, transport=PhysicalTransport.LE, own_address_type=hci.OwnAddressType.RANDOM, timeout=20)
            except NoLink:
                raise ValueError(f'no link to {address} within 20 s: {sum(heard)} advertisements of it heard, links with '
                                 f'{[str(peer) for peer in self.radio.le_connections]}') from None

    def on_connection(self, connection):
        self.event(f'connected {connection.peer_address}')
        connection.taken, connection.securing = asyncio.Event(), asyncio.Lock()
        connection.on('security_request', lambda request: connection.taken.set())
        connection.on('disconnection', self.on_disconnection)
        connection.on('connection_att_mtu_update', lambda: self.event(f'mtu {connection.att_mtu}'))
        connection.on('connection_encryption_change', lambda: self.event(f'encrypted {int(connection.encryption)}'))
        connection.on('pairing', lambda keys: self.event('paired'))
        connection.on('pairing_failure', lambda reason: self.event(f'pairing-failed {int(reason):#04x}'))

    def on_disconnection(self, reason):
        self.event(f'disconnected {int(reason):#04x}')
        AsyncRunner.spawn(self.update_advertising())

    @property
    def connection(self):
        for connection in self.device.connections.values():
            return connection
        raise ValueError('not connected')

    def served(self, number, properties, read=None, write=None, permissions=None, descriptors=(), uuid=None):
        """A characteristic with handlers. bumble does not check permissions, so what has no handler refuses."""
        def no_read(connection):
            raise ATT_Error(0x02)  # Read Not Permitted

        def no_write(connection, value):
            raise ATT_Error(0x03)  # Write Not Permitted

        c = Characteristic(uuid or rig_uuid(number), properties, RW if permissions is None else permissions,
                           CharacteristicValue(read=read or no_read, write=write or no_write), descriptors)
        c.on(c.EVENT_SUBSCRIPTION, lambda connection, n, i: self.event(f'subscribed {number:04x} {int(n)}{int(i)}'))
        self.characteristics[number] = c
        return c

    def stored(self, number, properties, value=b'', **more):
        """A characteristic that remembers what is written to it."""
        self.values[number] = value

        def write(connection, value):
            self.values[number] = bytes(value)
            self.event(f'written {number:04x} {bytes(value).hex()}')

        readable, writable = properties & P.READ, properties & (P.WRITE | P.WRITE_WITHOUT_RESPONSE)
        return self.served(number, properties, (lambda connection: self.values[number]) if readable else None,
                           write if writable else None, **more)

    def characteristic(self, number):
        try:
            return self.characteristics[int(number, 16)]
        except KeyError:
            raise ValueError(f'no characteristic {number}') from None

    # Commands
    async def cmd_advertise(self, switch):
        """advertise on|off: whether it advertises as long as it has no link"""
        self.advertise = switch == 'on'
        await self.update_advertising()

    async def cmd_manufacturer(self, *entries):
        """manufacturer HEX…: advertise manufacturer data, in this order: company (2 bytes, little endian), then data"""
        self.device.advertising_data = self.advertising_data(*map(bytes.fromhex, entries))
        await self.update_advertising()

    async def cmd_name(self, *name):
        """name TEXT: change the GAP device name and the name in the scan response"""
        encoded = ' '.join(name).encode()
        self.device.scan_response_data = bytes(AdvertisingData([(0x09, encoded)]))
        for service in self.device.gatt_server.services:
            if isinstance(service, GenericAccessService):
                service.device_name_characteristic.value = encoded
        await self.update_advertising()

    async def cmd_rssi(self, dbm):
        """rssi DBM: signal strength at which the others hear this device"""
        self.radio.rssi = int(dbm)

    async def cmd_disconnect(self, reason='0x13'):
        """disconnect [REASON]: end the link from this side (0x13: remote user terminated connection)"""
        await self.connection.disconnect(hci.HCI_ErrorCode(int(reason, 0)))

    async def cmd_vanish(self):
        """vanish: go out of range; the link is lost after its supervision timeout"""
        self.radio.in_range = False

    async def cmd_return(self):
        """return: come back into range"""
        self.radio.in_range = True

    async def cmd_connections(self):
        """connections: how many links this device has now"""
        return str(len(self.device.connections))

    async def cmd_state(self):
        """state: connections and whether it advertises"""
        peers = ','.join(f'{c.peer_address}/mtu={c.att_mtu}/encrypted={int(c.encryption)}'
                         for c in self.device.connections.values())
        return f'connections=[{peers}] advertising={int(self.radio.le_legacy_advertiser.enabled)}'

    async def cmd_pairing(self, kind, passkey='123456'):
        """pairing justworks|display|keyboard|numeric|reject [PASSKEY]: how this device pairs from now on;
        PASSKEY is the one it displays; with keyboard, use enter"""
        self.accept = kind != 'reject'
        self.passkey = int(passkey)
        self.io = {'display': PairingDelegate.DISPLAY_OUTPUT_ONLY, 'keyboard': PairingDelegate.KEYBOARD_INPUT_ONLY,
                   'numeric': PairingDelegate.DISPLAY_OUTPUT_AND_YES_NO_INPUT,
                   }.get(kind, PairingDelegate.NO_OUTPUT_NO_INPUT)

    async def cmd_enter(self, passkey):
        """enter PASSKEY: type it on the device, which asks with the event `passkey?`"""
        self.entered.put_nowait(int(passkey))

    async def cmd_request_pairing(self):
        """request_pairing: send a Security Request"""
        self.connection.request_pairing()

    async def advertise_from(self, address):
        async with self.advertising:
            await self.device.stop_advertising()
            await self.device.send_sync_command(hci.HCI_LE_Set_Random_Address_Command(random_address=address))
            self.device.random_address = address
        await self.update_advertising()

    async def cmd_private(self):
        """private: advertise from a new resolvable private address, which is the answer"""
        await self.advertise_from(Address.generate_private_address(self.device.irk))
        return self.device.random_address.to_string(with_type_qualifier=False)

    async def cmd_identity(self):
        """identity: advertise from the identity address again"""
        await self.advertise_from(self.device.static_address)

    async def cmd_forget(self):
        """forget: drop this device's bonds (the other side keeps its own)"""
        self.device.keystore = MemoryKeyStore()

    async def cmd_value(self, number, value=None):
        """value NUMBER [HEX]: read or set the stored value of a characteristic, without a notification"""
        if value is not None:
            self.values[int(number, 16)] = bytes.fromhex(value)
        return self.values[int(number, 16)].hex()

    async def cmd_notify(self, number, value):
        """notify NUMBER HEX: one notification, if it is subscribed to"""
        await self.device.notify_subscribers(self.characteristic(number), bytes.fromhex(value))

    async def cmd_indicate(self, number, value):
        """indicate NUMBER HEX: one indication; answers when it is confirmed"""
        await self.device.indicate_subscribers(self.characteristic(number), bytes.fromhex(value))

    async def cmd_services(self, change):
        """services add|remove|replace: a service 0003 appears, in which a read of 0022 is never answered; goes; makes room for 0004 at its handles. Service Changed is indicated if subscribed to"""
        server = self.device.gatt_server
        if change != 'add':
            service = server.services[-1]
            if service.uuid not in (rig_uuid(0x0003), rig_uuid(0x0004)):
                raise ValueError('neither service 0003 nor 0004 is there')
            server.services.remove(service)
            server.attributes = [a for a in server.attributes if a.handle < service.handle]
            server.attributes_by_handle.clear()
        if change == 'replace':
            service = Service(rig_uuid(0x0004), [self.stored(0x0023, P.READ, b'newer')])
            server.add_service(service)
        if change == 'add':
            async def never(connection):
                await asyncio.sleep(3600)

            service = Service(rig_uuid(0x0003), [
                self.stored(0x0021, P.READ | P.NOTIFY, b'new'),
                self.served(0x0022, P.READ, never)])
            server.add_service(service)
        changed = self.device.gatt_service.service_changed_characteristic
        await self.device.indicate_subscribers(changed, struct.pack('<HH', service.handle, service.end_group_handle))

    async def cmd_burst(self, number, count, size='20', per_second='0'):
        """burst NUMBER COUNT [SIZE [PER_SECOND]]: notifications that start with a 4-byte counter; 0: no pause"""
        handle, peer = self.characteristic(number).handle, self.connection.peer_address
        size, pause = max(int(size), 4), 1 / float(per_second) if float(per_second) else 0
        loop = asyncio.get_running_loop()
        due = loop.time()
        for i in range(int(count)):
            pdu = struct.pack('<BH', 0x1B, handle) + struct.pack('<I', i) + bytes(size - 4)
            # Straight to the air: bumble's host would spend most of the time on its log.
            self.rig.air.send_acl_data(self.radio, peer, PhysicalTransport.LE,
                                       struct.pack('<HH', len(pdu), ATT_CID) + pdu)
            due += pause
            if pause and due > loop.time():
                await asyncio.sleep(due - loop.time())
            elif i % 16 == 15:
                await asyncio.sleep(0)


class Delegate(PairingDelegate):
    def __init__(self, owner):
        super().__init__(owner.io)
        self.owner = owner

    async def accept(self):
        return self.owner.accept

    async def get_number(self):
        self.owner.event('passkey?')
        return await asyncio.wait_for(self.owner.entered.get(), 25)

    async def generate_passkey(self):
        return self.owner.passkey

    async def display_number(self, number, digits):
        self.owner.event(f'display {number:0{digits}}')

    async def compare_numbers(self, number, digits):
        self.owner.event(f'compare {number:0{digits}}')
        return True


class Heart(Virtual):
    """Heart Rate (measurement, body location, control point), Battery, Device Information."""

    key, name, address = 'heart', 'Rig Heart', 'F0:F1:F2:00:00:01'
    services_advertised = (gatt.GATT_HEART_RATE_SERVICE, gatt.GATT_BATTERY_SERVICE)

    def __init__(self, rig):
        super().__init__(rig)

        def control_point(connection, value):
            self.event(f'written 2a39 {bytes(value).hex()}')
            if bytes(value) != b'\x01':
                raise ATT_Error(0x80)  # Control Point Not Supported
            self.energy = 0

        def number(n, properties, value):
            return self.stored(n, properties, value, uuid=UUID.from_16_bits(n))

        self.device.add_services([
            Service(gatt.GATT_HEART_RATE_SERVICE, [
                number(0x2A37, P.NOTIFY, bytes([0, 60])),
                number(0x2A38, P.READ, b'\x01'),
                self.served(0x2A39, P.WRITE, write=control_point, uuid=UUID.from_16_bits(0x2A39))]),
            Service(gatt.GATT_BATTERY_SERVICE, [number(0x2A19, P.READ | P.NOTIFY, b'\x64')]),
            Service(gatt.GATT_DEVICE_INFORMATION_SERVICE, [
                number(0x2A29, P.READ, b'BluezKit rig'), number(0x2A24, P.READ, b'heart')])])
        self.beats, self.energy = None, 0

    @staticmethod
    def measurement(bpm, energy=None):
        """A Heart Rate Measurement as a chest strap sends it: skin contact, one RR interval, at times the energy."""
        flags = 0x16 | (0x01 if bpm > 255 else 0) | (0x08 if energy is not None else 0)
        return (bytes([flags]) + struct.pack('<H' if bpm > 255 else 'B', bpm)
                + (struct.pack('<H', energy & 0xFFFF) if energy is not None else b'')
                + struct.pack('<H', 60 * 1024 // max(bpm, 1)))

    async def cmd_measure(self, bpm, energy=None):
        """measure BPM [KILOJOULE]: notify 2A37 once; above 255 bpm in the 16-bit format"""
        await self.device.notify_subscribers(self.characteristics[0x2A37], self.measurement(
            int(bpm), None if energy is None else int(energy)))

    async def cmd_beat(self, per_second):
        """beat PER_SECOND: notify 2A37 with a counting heart rate (60 to 159, then again), on and on; every tenth
        carries the energy expended, which control point 01 resets; 0 stops it"""
        if self.beats:
            self.beats.cancel()
            self.beats = None
        if float(per_second):
            self.beats = asyncio.create_task(self.beat(1 / float(per_second)))

    async def beat(self, pause):
        loop, count = asyncio.get_running_loop(), 0
        due = loop.time()
        while True:
            energy = None
            if count % 10 == 9:
                self.energy += 1
                energy = self.energy
            await self.device.notify_subscribers(
                self.characteristics[0x2A37], self.measurement(60 + count % 100, energy))
            count += 1
            due = max(due + pause, loop.time())
            await asyncio.sleep(due - loop.time())


class Sink(Virtual):
    """The kitchen sink: every kind of characteristic. Numbers are those of rig_uuid."""

    key, name, address = 'sink', 'Rig Sink', 'F0:F1:F2:00:00:02'
    services_advertised = (rig_uuid(0x0001),)

    def __init__(self, rig):
        super().__init__(rig)
        self.received, self.pauses = 0, 0

        def count(connection, value):
            if self.pauses and random.random() < 0.02:
                time.sleep(random.uniform(0, self.pauses) / 1000)  # all of this side stands still
            self.received += len(value)
            if self.rig.watchers:  # a flood of events would slow down who does not listen
                self.event(f'written 0012 {bytes(value).hex()}')

        async def slow(connection):
            await asyncio.sleep(5)
            return b'slow'

        def refuse(connection, *value):
            raise ATT_Error(0x80)

        included = Service(rig_uuid(0x0002), [self.stored(0x0020, P.READ, b'included')], primary=False)
        self.device.add_services([included, Service(rig_uuid(0x0001), [
            self.stored(0x0010, P.READ, b'hello'),
            self.stored(0x0011, P.READ | P.WRITE, b'\x00'),
            self.served(0x0012, P.WRITE_WITHOUT_RESPONSE, write=count),
            self.served(0x001C, P.READ, lambda c: struct.pack('<I', self.received)),  # how many bytes 0012 got
            self.stored(0x0013, P.READ | P.NOTIFY, b'\x00'),
            self.stored(0x0014, P.READ | P.INDICATE, b'\x00'),
            self.stored(0x0015, P.READ | P.WRITE, bytes(i % 256 for i in range(512))),
            self.stored(0x0016, P.READ | P.WRITE, b'encrypted',
                        permissions=RW | X.READ_REQUIRES_ENCRYPTION | X.WRITE_REQUIRES_ENCRYPTION),
            self.stored(0x0017, P.READ | P.WRITE, b'authenticated',
                        permissions=RW | X.READ_REQUIRES_AUTHENTICATION | X.WRITE_REQUIRES_AUTHENTICATION),
            self.stored(0x0018, P.READ | P.WRITE | P.EXTENDED_PROPERTIES, b'described', descriptors=[
                Descriptor(gatt.GATT_CHARACTERISTIC_EXTENDED_PROPERTIES_DESCRIPTOR, X.READABLE, b'\x02\x00'),
                Descriptor(gatt.GATT_CHARACTERISTIC_USER_DESCRIPTION_DESCRIPTOR, RW, b'A description'),
                Descriptor(gatt.GATT_CHARACTERISTIC_PRESENTATION_FORMAT_DESCRIPTOR, X.READABLE,
                           bytes.fromhex('19000027010000')),
                Descriptor(rig_uuid(0x0030), RW, b'own')]),
            self.stored(0x0019, P.READ | P.NOTIFY | P.INDICATE, b'\x00'),
            self.served(0x001A, P.READ | P.WRITE, refuse, refuse),
            self.served(0x001B, P.READ, slow),
        ], included_services=[included])])

    async def cmd_pauses(self, milliseconds):
        """pauses MILLISECONDS: pause before a write without response now and then, at most so long; 0: never"""
        self.pauses = float(milliseconds)


class Sensor(Virtual):
    """A small sensor like many: one value that can be read and that notifies."""

    services_advertised = (UUID.from_16_bits(0x1815),)

    def __init__(self, rig, number):
        self.key, self.name, self.address = f'sensor{number}', f'Rig Sensor {number}', f'F0:F1:F2:00:01:{number:02}'
        super().__init__(rig)
        self.device.add_service(Service(UUID.from_16_bits(0x1815), [
            self.stored(0x2A56, P.READ | P.NOTIFY, b'\x00', uuid=UUID.from_16_bits(0x2A56))]))


class Dual(Virtual):
    """A peripheral that has classic Bluetooth as well, and says so by its flags and its public address."""

    key, name, address = 'dual', 'Rig Dual', '00:B1:5E:D0:0A:01'
    services_advertised, flags = (UUID.from_16_bits(0x1815),), 0x02
    address_type = hci.OwnAddressType.PUBLIC

    def __init__(self, rig):
        super().__init__(rig)
        self.advertise = False
        self.radio.public_address = Address(self.address, Address.PUBLIC_DEVICE_ADDRESS)
        self.device.add_service(Service(UUID.from_16_bits(0x1815), [
            self.stored(0x2A56, P.READ, b'\x00', uuid=UUID.from_16_bits(0x2A56))]))


class CoC(Channels, Virtual):
    """L2CAP LE channels that echo, unless told otherwise: PSM 0080, which is in the characteristic 0041 (2 bytes) and in
    Apple's, 0081 on an encrypted link only, 0082 likewise, with another result when it is not."""

    key, name, address = 'coc', 'Rig CoC', 'F0:F1:F2:00:00:03'
    services_advertised, flags = (rig_uuid(0x0040),), 0x04  # not discoverable

    def __init__(self, rig):
        super().__init__(rig)
        self.set_up_channels()
        self.serve_channels(0x80)
        self.serve_channels(0x81, lambda connection: 0 if connection.encryption else 0x0008)  # insufficient encryption
        self.serve_channels(0x82, lambda connection: 0 if connection.encryption else 0x0005)  # insufficient authentication
        self.device.add_service(Service(rig_uuid(0x0040), [
            self.stored(0x0041, P.READ, b'\x80\0'),
            self.stored(0x0042, P.READ, b'\x80\0', uuid=UUID('ABDD3056-28FA-441D-A470-55A75A52553A'))]))


class Crowd:
    """Hundreds of beacons that do not cost a host each: they are only advertisements on the air."""

    key = 'crowd'

    def __init__(self, rig):
        self.rig, self.task, self.in_range = rig, None, True

    async def start(self):
        pass

    async def cmd_set(self, count, interval='1000', change='1'):
        """set COUNT [INTERVAL_MS [CHANGE]]: so many beacons; the manufacturer data changes in each CHANGEth
        advertisement of a beacon (0: never). Company 0xFFFF, then beacon number and counter, 2 bytes each"""
        if self.task:
            self.task.cancel()
            self.task = None
        if int(count):
            self.task = asyncio.create_task(self.run(int(count), int(interval) / 1000, int(change)))

    async def run(self, count, interval, change):
        loop, turn = asyncio.get_running_loop(), 0
        start = loop.time()
        while True:
            for i in range(count):
                counter = turn // change if change else 0
                address = Address(bytes([i & 255, i >> 8, 0, 0xD0, 0xC0, 0xF0]), Address.RANDOM_DEVICE_ADDRESS)
                data = bytes([2, 1, 6, 7, 0xFF, 0xFF, 0xFF]) + struct.pack('<HH', i, counter & 0xFFFF)
                self.rig.air.send_advertising_pdu(self, Advertisement(
                    address, data, b'', ADV_NONCONN_IND, -50 - random.randrange(20)))
                due = start + (turn + (i + 1) / count) * interval
                if due - loop.time() > 0.001:
                    await asyncio.sleep(due - loop.time())
            turn += 1
            await asyncio.sleep(0)
