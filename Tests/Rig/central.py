"""A central, to test a peripheral that BlueZ plays: each command is one step of the Attribute Protocol or of GATT.

Answers name UUIDs in lower case, four digits where they are the Bluetooth SIG's. The simulator understands the same
lines and answers alike, so what is changed here is changed there (Sources/BluezKitSimulator/VirtualCentral*.swift).
"""

import asyncio
import random
import struct

from bumble import att
from bumble.core import UUID, AdvertisingData
from bumble.device import Peer
from bumble.hci import Address

from channels import Channels
from devices import Virtual
from radio import ADV_IND

PRIMARY, SECONDARY, INCLUDE, CHARACTERISTIC, CONFIGURATION = 0x2800, 0x2801, 0x2802, 0x2803, 0x2902
PROPERTIES = ('broadcast', 'read', 'write-without-response', 'write', 'notify', 'indicate',
              'authenticated-signed-writes', 'extended-properties')


def uuid_text(data):
    """A UUID as it comes over the air."""
    text = bytes(data)[::-1].hex()
    if len(data) != 16:
        return text
    text = '-'.join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    base = '-0000-1000-8000-00805f9b34fb'
    return text[4:8] if text.startswith('0000') and text.endswith(base) else text


def same_uuid(text):
    """The same for a UUID in a command."""
    return uuid_text(UUID(text).to_bytes())


class Attributes:
    """The services of the connected peripheral, in the order of their handles."""

    def __init__(self):
        self.services, self.characteristics = [], []

    def text(self):
        words = []
        for kind, uuid, handle, includes, characteristics in self.services:
            words.append(f'{kind}:{uuid}@{handle:04x}')
            words += [f'include:{include}' for include in includes]
            for c in characteristics:
                names = ','.join(n for i, n in enumerate(PROPERTIES) if c['properties'] >> i & 1)
                words.append(f'characteristic:{c["uuid"]}@{c["handle"]:04x}:{names}')
                words += [f'descriptor:{u}@{h:04x}' for u, h in c['descriptors']]
        return ' '.join(words)


class Central(Channels, Virtual):
    key, name, address = 'central', 'Rig Central', 'F0:F1:F2:00:00:04'

    def __init__(self, rig):
        super().__init__(rig)
        self.set_up_channels()
        self.advertise, self.peer, self.attributes, self.confirms = False, None, Attributes(), True
        self.names = {}  # what subscribe was told, for events

    # Finding
    async def cmd_scan(self, seconds):
        """scan SECONDS: addresses and names heard"""
        found = {}
        listener = self.device.on('advertisement', lambda a: found.update(
            {str(a.address): a.data.get(AdvertisingData.COMPLETE_LOCAL_NAME) or found.get(str(a.address))}))
        await self.device.start_scanning(filter_duplicates=True)
        await asyncio.sleep(float(seconds))
        await self.device.stop_scanning()
        self.device.remove_listener('advertisement', listener)
        return ' '.join(f'{a}={n}' for a, n in found.items())

    async def cmd_advertisement(self, address):
        """advertisement ADDRESS: the next one heard of it, within 5 s, with its scan response: connectable=0|1
        size=DATA+RESPONSE (bytes), then what there is of flags= uuids= solicited= manufacturer=COMPANY:HEX,…
        service=UUID:HEX,… txpower= appearance= other=TYPE:HEX,… shortname= name= (to the end of the line)"""
        heard = asyncio.get_running_loop().create_future()
        wanted = address.upper().partition('/')[0]

        def listen(advertisement):
            if advertisement.advertiser_address.to_string(False) == wanted and not heard.done():
                heard.set_result(advertisement)

        with self.radio.listening(listen):
            try:
                advertisement = await asyncio.wait_for(heard, 5)
            except asyncio.TimeoutError:
                raise ValueError('nothing heard') from None
        return describe(advertisement)

    # Connecting
    async def cmd_connect(self, address, mtu='517'):
        """connect ADDRESS[/P] [MTU]: /P for a public address; answers when services are discovered: mtu=N UUID…; connects
        again, at most four times, if the link does not come that far"""
        # bluetoothd takes a link that is made before it noticed the end of the last one for an EATT bearer of that: it refuses to
        # exchange the MTU, or ends both.
        for left in reversed(range(5)):
            try:
                return await self.connect(address, mtu)
            except att.ATT_Error as e:
                if e.error_code != 0x06 or not left:  # Request Not Supported
                    raise
                await self.connection.disconnect()
            except asyncio.CancelledError:  # bumble's way to say that the link has ended
                if not left or asyncio.current_task().cancelling():
                    raise
            await asyncio.sleep(0.2)

    async def connect(self, address, mtu):
        self.device.gatt_server.max_mtu = int(mtu)  # bluetoothd asks as well
        connection = await self.link_to(Address(address.upper()))
        if await self.device.keystore.get(str(connection.peer_address)):
            await self.encrypt(connection)  # as every central does; bluetoothd answers nothing before
        self.peer = Peer(connection)
        client, confirm = self.peer.gatt_client, self.peer.gatt_client.send_confirmation
        client.send_confirmation = lambda c: confirm(c) if self.confirms else None
        # Whatever comes becomes an event: a bonded peripheral remembers a subscription of the last time.
        client.on_att_handle_value_notification = lambda pdu: self.received('notified', pdu)
        client.on_att_handle_value_indication = lambda pdu: (
            self.received('indicated', pdu), client.send_confirmation(att.ATT_Handle_Value_Confirmation()))
        if int(mtu) > 23:
            await self.peer.request_mtu(int(mtu))
        await self.discover()
        return f'mtu={connection.att_mtu} ' + ' '.join(s[1] for s in self.attributes.services if s[0] == 'primary')

    async def cmd_services(self):
        """services: what was found: primary:UUID@HANDLE or secondary:UUID@HANDLE, each followed by include:UUID,
        characteristic:UUID@HANDLE:PROPERTY,…, descriptor:UUID@HANDLE"""
        return self.attributes.text()

    async def cmd_discover(self):
        """discover: find out about the services again, and answer as services does"""
        await self.discover()
        return self.attributes.text()

    async def cmd_pair(self):
        """pair: pair with the connected peripheral"""
        await self.connection.pair()

    # Reading
    async def cmd_read(self, uuid):
        """read UUID: value of the remote characteristic; what does not fit into one answer is asked for by blobs"""
        handle = self.remote(uuid)['handle']
        value = await self.request(att.ATT_Read_Request(attribute_handle=handle))
        return (await self.rest(handle, value.attribute_value)).hex()

    async def cmd_readlong(self, uuid):
        """readlong UUID: the same by blobs alone, the first from offset 0"""
        handle = self.remote(uuid)['handle']
        return (await self.rest(handle, await self.blob(handle, 0))).hex()

    async def cmd_readat(self, uuid, offset):
        """readat UUID OFFSET: one blob"""
        return (await self.blob(self.remote(uuid)['handle'], int(offset))).hex()

    async def cmd_readdescriptor(self, uuid, descriptor):
        """readdescriptor UUID DESCRIPTOR_UUID"""
        handle = self.descriptor(uuid, descriptor)
        value = await self.request(att.ATT_Read_Request(attribute_handle=handle))
        return (await self.rest(handle, value.attribute_value)).hex()

    # Writing
    async def cmd_write(self, uuid, value='', response='1'):
        """write UUID HEX [0]: one request, however long; 0: a command, without response. HEX may be - for nothing"""
        await self.write(self.remote(uuid)['handle'], bytes_of(value), response == '1')

    async def cmd_writedescriptor(self, uuid, descriptor, value=''):
        """writedescriptor UUID DESCRIPTOR_UUID HEX"""
        await self.write(self.descriptor(uuid, descriptor), bytes_of(value))

    async def cmd_writelong(self, uuid, value):
        """writelong UUID HEX: prepared writes, each as long as fits, then executed"""
        handle, value, size = self.remote(uuid)['handle'], bytes_of(value), self.connection.att_mtu - 5
        for offset in range(0, max(len(value), 1), size):
            await self.prepare(handle, offset, value[offset:offset + size])
        await self.request(att.ATT_Execute_Write_Request(flags=1))

    async def cmd_preparewrite(self, uuid, offset, value=''):
        """preparewrite UUID OFFSET HEX: one prepared write; answers what the other side repeats: OFFSET HEX"""
        answer = await self.prepare(self.remote(uuid)['handle'], int(offset), bytes_of(value))
        return f'{answer.value_offset} {bytes(answer.part_attribute_value).hex()}'

    async def cmd_execute(self, flag):
        """execute 0|1: cancel what was prepared, or carry it out"""
        await self.request(att.ATT_Execute_Write_Request(flags=int(flag)))

    # Subscribing
    async def cmd_subscribe(self, uuid):
        """subscribe UUID: notifications, or indications where there are no others; events: notified or indicated
        UUID HEX"""
        c = self.remote(uuid)
        await self.configure(c, uuid, 1 if c['properties'] & 0x10 or not c['properties'] & 0x20 else 2)

    async def cmd_indications(self, uuid):
        """indications UUID: subscribe to indications, each confirmed (but see confirm); events: indicated UUID HEX"""
        await self.configure(self.remote(uuid), uuid, 2)

    async def cmd_configure(self, uuid, number):
        """configure UUID NUMBER: write any client characteristic configuration, 0 to 65535"""
        await self.configure(self.remote(uuid), uuid, int(number))

    async def cmd_unsubscribe(self, uuid):
        """unsubscribe UUID"""
        await self.configure(self.remote(uuid), uuid, 0)

    async def cmd_confirm(self, switch):
        """confirm on|off: whether indications are confirmed from now on"""
        self.confirms = switch == 'on'

    async def cmd_churn(self, address, uuid, count):
        """churn ADDRESS[/P] UUID COUNT: so many times: connect, subscribe, disconnect"""
        for _ in range(int(count)):
            await self.cmd_connect(address)
            await self.cmd_subscribe(uuid)
            await self.connection.disconnect()

    async def cmd_storm(self, count, seed='1'):
        """storm COUNT [SEED]: so many requests that make little sense: writes and prepared writes of any length at any
        offset, blobs from anywhere, configurations that do not exist, packets that are none; connects again when the
        link ends. Answers answers=N errors=N"""
        dice, answers, errors = random.Random(int(seed)), 0, 0
        address = str(self.connection.peer_address)
        for _ in range(int(count)):
            if not self.device.connections:
                await self.cmd_connect(address)
            c = dice.choice(self.attributes.characteristics)
            handle = dice.choice([c['handle'], *(h for _, h in c['descriptors'])])
            value, offset = dice.randbytes(dice.randrange(515)), dice.randrange(700)
            try:
                match dice.randrange(7):
                    case 0: await self.write(handle, value)
                    case 1: await self.write(handle, value, False)
                    case 2: await self.prepare(handle, offset, value[:512])
                    case 3: await self.blob(handle, offset)
                    case 4: await self.request(att.ATT_Execute_Write_Request(flags=offset % 2))
                    case 5: await self.write(handle, value[:2])
                    case _: self.peer.gatt_client.send_gatt_pdu(bytes([0x40 | dice.randrange(64)]) + value)
                answers += 1
            except att.ATT_Error:
                answers, errors = answers + 1, errors + 1
            except (ConnectionError, ValueError):
                pass  # the link has ended
        return f'answers={answers} errors={errors}'

    # The Attribute Protocol
    async def request(self, pdu):
        if not self.peer or not self.device.connections:
            raise ValueError('not connected')
        try:
            answer = await self.peer.gatt_client.send_request(pdu)
        except asyncio.CancelledError:
            raise ConnectionError('disconnected') from None
        if isinstance(answer, att.ATT_Error_Response):
            raise att.ATT_Error(answer.error_code)
        return answer

    async def blob(self, handle, offset):
        answer = await self.request(att.ATT_Read_Blob_Request(attribute_handle=handle, value_offset=offset))
        return bytes(answer.part_attribute_value)

    async def rest(self, handle, value):
        """Reads on as long as answers are full."""
        value, last = bytes(value), len(value)
        while last == self.connection.att_mtu - 1:
            try:
                part = await self.blob(handle, len(value))
            except att.ATT_Error as e:
                if e.error_code in (0x07, 0x0B):  # Invalid Offset, Attribute Not Long: it was the end
                    break
                raise
            value, last = value + part, len(part)
        return value

    async def write(self, handle, value, response=True):
        if response:
            await self.request(att.ATT_Write_Request(attribute_handle=handle, attribute_value=value))
        else:
            if not self.device.connections:
                raise ValueError('not connected')
            await self.peer.gatt_client.send_command(
                att.ATT_Write_Command(attribute_handle=handle, attribute_value=value))

    async def prepare(self, handle, offset, value):
        return await self.request(att.ATT_Prepare_Write_Request(
            attribute_handle=handle, value_offset=offset, part_attribute_value=value))

    def received(self, how, pdu):
        handle = pdu.attribute_handle
        uuid = self.names.get(handle) or next(
            (c['uuid'] for c in self.attributes.characteristics if c['handle'] == handle), f'{handle:04x}')
        self.event(f'{how} {uuid} {bytes(pdu.attribute_value).hex()}')

    async def configure(self, c, uuid, number):
        self.names[c['handle']] = uuid
        await self.write(self.descriptor(uuid, '2902'), struct.pack('<H', number))

    def remote(self, uuid):
        for c in self.attributes.characteristics:
            if c['uuid'] == same_uuid(uuid):
                return c
        raise ValueError(f'no characteristic {uuid}')

    def descriptor(self, uuid, descriptor):
        for found, handle in self.remote(uuid)['descriptors']:
            if found == same_uuid(descriptor):
                return handle
        raise ValueError(f'no descriptor {descriptor} of {uuid}')

    # Discovery. Not bumble's: that knows no secondary services, and no includes without a UUID.
    async def pages(self, make, first, last):
        """Asks again and again for what follows, until there is no more. Yields handle, end handle, value."""
        while first <= last:
            try:
                answer = await self.request(make(first, last))
            except att.ATT_Error as e:
                if e.error_code == 0x0A:  # Attribute Not Found
                    return
                raise
            found = getattr(answer, 'attributes', None) or getattr(answer, 'information', None) or []
            if not found:
                return
            for entry in found:
                yield (entry[0], entry[1] if len(entry) == 3 else entry[0], entry[-1])
            first = (found[-1][1] if len(found[-1]) == 3 else found[-1][0]) + 1

    async def discover(self):
        table, groups = Attributes(), []
        for kind, number in (('primary', PRIMARY), ('secondary', SECONDARY)):
            async for handle, end, value in self.pages(lambda a, b, n=number: att.ATT_Read_By_Group_Type_Request(
                    starting_handle=a, ending_handle=b, attribute_group_type=UUID.from_16_bits(n)), 1, 0xFFFF):
                groups.append((handle, end, kind, uuid_text(value)))
        groups.sort()
        by_handle = {g[0]: g[3] for g in groups}

        def of_type(number, first, last):
            return self.pages(lambda a, b: att.ATT_Read_By_Type_Request(
                starting_handle=a, ending_handle=b, attribute_type=UUID.from_16_bits(number)), first, last)

        for handle, end, kind, uuid in groups:
            includes = [by_handle.get(struct.unpack_from('<H', value)[0], '?')
                        async for _, _, value in of_type(INCLUDE, handle, end)]
            found = []
            async for declaration, _, value in of_type(CHARACTERISTIC, handle, end):
                properties, value_handle = struct.unpack_from('<BH', value)
                found.append({'uuid': uuid_text(value[3:]), 'declaration': declaration, 'handle': value_handle,
                              'properties': properties, 'descriptors': []})
            for c, following in zip(found, [f['declaration'] - 1 for f in found[1:]] + [end]):
                async for h, _, value in self.pages(lambda a, b: att.ATT_Find_Information_Request(
                        starting_handle=a, ending_handle=b), c['handle'] + 1, following):
                    c['descriptors'].append((uuid_text(value), h))
            table.services.append((kind, uuid, handle, includes, found))
            table.characteristics += found
        self.attributes = table


class Central2(Central):
    """Another, so that two can be connected and subscribed at once."""

    key, name, address = 'central2', 'Rig Central 2', 'F0:F1:F2:00:00:05'


def bytes_of(text):
    return bytes.fromhex('' if text == '-' else text)


def fields(data):
    while len(data) > 1 and data[0]:
        yield data[1], bytes(data[2:data[0] + 1])
        data = data[data[0] + 1:]


def describe(advertisement):
    """One line of what an advertisement and its scan response say."""
    words = [f'connectable={int(advertisement.event_type == ADV_IND)}',
             f'size={len(advertisement.data)}+{len(advertisement.scan_response)}']
    lists, name = {}, ''

    def uuids(value, size):
        return [uuid_text(value[i:i + size]) for i in range(0, len(value), size)]

    for kind, value in [*fields(advertisement.data), *fields(advertisement.scan_response)]:
        match kind:
            case 0x01: words.append(f'flags={value.hex()}')
            case 0x02 | 0x03: lists.setdefault('uuids', []).extend(uuids(value, 2))
            case 0x04 | 0x05: lists.setdefault('uuids', []).extend(uuids(value, 4))
            case 0x06 | 0x07: lists.setdefault('uuids', []).extend(uuids(value, 16))
            case 0x14: lists.setdefault('solicited', []).extend(uuids(value, 2))
            case 0x15: lists.setdefault('solicited', []).extend(uuids(value, 16))
            case 0xFF: lists.setdefault('manufacturer', []).append(f'{value[1::-1].hex()}:{value[2:].hex()}')
            case 0x16: lists.setdefault('service', []).append(f'{uuid_text(value[:2])}:{value[2:].hex()}')
            case 0x20: lists.setdefault('service', []).append(f'{uuid_text(value[:4])}:{value[4:].hex()}')
            case 0x21: lists.setdefault('service', []).append(f'{uuid_text(value[:16])}:{value[16:].hex()}')
            case 0x0A: words.append(f'txpower={struct.unpack("b", value)[0]}')
            case 0x19: words.append(f'appearance={value[::-1].hex()}')
            case 0x08: name = f' shortname={value.decode(errors="replace")}'
            case 0x09: name = f' name={value.decode(errors="replace")}'
            case _: lists.setdefault('other', []).append(f'{kind:02x}:{value.hex()}')
    words += [f'{key}={",".join(lists[key])}' for key in ('uuids', 'solicited', 'manufacturer', 'service', 'other')
              if key in lists]
    return ' '.join(words) + name
