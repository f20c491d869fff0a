"""An iPhone, as far as accessories know one: it connects to what solicits the Apple Notification Center Service, pairs, and
offers that service over its own link. Written after Apple's specification (ANCS), not after BluezKit.

The simulator understands the same lines and answers alike, so what is changed here is changed there
(Sources/BluezKitSimulator/VirtualPhone.swift).
"""

import asyncio
import struct
from urllib.parse import unquote

from bumble.att import ATT_Error
from bumble.core import UUID
from bumble.gatt import GATT_CLIENT_CHARACTERISTIC_CONFIGURATION_DESCRIPTOR, Characteristic, CharacteristicValue, Service
from bumble.hci import Address

from central import fields
from devices import P, X, Virtual

ANCS, CONTROL_POINT, SOURCE, DATA = map(UUID, (
    '7905F431-B5CE-4E99-A40F-4B1E122D00D0', '69D1D8F3-45E1-49A8-9821-9BBDFDAAD9D9',
    '9FBF120D-6301-42D9-8C58-25E699A21DBD', '22EAC6E9-24D6-4BB5-BE44-B36ACE7C7BFB'))
UNKNOWN_COMMAND, INVALID_COMMAND, INVALID_PARAMETER, ACTION_FAILED = 0xA0, 0xA1, 0xA2, 0xA3
APP, TITLE, SUBTITLE, MESSAGE, SIZE, DATE, POSITIVE, NEGATIVE = range(8)
WITH_LENGTH = (TITLE, SUBTITLE, MESSAGE)
APPS = {'com.apple.MobileSMS': 'Messages', 'com.apple.mobilephone': 'Phone', 'com.apple.mobilemail': 'Mail'}


class Phone(Virtual):
    key, name, address = 'phone', 'Rig Phone', 'F0:F1:F2:00:00:06'

    def __init__(self, rig):
        super().__init__(rig)
        self.advertise, self.answering, self.notifications = False, True, {}
        self.commands = asyncio.Queue()
        self.control = Characteristic(
            CONTROL_POINT, P.WRITE, X.WRITEABLE | X.WRITE_REQUIRES_AUTHENTICATION,
            CharacteristicValue(write=self.command))
        self.source, self.data = (Characteristic(uuid, P.NOTIFY, X.READABLE) for uuid in (SOURCE, DATA))
        self.source.on(Characteristic.EVENT_SUBSCRIPTION, lambda c, notify, _: notify and self.announce_all())
        self.service = Service(ANCS, [self.control, self.source, self.data])
        self.battery = Characteristic(UUID.from_16_bits(0x2A19), P.READ, X.READABLE, b'\x50')
        self.device.add_service(Service(UUID.from_16_bits(0x180F), [self.battery]))
        self.device.gatt_server.max_mtu = 185  # as an iPhone has it
        self.show(True)

    @property
    def shown(self):
        return self.service in self.device.gatt_server.services

    def show(self, shown):
        server = self.device.gatt_server
        if shown and not self.shown:
            server.add_service(self.service)
            for attribute in server.attributes:  # subscribing needs a paired accessory as well
                if attribute.handle > self.service.handle and (
                        attribute.type == GATT_CLIENT_CHARACTERISTIC_CONFIGURATION_DESCRIPTOR):
                    attribute.permissions |= X.WRITE_REQUIRES_AUTHENTICATION
        elif not shown and self.shown:
            server.services.remove(self.service)
            server.attributes = [a for a in server.attributes if a.handle < self.service.handle]
            server.attributes_by_handle.clear()

    def on_connection(self, connection):
        super().on_connection(connection)
        connection.on('security_request', lambda request: asyncio.create_task(self.secure(connection)))

    async def secure(self, connection):
        """An accessory asks for a secure link."""
        self.event('security-request')
        try:
            if await self.device.keystore.get(str(connection.peer_address)):
                await self.encrypt(connection)
            else:
                await connection.pair()
        except Exception as e:
            self.event(f'security-failed {type(e).__name__}')

    # Notification Source
    def tell(self, event, uid):
        notification = self.notifications.get(uid, self.removed if event == 2 else None)
        category = notification['category']
        count = sum(n['category'] == category for n in self.notifications.values())
        return self.device.notify_subscribers(
            self.source, struct.pack('<BBBBI', event, notification['flags'], category, count, uid))

    def announce_all(self):
        async def announce():
            for uid in list(self.notifications):
                self.notifications[uid]['flags'] |= 4  # it was there before
                await self.tell(0, uid)
        asyncio.create_task(announce())

    # Control Point and Data Source
    def command(self, connection, value):
        value = bytes(value)
        try:
            answer = self.answer(value)
        except ATT_Error as e:
            self.event(f'refused {value.hex()} {e.error_code:#04x}')
            raise
        self.event(f'command {value.hex()}')
        if answer and self.answering:
            asyncio.get_running_loop().call_later(0.01, lambda: asyncio.create_task(self.send(connection, answer)))

    async def send(self, connection, answer):
        size = connection.att_mtu - 3
        for start in range(0, len(answer), size):
            await self.device.notify_subscriber(connection, self.data, answer[start:start + size])

    def answer(self, value):
        """What a command is answered with by the data source."""
        def text(number, text, limit=0xFFFF):
            data = text.encode()[:limit]
            return struct.pack('<BH', number, len(data)) + data

        if not value or value[0] > 2:
            raise ATT_Error(UNKNOWN_COMMAND)
        if value[0] == 1:
            app, end, attributes = value[1:].partition(b'\0')
            if not app or not end or not attributes:
                raise ATT_Error(INVALID_COMMAND)
            if any(attributes) or app.decode(errors='replace') not in APPS:
                raise ATT_Error(INVALID_PARAMETER)
            return value[:len(app) + 2] + b''.join(text(0, APPS[app.decode()]) for _ in attributes)
        if len(value) < 6:
            raise ATT_Error(INVALID_COMMAND)
        uid = struct.unpack_from('<I', value, 1)[0]
        notification = self.notifications.get(uid)
        if notification is None:
            raise ATT_Error(INVALID_PARAMETER)
        if value[0] == 2:
            if len(value) != 6:
                raise ATT_Error(INVALID_COMMAND)
            if value[5] > 1:
                raise ATT_Error(INVALID_PARAMETER)
            if not notification['flags'] >> 3 + value[5] & 1:
                raise ATT_Error(ACTION_FAILED)
            self.event(f'performed {uid} {"negative" if value[5] else "positive"}')
            return b''
        answer, rest = value[:5], value[5:]
        while rest:
            number, rest = rest[0], rest[1:]
            if number > NEGATIVE:
                raise ATT_Error(INVALID_PARAMETER)
            limit = 0xFFFF
            if number in WITH_LENGTH:
                if len(rest) < 2:
                    raise ATT_Error(INVALID_COMMAND)
                limit, rest = struct.unpack_from('<H', rest)[0], rest[2:]
            answer += text(number, notification['texts'][number], limit)
        return answer

    # Commands
    async def cmd_find(self, *words):
        """find [pair]: connects to the next accessory that solicits the service, as if its user had chosen it among the
        devices; with pair, pairs at once, else when it is asked to. Answers its address"""
        heard = asyncio.get_running_loop().create_future()

        def listen(advertisement):
            for kind, value in [*fields(advertisement.data), *fields(advertisement.scan_response)]:
                if kind == 0x15 and ANCS.to_bytes() in value and not heard.done():
                    heard.set_result(advertisement.advertiser_address)

        with self.radio.listening(listen):
            try:
                address = await asyncio.wait_for(heard, 30)
            except asyncio.TimeoutError:
                raise ValueError('no accessory heard') from None
        address = Address(str(address))
        connection = await self.link_to(address)
        if await self.device.keystore.get(str(connection.peer_address)):
            await self.encrypt_link(connection, address)
        elif 'pair' in words:
            await connection.pair()
        return str(address)

    async def encrypt_link(self, connection, address):
        """With the keys of the bond. Linux shows bluetoothd some links before it can secure them ("security requested but not
        available"). bluetoothd, which has a bond, drops them (device_attach_att: EINVAL), the kernel ends them after 4 s, and
        the phone connects again, as phones do."""
        for left in reversed(range(5)):
            try:
                return await self.encrypt(connection)
            except asyncio.CancelledError:  # bumble's way to say that the link has ended
                if not left or connection.taken.is_set() or asyncio.current_task().cancelling():
                    raise
                self.event('not-taken')
            connection = await self.link_to(address)

    async def cmd_permit(self, switch):
        """permit on|off: whether the user lets accessories see the notifications: the service comes or goes"""
        changed = self.device.gatt_service.service_changed_characteristic
        for _ in range(100):
            # bluetoothd subscribes to Service Changed some milliseconds after it has reported the services: no user is faster.
            subscribers = self.device.gatt_server.subscribers
            if not self.device.connections or any(s.get(changed.handle) for s in subscribers.values()):
                break
            await asyncio.sleep(0.02)
        self.show(switch == 'on')
        await self.device.indicate_subscribers(
            changed, struct.pack('<HH', self.service.handle, self.service.end_group_handle))

    async def cmd_battery(self, switch):
        """battery on|off: whether its battery level is for paired accessories only, as an iPhone's is: bluetoothd reads it
        when it is connected, and pairs"""
        self.battery.permissions = X.READABLE | (X.READ_REQUIRES_AUTHENTICATION if switch == 'on' else 0)

    async def cmd_post(self, uid, category, flags, app, *texts):
        """post UID CATEGORY FLAGS APP TITLE|SUBTITLE|MESSAGE[|POSITIVE|NEGATIVE]: a notification, or another text of one
        that is there; %1B is a byte"""
        uid, known = int(uid), int(uid) in self.notifications
        title, subtitle, message, *labels = [unquote(t) for t in ' '.join(texts).split('|')]
        self.notifications[uid] = {
            'category': int(category), 'flags': int(flags),
            'texts': [app, title, subtitle, message, str(len(message.encode())), '20260102T030405',
                      *(labels + ['', ''])[:2]]}
        await self.tell(1 if known else 0, uid)

    async def cmd_remove(self, uid):
        """remove UID: a notification goes"""
        self.removed = self.notifications.pop(int(uid))
        await self.tell(2, int(uid))

    async def cmd_answers(self, switch):
        """answers on|off: whether commands that are accepted are answered"""
        self.answering = switch == 'on'

    async def cmd_data(self, value):
        """data HEX: any value of the data source"""
        await self.device.notify_subscribers(self.data, bytes.fromhex(value))

    async def cmd_source(self, value):
        """source HEX: any value of the notification source"""
        await self.device.notify_subscribers(self.source, bytes.fromhex(value))
