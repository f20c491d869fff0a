"""The radio: what the virtual devices and the kernel hear of each other.

Built on the controller model of Google's bumble; class Radio lists what it adds.
"""

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import pty
import random
import struct
import termios
import time
import tty

from bumble import controller, hci, link, ll
from bumble.hci import Address
from bumble.transport.common import PacketParser

ADV_IND, ADV_SCAN_IND, ADV_NONCONN_IND, SCAN_RSP = 0, 2, 3, 4  # event types of an LE Advertising Report


@dataclasses.dataclass
class Advertisement(ll.AdvertisingPdu):
    """One advertising event, with the scan response a scanner would get by asking."""

    advertiser_address: Address
    data: bytes
    scan_response: bytes = b''
    event_type: int = ADV_IND
    rssi: int = -50
    advertiser: controller.LegacyAdvertiser | None = None  # who would answer


class Air(link.LocalLink):
    """Carries packets between radios that are in range. Its timers stand still while they make no difference: in a machine of
    the rig, waking up is most of what an idle radio costs."""

    def __init__(self):
        super().__init__()
        self.unheard = []  # advertisers whose timers stand still
        self.supervised = []  # ends of links: [radio, connection, timeout in seconds, when it has heard the other end last]

    def wake_advertisers(self):
        """A radio begins to listen."""
        unheard, self.unheard = self.unheard, []
        for advertiser in unheard:
            advertiser.go_on()

    def supervise(self, radio, connection, timeout):
        """Ends this end of a link when the other has been absent for `timeout`, in units of 10 ms.

        Each end does so independently, so that neither keeps a link forever that the other does not know; but both look at the
        same time, so that both lose it then."""
        self.supervised.append([radio, connection, timeout / 100, asyncio.get_running_loop().time()])
        if len(self.supervised) == 1:
            self.look_soon()

    def look_soon(self):
        asyncio.get_running_loop().call_later(0.05, self.look_after_links)

    def look_after_links(self):
        now = asyncio.get_running_loop().time()
        self.supervised = [end for end in self.supervised if end[0].le_connections.get(end[1].peer_address) is end[1]]
        for end in self.supervised:
            if self.reachable(end[0], end[1].peer_address, end[1].self_address):
                end[3] = now
        lost = [end for end in self.supervised if now - end[3] >= end[2]]
        if self.supervised:
            self.look_soon()
        for radio, connection, *_ in lost:
            radio.on_le_disconnected(connection, hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR)

    def reachable(self, sender, receiver_address, sender_address):
        """The other end of the link between the two addresses, or None if it is out of range or gone."""
        for radio in self.controllers:
            connection = radio.le_connections.get(sender_address)
            if connection and connection.self_address == receiver_address:
                return radio if radio.in_range and sender.in_range else None
        return None

    def send_acl_data(self, sender, destination_address, transport, data):
        # bumble takes the sender's random address for granted; the kernel connects from its public one.
        source = sender.le_connections[destination_address].self_address
        if receiver := self.reachable(sender, destination_address, source):
            asyncio.get_running_loop().call_soon(receiver.on_link_acl_data, source, transport, data)

    def send_ll_control_pdu(self, sender_address, receiver_address, packet):
        loop = asyncio.get_running_loop()
        sender = next(r for r in self.controllers
                      if (c := r.le_connections.get(receiver_address)) and c.self_address == sender_address)
        if receiver := self.reachable(sender, receiver_address, sender_address):
            loop.call_soon(receiver.on_ll_control_pdu, sender_address, packet)

    def send_advertising_pdu(self, sender, packet):
        if not sender.in_range:
            return
        for radio in [r for r in self.controllers if r is not sender and r.in_range]:
            if isinstance(packet, ll.ConnectInd):  # an advertiser listens for it right after its advertisement
                radio.on_ll_advertising_pdu(packet)
            elif radio.listens:
                asyncio.get_running_loop().call_soon(radio.on_ll_advertising_pdu, packet)


class Advertiser(controller.LegacyAdvertiser):
    TYPES = {0: ADV_IND, 2: ADV_SCAN_IND, 3: ADV_NONCONN_IND}

    def send_advertising_data(self):
        if self.enabled and self.advertising_type in self.TYPES:
            self.controller.send_advertising_pdu(Advertisement(
                self.address, bytes(self.advertising_data), bytes(self.scan_response_data),
                self.TYPES[self.advertising_type], self.controller.rssi, self))

    @property
    def interval(self):
        return max(self.advertising_interval_min, 0x20) * 0.000625

    def _on_timer_fired(self):
        air = self.controller.link
        if any(radio.listens for radio in air.controllers if radio is not self.controller):
            self.send_advertising_data()
            self.timer_handle = asyncio.get_running_loop().call_later(self.interval, self._on_timer_fired)
        else:
            self.timer_handle = None
            air.unheard.append(self)

    def go_on(self):
        if self.enabled and self.timer_handle is None:
            self.timer_handle = asyncio.get_running_loop().call_later(random.random() * self.interval, self._on_timer_fired)


class Radio(controller.Controller):
    """bumble's controller model, LE 4.2 without extended advertising, and with

    - scan responses, non-connectable advertising, RSSI, passive and active scans, the accept list;
    - duplicate filtering, by address as most controllers do (`data`: a change of the data is reported);
    - connecting within the advertising event, as the Core Specification has it (Vol 6, Part B, 4.4.2.3): who was heard is
      connected to, or has stopped and is not;
    - cancelling a connection attempt, which may come too late (`crosses`) or too early (`hesitates`);
    - supervision: an end of a link that has not heard the other for the supervision timeout is lost, and with it the
      question for the other's features: Linux waits for that answer, and sends no other command meanwhile;
    - deafness: hearing no advertisement, for good (`on`), until a scan begins (`scan`), until a reset (`power`).
    """

    le_features = (hci.LeFeatureMask.LE_ENCRYPTION | hci.LeFeatureMask.EXTENDED_REJECT_INDICATION
                   | hci.LeFeatureMask.PERIPHERAL_INITIATED_FEATURE_EXCHANGE
                   | hci.LeFeatureMask.LE_PING | hci.LeFeatureMask.LE_DATA_PACKET_LENGTH_EXTENSION)
    acl_data_packet_length = le_acl_data_packet_length = 251
    supported_max_tx_octets = supported_max_rx_octets = 251
    filter_accept_list_size = 32
    duplicate_filter = 'address'

    def __init__(self, name, air, public_address):
        super().__init__(name, link=air, public_address=public_address)
        self.le_legacy_advertiser = Advertiser(self)
        self.in_range, self.rssi, self.deafness = True, -50, 'off'
        self.crosses = None  # called when the next attempt begins; its link is made in the moment in which it is called off
        self.hesitates = None  # called when the kernel ends its next passive scan, which takes a second then
        self.seen, self.accept_list, self.reports, self.last_command = set(), set(), 0, 0
        self.unanswered = set()  # handles of links whose other end was asked for its features
        self.listeners = []  # called with each advertisement that is heard, see `listening`

    # bumble formats every packet for its log; that is most of its time.
    def on_hci_packet(self, packet):
        if isinstance(packet, hci.HCI_AclDataPacket):
            self.on_hci_acl_data_packet(packet)
        elif self.hesitates and isinstance(packet, hci.HCI_LE_Set_Scan_Enable_Command) and (
                self.le_scan_type == 0 and not packet.le_scan_enable):
            self.hesitates()
            self.hesitates = None
            asyncio.get_running_loop().call_later(1, self.on_hci_packet, packet)
        else:
            self.last_command = time.monotonic()
            self.on_hci_command_packet(packet)

    def send_hci_packet(self, packet):
        asyncio.get_running_loop().call_soon(self.host.on_packet, bytes(packet))

    # Scanning
    @property
    def listens(self):
        return self.le_scan_enable or self.pending_le_connection is not None or bool(self.listeners)

    def on_hci_le_set_scan_enable_command(self, command):
        self.seen.clear()
        if command.le_scan_enable:
            self.recover('scan')
            self.link.wake_advertisers()
        return super().on_hci_le_set_scan_enable_command(command)

    @contextlib.contextmanager
    def listening(self, listener):
        self.listeners.append(listener)
        self.link.wake_advertisers()
        try:
            yield
        finally:
            self.listeners.remove(listener)

    def recover(self, deafness):
        if self.deafness == deafness:
            self.deafness = 'off'

    def on_hci_le_clear_filter_accept_list_command(self, command):
        self.accept_list.clear()
        return super().on_hci_le_clear_filter_accept_list_command(command)

    def on_hci_le_add_device_to_filter_accept_list_command(self, command):
        self.accept_list.add(command.address)
        return super().on_hci_le_add_device_to_filter_accept_list_command(command)

    def on_hci_le_remove_device_from_filter_accept_list_command(self, command):
        self.accept_list.discard(command.address)
        return super().on_hci_le_remove_device_from_filter_accept_list_command(command)

    def on_ll_advertising_pdu(self, packet):
        if isinstance(packet, ll.ConnectInd):
            self.on_le_connect_ind(packet)
        elif isinstance(packet, Advertisement):
            self.on_advertisement(packet)

    def on_advertisement(self, adv):
        if self.deafness != 'off':
            return
        for listener in self.listeners:
            listener(adv)
        if self.le_scan_enable and (
                not self.le_scanning_filter_policy & 1 or adv.advertiser_address in self.accept_list):
            active = self.le_scan_type == 1
            self.report(adv, adv.event_type, adv.data)
            if active and adv.event_type in (ADV_IND, ADV_SCAN_IND):
                self.report(adv, SCAN_RSP, adv.scan_response)
        pending = self.pending_le_connection
        if pending and not self.crosses and adv.event_type == ADV_IND and adv.advertiser.enabled and (
                adv.advertiser_address in self.accept_list if pending.initiator_filter_policy == 1
                else adv.advertiser_address == pending.peer_address):
            pending.peer_address = adv.advertiser_address
            self.create_le_connection(adv.advertiser_address)

    def report(self, adv, event_type, data):
        if self.filter_duplicates:
            key = (adv.advertiser_address, event_type, data if self.duplicate_filter == 'data' else None)
            if key in self.seen:
                return
            self.seen.add(key)
        self.reports += 1
        report = struct.pack('<BBBB6sB', 0x02, 1, event_type, adv.advertiser_address.address_type,
                             bytes(adv.advertiser_address), len(data)) + data + struct.pack('<b', adv.rssi)
        self.host.on_packet(bytes([0x04, 0x3E, len(report)]) + report)

    # Connections
    def create_le_connection(self, peer_address):
        parameters = self.pending_le_connection
        super().create_le_connection(peer_address)
        if self.pending_le_connection is None:  # else there still is the link from before, see supervise
            self.link.supervise(self, self.le_connections[peer_address], parameters.supervision_timeout)

    def on_le_connect_ind(self, packet):
        advertiser = self.le_legacy_advertiser
        if not advertiser.enabled or advertiser.address != packet.advertiser_address:
            return
        # Who asks for a new link has lost the old one.
        if old := self.le_connections.get(packet.initiator_address):
            self.on_le_disconnected(old, hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR)
        super().on_le_connect_ind(packet)
        self.link.supervise(self, self.le_connections[packet.initiator_address], packet.timeout)

    def on_hci_le_read_remote_features_command(self, command):
        if self.find_le_connection_by_handle(command.connection_handle):
            self.unanswered.add(command.connection_handle)
        super().on_hci_le_read_remote_features_command(command)

    def on_ll_control_pdu(self, sender_address, packet):
        if isinstance(packet, ll.FeatureRsp) and (connection := self.le_connections.get(sender_address)):
            self.unanswered.discard(connection.handle)
        super().on_ll_control_pdu(sender_address, packet)

    def on_le_disconnected(self, connection, reason):
        if connection.handle in self.unanswered:
            self.unanswered.discard(connection.handle)
            self.send_hci_packet(hci.HCI_LE_Read_Remote_Features_Complete_Event(
                status=reason, connection_handle=connection.handle, le_features=bytes(8)))
        super().on_le_disconnected(connection, reason)

    def on_hci_disconnect_command(self, command):
        """Bumble tells a host that ends a link the reason that is meant for the peer; a controller tells it that it has
        done so itself (Core Vol 4, Part E, 7.7.5). BlueZ 5.83 and later pass that on."""
        connection = self.find_le_connection_by_handle(command.connection_handle)
        if connection is None:
            super().on_hci_disconnect_command(command)
            return
        self._send_hci_command_status(hci.HCI_COMMAND_STATUS_PENDING, command.op_code)
        connection.send_ll_control_pdu(ll.TerminateInd(command.reason))
        self.on_le_disconnected(connection, hci.HCI_ErrorCode.CONNECTION_TERMINATED_BY_LOCAL_HOST_ERROR)

    def on_hci_le_create_connection_command(self, command):
        super().on_hci_le_create_connection_command(command)
        self.link.wake_advertisers()
        if self.crosses:
            self.crosses()

    def on_hci_le_create_connection_cancel_command(self, command):
        if self.crosses and self.pending_le_connection:
            self.crosses = None
            self.create_le_connection(self.pending_le_connection.peer_address)
        pending, self.pending_le_connection = self.pending_le_connection, None
        if pending is None:
            return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.COMMAND_DISALLOWED_ERROR)
        asyncio.get_running_loop().call_soon(self.send_hci_packet, hci.HCI_LE_Connection_Complete_Event(
            status=hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR, connection_handle=0,
            role=hci.Role.CENTRAL, peer_address_type=pending.peer_address.address_type,
            peer_address=pending.peer_address, connection_interval=0, peripheral_latency=0,
            supervision_timeout=0, central_clock_accuracy=0))
        return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.SUCCESS)

    def on_hci_reset_command(self, command):
        self.recover('power')
        self.le_scan_enable, self.pending_le_connection = False, None
        self.le_legacy_advertiser.stop()
        self.accept_list.clear()
        self.unanswered.clear()
        self.le_connections.clear()
        return super().on_hci_reset_command(command)


class DualRadio(Radio):
    """A Radio with just enough classic Bluetooth to fail: what is in `classic` is found by inquiry, but cannot be
    connected that way."""

    lmp_features = hci.LmpFeatureMask.LE_SUPPORTED_CONTROLLER | hci.LmpFeatureMask.EXTENDED_FEATURES
    INQUIRY, CREATE_CONNECTION, REMOTE_NAME_REQUEST = 0x0401, 0x0405, 0x0419
    # What the kernel asks or sets when it starts a controller, and what Command Complete then has.
    ANSWERS = {
        0x0402: b'\0',  # Inquiry Cancel
        0x0408: b'\x02' + bytes(6),  # Create Connection Cancel: there is none
        0x0C05: b'\0',  # Set Event Filter
        0x0C16: b'\0',  # Write Connection Accept Timeout
        0x0C1C: b'\0',  # Write Page Scan Activity
        0x0C25: b'\0\x60\0',  # Read Voice Setting
        0x0C38: b'\0\1',  # Read Number Of Supported IAC
        0x0C39: b'\0\1\x33\x8b\x9e',  # Read Current IAC LAP
        0x0C3A: b'\0',  # Write Current IAC LAP
    }

    def __init__(self, name, air, public_address):
        super().__init__(name, air, public_address)
        self.classic, self.pages = [], 0

    def on_packet(self, packet):
        opcode = int.from_bytes(packet[1:3], 'little') if packet[0] == hci.HCI_COMMAND_PACKET else None
        address = packet[4:10]
        if opcode in self.ANSWERS:
            self.tell(0x0E, struct.pack('<BH', 1, opcode) + self.ANSWERS[opcode])
        elif opcode == self.INQUIRY:
            self.accept(opcode)
            for other in self.classic:
                self.tell(0x02, b'\1' + bytes(Address(other)) + bytes([1, 0, 0, 0x04, 0x05, 0x00, 0, 0]))
            self.tell(0x01, b'\0')
        elif opcode == self.CREATE_CONNECTION:
            self.accept(opcode)
            self.pages += 1
            self.tell(0x03, b'\x04\0\0' + address + b'\1\0')  # page timeout
        elif opcode == self.REMOTE_NAME_REQUEST:
            self.accept(opcode)
            self.tell(0x07, b'\x04' + address + bytes(248))
        else:
            super().on_packet(packet)

    def accept(self, opcode):
        self.tell(0x0F, struct.pack('<BBH', 0, 1, opcode))  # Command Status

    def tell(self, event, parameters):
        packet = bytes([hci.HCI_EVENT_PACKET, event, len(parameters)]) + parameters
        asyncio.get_running_loop().call_soon(self.host.on_packet, packet)


class VirtualPort:
    """The kernel's controller by /dev/vhci: there is an hciN as long as the file is open."""

    def __init__(self, on_packet):
        self.on_packet = on_packet
        self.fd = os.open('/dev/vhci', os.O_RDWR | os.O_NONBLOCK)
        os.write(self.fd, bytes([0xFF, 0x00]))  # create a primary controller
        self.number = struct.unpack('<BBH', os.read(self.fd, 4))[2]  # the answer to that
        asyncio.get_running_loop().add_reader(self.fd, self.readable)

    def readable(self):
        if packet := os.read(self.fd, 4096):  # a read returns one whole packet
            self.on_packet(packet)

    def write(self, packet):
        os.write(self.fd, packet)

    def close(self):
        asyncio.get_running_loop().remove_reader(self.fd)
        os.close(self.fd)


class SerialPort:
    """The same as a controller at a serial line, which is a terminal here: Debian's kernel for arm64 has no /dev/vhci."""

    N_HCI, SET_PROTOCOL, GET_DEVICE, H4 = 15, 0x400455C8, 0x800455CA, 0  # drivers/bluetooth/hci_uart.h

    def __init__(self, on_packet):
        self.fd, self.line = pty.openpty()
        tty.setraw(self.line)
        fcntl.ioctl(self.line, termios.TIOCSETD, struct.pack('i', self.N_HCI))
        fcntl.ioctl(self.line, self.SET_PROTOCOL, self.H4)
        self.number = fcntl.ioctl(self.line, self.GET_DEVICE, 0)
        self.parser = PacketParser(self)
        self.on_packet = on_packet
        asyncio.get_running_loop().add_reader(self.fd, self.readable)

    def readable(self):
        self.parser.feed_data(os.read(self.fd, 4096))

    def write(self, packet):
        while packet:
            packet = packet[os.write(self.fd, packet):]

    def close(self):
        asyncio.get_running_loop().remove_reader(self.fd)
        os.close(self.line)
        os.close(self.fd)


class KernelRadio:
    """The kernel's controller: a Radio whose host is the kernel.

    N of its hciN is the lowest free number; since Linux 6.12 one is not free before the last socket of the controller that
    had it is closed, which bluetoothd does a moment after that has gone."""

    def __init__(self, air, number):
        self.air, self.number, self.radio, self.port = air, number, None, None
        self.address = f'00:B1:5E:00:00:{number + 1:02}'

    async def plug(self, kind=Radio):
        for _ in range(200):
            self.radio = kind('kernel', self.air, self.address)
            self.radio.host = self
            self.port = (VirtualPort if os.path.exists('/dev/vhci') else SerialPort)(self.radio.on_packet)
            if (number := self.port.number) == self.number:
                return
            self.unplug()
            await asyncio.sleep(0.05)
        raise RuntimeError(f'the kernel calls it hci{number}: a program has a socket of the last hci{self.number}')

    def unplug(self):
        radio = self.radio
        radio.le_connections.clear()
        radio.le_legacy_advertiser.stop()
        self.air.remove_controller(radio)
        self.port.close()
        self.radio = self.port = None

    def on_packet(self, packet):
        if self.port is not None:
            self.port.write(packet)
