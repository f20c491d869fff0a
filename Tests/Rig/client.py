#!/usr/bin/env python3
"""A second independent client: bleak, on hci1, uses what a program publishes on hci0. Usage: client.py ADAPTER NUMBER

NUMBER names the service, whose characteristics are the next ones: fixed, dynamic (read, write), command (write without
response), notify, indicate, guarded (read over an encrypted link). ClientScenarios.swift is the program. Exit status 0:
everything was as it should be."""

import asyncio
import contextlib
import os
import sys

from bleak import BleakClient, BleakScanner
from bleak.exc import BleakError

LONG = bytes(i * 7 % 256 for i in range(300))


def rig_uuid(number):
    return f'bb1e{number:04x}-5d3b-4c6f-9a5e-000000000000'


def check(what, found, expected):
    if found != expected:
        sys.exit(f'{what}: {found!r}, and not {expected!r}')
    print(f'{what}: as expected', flush=True)


@contextlib.asynccontextmanager
async def connected(device, adapter):
    """A client that has found the services. bluetoothd, which is at both ends, at times ends a link before that: then this
    program begins again, as bleak may deliver no values on the next link of a client that has failed half-way."""
    client = BleakClient(device, timeout=60, bluez={'adapter': adapter})
    try:
        await client.connect()
    except BleakError as error:
        print('again:', error, flush=True)
        with contextlib.suppress(BleakError, TimeoutError):
            await client.disconnect()
        tries = int(os.environ.get('CLIENT_TRIES', 9))
        if not tries:
            raise
        environment = os.environ | {'CLIENT_TRIES': str(tries - 1), 'CLIENT_DEVICE': device.address}
        os.execve(sys.executable, [sys.executable] + sys.argv, environment)
    try:
        yield client
    finally:
        await client.disconnect()


async def main(adapter, number):
    service, fixed, dynamic, command, notify, indicate, guarded = (rig_uuid(number + i) for i in range(7))
    # Up to 5.68 bluetoothd knows no services of a device whose link has ended so, whatever it advertises.
    known = os.environ.get('CLIENT_DEVICE')
    device = await BleakScanner.find_device_by_filter(
        lambda device, advertisement: device.address == known or service in advertisement.service_uuids, timeout=60,
        bluez={'adapter': adapter})
    if device is None:
        sys.exit('not found')
    async with connected(device, adapter) as client:
        found = {c.uuid: sorted(c.properties) for c in client.services.get_service(service).characteristics}
        check('properties', found, {
            fixed: ['read'], dynamic: ['read', 'write'], command: ['write-without-response'], notify: ['notify'],
            indicate: ['indicate'], guarded: ['read']})
        check('fixed value', bytes(await client.read_gatt_char(fixed)), b'fixed')
        await client.write_gatt_char(dynamic, LONG, response=True)
        check('long write and read', bytes(await client.read_gatt_char(dynamic)), LONG)
        try:
            await client.write_gatt_char(dynamic, b'no', response=True)
            sys.exit('what the app refuses was written')
        except BleakError as error:
            print('refused:', error, flush=True)
        for i in range(3):
            await client.write_gatt_char(command, bytes([i]), response=False)
        for uuid in (notify, indicate):
            values = asyncio.Queue()
            await client.start_notify(uuid, lambda _, data, values=values: values.put_nowait(bytes(data)))
            heard = [await asyncio.wait_for(values.get(), 30) for _ in range(3)]
            # bluetoothd at both ends: its EATT bearers overtake each other. UpdateScenarios prove the order.
            check('values', sorted(heard), [b'\0', b'\1', b'\2'])
            await client.stop_notify(uuid)
        await client.pair()
        check('guarded value', bytes(await client.read_gatt_char(guarded)), b'secret')


if __name__ == '__main__':
    asyncio.run(main(sys.argv[1], int(sys.argv[2], 16)))
