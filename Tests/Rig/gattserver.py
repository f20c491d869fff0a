"""A GATT server on bluetoothd that records each of bluetoothd's calls, and answers as configured.

For measuring bluetoothd's behaviour, and for the self-test. Objects are plain data; nothing is added.
"""

import asyncio
import os
import socket

from dbus_fast import BusType, Message, MessageFlag, MessageType, Variant
from dbus_fast.aio import MessageBus

GATT, PROPERTIES = 'org.bluez.Gatt', 'org.freedesktop.DBus.Properties'


def plain(value):
    """A value as text that is short."""
    if isinstance(value, Variant):
        return plain(value.value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex() if len(value) <= 24 else f'{bytes(value[:4]).hex()}…({len(value)})'
    if isinstance(value, dict):
        return '{' + ' '.join(f'{k}={plain(v)}' for k, v in value.items()) + '}'
    if isinstance(value, (list, tuple)):
        return '[' + ' '.join(map(plain, value)) + ']'
    return str(value)


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, name, text=''):
        super().__init__(name, text)
        self.name, self.text = name, text


class Server:
    """One connection to the bus with some objects: path -> interface -> property -> Variant."""

    def __init__(self, adapter='/org/bluez/hci0', log=print):
        self.adapter, self.log, self.bus = adapter, log, None
        self.objects, self.values, self.handlers, self.sockets = {}, {}, {}, {}
        self.calls = []  # as text

    async def start(self):
        self.bus = await MessageBus(bus_type=BusType.SYSTEM, negotiate_unix_fd=True).connect()
        self.bus.add_message_handler(self.on_message)
        return self

    # Building
    def service(self, path, uuid, primary=True, includes=None, **more):
        properties = {'UUID': Variant('s', uuid), 'Primary': Variant('b', primary)}
        if includes is not None:
            properties['Includes'] = Variant('ao', includes)
        self.objects[path] = {GATT + 'Service1': {**properties, **more}}

    def characteristic(self, path, uuid, flags, value=b'', **more):
        self.objects[path] = {GATT + 'Characteristic1': {
            'UUID': Variant('s', uuid), 'Service': Variant('o', path.rpartition('/')[0]),
            'Flags': Variant('as', flags), **more}}
        self.values[path] = value

    def descriptor(self, path, uuid, flags, value=b''):
        self.objects[path] = {GATT + 'Descriptor1': {
            'UUID': Variant('s', uuid), 'Characteristic': Variant('o', path.rpartition('/')[0]),
            'Flags': Variant('as', flags)}}
        self.values[path] = value

    # Calling
    async def call(self, member, signature='', body=(), interface='org.bluez.GattManager1', path=None):
        answer = await self.bus.call(Message(
            destination='org.bluez', path=path or self.adapter, interface=interface, member=member,
            signature=signature, body=list(body)))
        if answer.message_type == MessageType.ERROR:
            text = answer.body[0] if answer.body else ''
            self.log(f'{member} -> {answer.error_name} "{text}"')
            raise Refusal(answer.error_name, text)
        self.log(f'{member} -> ok')
        return answer.body

    async def register(self, root='/app'):
        return await self.call('RegisterApplication', 'oa{sv}', [root, {}])

    async def unregister(self, root='/app'):
        return await self.call('UnregisterApplication', 'o', [root])

    async def advertise(self, path='/adv', **properties):
        self.objects[path] = {'org.bluez.LEAdvertisement1': properties}
        return await self.call('RegisterAdvertisement', 'oa{sv}', [path, {}], 'org.bluez.LEAdvertisingManager1')

    async def withdraw(self, path='/adv'):
        return await self.call('UnregisterAdvertisement', 'o', [path], 'org.bluez.LEAdvertisingManager1')

    async def be_agent(self, capability='NoInputNoOutput'):
        return await self.call(
            'RegisterAgent', 'os', ['/agent', capability], 'org.bluez.AgentManager1', '/org/bluez')

    async def get(self, name, interface='org.bluez.LEAdvertisingManager1', path=None):
        answer = await self.bus.call(Message(
            destination='org.bluez', path=path or self.adapter, interface=PROPERTIES, member='Get',
            signature='ss', body=[interface, name]))
        return answer.body[0].value if answer.message_type != MessageType.ERROR else answer.error_name

    def changed(self, path, invalidated=(), interface=GATT + 'Characteristic1', **properties):
        self.bus.send(Message.new_signal(
            path, PROPERTIES, 'PropertiesChanged', 'sa{sv}as', [interface, properties, list(invalidated)]))

    def notify(self, path, value):
        self.changed(path, Value=Variant('ay', value))

    # Answering
    def on_message(self, message):
        if message.message_type != MessageType.METHOD_CALL:
            return None
        silent = bool(message.flags & MessageFlag.NO_REPLY_EXPECTED)
        text = f'{message.path} {message.member} ' + ' '.join(map(plain, message.body)) + (' NO_REPLY' * silent)
        self.calls.append(text.strip())
        self.log('  <- ' + text.strip())
        asyncio.get_running_loop().create_task(self.answer(message, silent))
        return True

    async def answer(self, message, silent):
        try:
            signature, body, descriptors = await self.result(message)
            reply = Message.new_method_return(message, signature, body, descriptors)
        except Refusal as e:
            reply = Message.new_error(message, e.name, e.text)
        if not silent:
            self.bus.send(reply)
            for descriptor in reply.unix_fds:  # the bus has its own copy when it has sent this
                asyncio.get_running_loop().call_later(1, os.close, descriptor)

    async def result(self, message):
        path, member = message.path, message.member
        handler = self.handlers.get((path, member))
        if handler:
            value = await handler(message.body)
            if isinstance(value, tuple):
                return value
            return ('', [], []) if value is None else ('ay', [value], [])
        if member == 'GetManagedObjects':
            below = path.rstrip('/') + '/'
            found = {p: i for p, i in self.objects.items() if p.startswith(below)}
            return 'a{oa{sa{sv}}}', [found], []
        if member == 'GetAll':
            return 'a{sv}', [self.objects.get(path, {}).get(message.body[0], {})], []
        if member == 'ReadValue':
            offset = message.body[0].get('offset', Variant('q', 0)).value
            return 'ay', [bytes(self.values[path][offset:])], []
        if member == 'WriteValue':
            offset = message.body[1].get('offset', Variant('q', 0)).value
            if not message.body[1].get('prepare-authorize'):
                self.values[path] = self.values[path][:offset] + bytes(message.body[0])
            return '', [], []
        if member in ('AcquireNotify', 'AcquireWrite'):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            self.sockets[path] = ours
            asyncio.get_running_loop().add_reader(ours, self.on_packet, path, ours)
            return 'hq', [0, message.body[0]['mtu'].value], [os.dup(theirs.fileno())]
        if member in ('StartNotify', 'StopNotify', 'Confirm', 'Release', 'Set', 'Cancel', 'RequestConfirmation',
                      'RequestAuthorization', 'AuthorizeService'):
            return '', [], []
        raise Refusal('org.freedesktop.DBus.Error.UnknownMethod', member)

    def on_packet(self, path, end):
        try:
            packet = end.recv(1024)
        except BlockingIOError:
            return
        self.log(f'  <- {path} packet {plain(packet)}')
        self.calls.append(f'{path} packet {plain(packet)}')
        if not packet:
            asyncio.get_running_loop().remove_reader(end)
            end.close()
