"""L2CAP channels of the virtual devices: how they read, what they send, and what no device may do.

The simulator understands the same lines and answers alike, except for `hostile` and `flood`, so what is changed here is
changed there (Sources/BluezKitSimulator/ChannelControl.swift).
"""

import asyncio
import collections
import hashlib
import random
import struct

from bumble import l2cap

Refused = l2cap.L2CAP_LE_Credit_Based_Connection_Response
CREDITS = 64


def pattern(start, end):
    """What `send` sends: byte i is the sum of the bytes of i."""
    return bytes((i + (i >> 8) + (i >> 16)) & 255 for i in range(start, end))


class Channel(l2cap.LeCreditBasedChannel):
    """bumble's channel, with an end that may read slowly: credits are given back for what was read, and not before."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.granted, self.owed, self.held, self.assembled = self.peer_credits, 0, collections.deque(), b''
        self.changed, self.reads = asyncio.Event(), True
        self.received, self.hash, self.expected = 0, hashlib.sha256(), None

    def on_pdu(self, pdu):
        if self.state != self.State.CONNECTED:
            return
        self.granted -= 1
        self.assembled += pdu
        if len(self.assembled) < 2:
            return
        length, = struct.unpack_from('<H', self.assembled)
        if self.granted < 0 or length > self.mtu or len(self.assembled) > 2 + length:
            asyncio.create_task(self.disconnect())
            return
        self.held.append(b'')
        if len(self.assembled) == 2 + length:
            self.held[-1] = self.assembled[2:]
            self.assembled = b''
        self.changed.set()

    async def read(self):
        """What the next PDU completes, which may be nothing."""
        while not (self.reads and self.held):
            self.changed.clear()
            await self.changed.wait()
        return self.take()

    def take(self):
        """Gives credits back, half of them at a time."""
        data = self.held.popleft()
        self.received += len(data)
        self.hash.update(data)
        self.owed += 1
        if self.owed > CREDITS // 2 and self.state == self.State.CONNECTED:
            self.send_control_frame(l2cap.L2CAP_LE_Flow_Control_Credit(
                identifier=self.manager.next_identifier(self.connection), cid=self.source_cid, credits=self.owed))
            self.granted, self.owed = self.granted + self.owed, 0
        return data

    def send_pdu(self, pdu):
        # bumble would format each for its log.
        self.manager.host.send_acl_sdu(self.connection.handle, struct.pack('<HH', len(pdu), self.destination_cid) + pdu)

    def set_reading(self, reads):
        self.reads = reads
        self.changed.set()


def on_channel_closed(manager, channel):
    """bumble's forgets one of the two entries only, and takes the next channel for one that is still open."""
    manager.channels.get(channel.connection.handle, {}).pop(channel.source_cid, None)
    manager.le_coc_channels.get(channel.connection.handle, {}).pop(channel.destination_cid, None)


l2cap.LeCreditBasedChannel = Channel
l2cap.ChannelManager.on_channel_closed = on_channel_closed


class Channels:
    """The commands of a device that has channels: a part of its class."""

    def set_up_channels(self):
        self.channels, self.last, self.mode, self.reads, self.pauses = [], None, 'echo', True, 0
        self.refusal, self.closes = 0, False

    def serve_channels(self, psm, refuses=lambda connection: 0):
        """Channels to this PSM are accepted, unless `refuses` returns the result of a refusal."""
        manager = self.device.l2cap_channel_manager
        server = self.device.create_l2cap_server(
            l2cap.LeCreditBasedChannelSpec(psm=psm, mtu=2048, mps=247, max_credits=CREDITS), self.add_channel)
        accept = manager.on_l2cap_le_credit_based_connection_request

        def on_request(connection, cid, request):
            result = request.le_psm == psm and (self.refusal or refuses(connection))
            if not result:
                return accept(connection, cid, request)
            manager.send_control_frame(connection, cid, Refused(
                identifier=request.identifier, destination_cid=0, mtu=server.mtu, mps=server.mps, initial_credits=0,
                result=result))

        manager.on_l2cap_le_credit_based_connection_request = on_request

    def add_channel(self, channel):
        self.channels.append(channel)
        self.last = channel
        channel.reads = self.reads
        self.event(f'channel-open {channel.psm:04x} mtu={channel.peer_mtu} mps={channel.peer_mps}')
        reading = asyncio.create_task(self.read(channel))
        channel.on('close', lambda: self.channel_closed(channel, reading))
        if self.closes:
            asyncio.create_task(channel.disconnect())

    def channel_closed(self, channel, reading):
        reading.cancel()
        channel.drained.set()
        while channel.held:  # what had arrived
            channel.take()
        if channel in self.channels:
            self.channels.remove(channel)
        self.event(f'channel-closed {channel.psm:04x} {self.digest(channel)}')

    async def read(self, channel):
        while True:
            data = await channel.read()
            if self.mode == 'echo' and data:
                channel.write(data)
                await channel.drain()
            if channel.expected is not None and channel.received >= channel.expected:
                channel.expected = None
                self.event(f'channel-received {self.digest(channel)}')
            if self.pauses and random.random() < 0.1:
                await asyncio.sleep(random.uniform(0, self.pauses) / 1000)

    async def send(self, channel, size):
        digest = hashlib.sha256()
        for start in range(0, size, channel.peer_mtu):
            data = pattern(start, min(size, start + channel.peer_mtu))
            digest.update(data)
            channel.write(data)
            await channel.drain()
            if channel.state != channel.State.CONNECTED:
                return
            if start % (16 * channel.peer_mtu) == 0:
                await asyncio.sleep(0)
        self.event(f'channel-sent {size} {digest.hexdigest()}')

    @staticmethod
    def digest(channel):
        return f'{channel.received} {channel.hash.hexdigest()}'

    @property
    def channel(self):
        if not self.channels:
            raise ValueError('no channel')
        return self.channels[-1]

    async def cmd_channel(self, verb, *arguments):
        """channel VERB: L2CAP channels, the one that was opened last:
        open PSM [pair] (centrals): `error refused 0x0002` and so on; pair: pair if the PSM wants encryption;
        mode echo|sink: what it does with what it reads; pause, resume: read nothing, read on, this and those to come;
        pauses MS: pauses now and then, at most so long; send SIZE: event channel-sent SIZE SHA256 when all is on the air;
        hash: COUNT SHA256 of what it has read, also after its end; expect COUNT: event channel-received COUNT SHA256;
        close [all]; count: how many are open; credits: how many PDUs it
        may send, and the other end; reset: close all, and do as at the start; refuse RESULT|off: refuse channels with this result;
        closing on|off: close each channel as soon as it is open; churn PSM COUNT (centrals): open and close;
        flood PSM COUNT (centrals): send so many requests at once;
        hostile empty|credits [COUNT]|mtu|length|mps|overflow: an SDU of no bytes, more PDUs than there are credits for, an SDU longer than the
        other end's MTU, a PDU longer than its SDU, or than the MPS, more credits than there can be"""
        method = getattr(self, 'channel_' + verb, None)
        if method is None:
            raise ValueError(f'no channel {verb}')
        return await method(*arguments)

    async def channel_open(self, psm, pair=''):
        spec = l2cap.LeCreditBasedChannelSpec(psm=int(psm, 16), mtu=2048, mps=247, max_credits=CREDITS)
        try:
            try:
                channel = await self.connection.create_l2cap_channel(spec)
            except l2cap.L2capError as error:
                if not pair or error.error_code not in (0x0005, 0x0008):
                    raise
                await self.connection.pair()
                channel = await self.connection.create_l2cap_channel(spec)
        except l2cap.L2capError as error:
            raise ChannelRefused(error.error_code) from None
        self.add_channel(channel)

    async def channel_mode(self, mode):
        if mode not in ('echo', 'sink'):
            raise ValueError(mode)
        self.mode = mode

    async def channel_pause(self):
        self.set_reading(False)

    async def channel_resume(self):
        self.set_reading(True)

    def set_reading(self, reads):
        self.reads = reads
        for channel in self.channels:
            channel.set_reading(reads)

    async def channel_pauses(self, milliseconds):
        self.pauses = int(milliseconds)

    async def channel_send(self, size):
        asyncio.create_task(self.send(self.channel, int(size)))

    async def channel_hash(self):
        return self.digest(self.last) if self.last else f'0 {hashlib.sha256().hexdigest()}'

    async def channel_expect(self, count):
        channel = self.channel
        if channel.received >= int(count):
            self.event(f'channel-received {self.digest(channel)}')
        else:
            channel.expected = int(count)

    async def channel_close(self, which=''):
        for channel in list(self.channels) if which == 'all' else [self.channel]:
            await channel.disconnect()

    async def channel_credits(self):
        return f'{self.channel.credits} {self.channel.granted}'

    async def channel_reset(self):
        self.mode, self.pauses, self.refusal, self.closes = 'echo', 0, 0, False
        self.set_reading(True)
        await self.channel_close('all')

    async def channel_count(self):
        return str(len(self.channels))

    async def channel_refuse(self, result):
        self.refusal = 0 if result == 'off' else int(result, 16)

    async def channel_closing(self, switch):
        self.closes = switch == 'on'

    async def channel_churn(self, psm, count):
        for _ in range(int(count)):
            await self.channel_open(psm)
            if self.channels:
                await self.channel.disconnect()

    async def channel_flood(self, psm, count):
        manager, connection = self.device.l2cap_channel_manager, self.connection
        for i in range(int(count)):
            manager.send_control_frame(connection, l2cap.L2CAP_LE_SIGNALING_CID, l2cap.L2CAP_LE_Credit_Based_Connection_Request(
                identifier=manager.next_identifier(connection), le_psm=int(psm, 16), source_cid=0x40 + i % 0x40, mtu=2048,
                mps=247, initial_credits=CREDITS))

    async def channel_hostile(self, what, count='100'):
        channel = self.channel
        if what == 'credits':
            for _ in range(channel.credits + int(count)):
                channel.send_pdu(struct.pack('<H', 100) + bytes(100))
            channel.credits = 0
        elif what == 'mtu':
            for pdu in pieces(struct.pack('<H', channel.peer_mtu + 1) + bytes(channel.peer_mtu + 1), channel.peer_mps):
                channel.send_pdu(pdu)
        elif what == 'empty':
            channel.send_pdu(struct.pack('<H', 0))
        elif what == 'length':
            channel.send_pdu(struct.pack('<H', 10) + bytes(20))
        elif what == 'mps':
            channel.send_pdu(struct.pack('<H', channel.peer_mps + 100) + bytes(channel.peer_mps + 100))
        elif what == 'overflow':
            # Beside those that it has. Linux asks for the end of the channel each time, and a second request would end the
            # next channel, to which bumble gives the same number.
            channel.send_control_frame(l2cap.L2CAP_LE_Flow_Control_Credit(
                identifier=channel.manager.next_identifier(channel.connection), cid=channel.source_cid,
                credits=0xFFFF))
        else:
            raise ValueError(what)


def pieces(data, size):
    return [data[i:i + size] for i in range(0, len(data), size)]


class ChannelRefused(Exception):
    """A channel was refused, with this result."""

    def __init__(self, result):
        super().__init__(f'refused {int(result):#06x}')
