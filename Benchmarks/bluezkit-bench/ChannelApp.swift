import BluezKit
import Foundation

/// Fills or empties an L2CAP channel, 64 KiB at a time.
final class ChannelApp: App, CBCentralManagerDelegate, CBPeripheralDelegate, StreamDelegate {
    private let sends: Bool
    private let bytes: Int
    private var channel: CBL2CAPChannel?
    private var moved = 0
    private var before = Measurement()
    private let chunk = UnsafeMutablePointer<UInt8>.allocate(capacity: 65_536)

    init(sends: Bool, bytes: Int, queue: DispatchQueue?) {
        (self.sends, self.bytes) = (sends, bytes)
        chunk.initialize(repeating: 0x5A, count: 65_536)
        super.init(queue: queue)
    }

    override func begin(_ central: CBCentralManager) { connectSensor(central) }

    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.openL2CAPChannel(sends ? 128 : 129)
    }

    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        guard let channel else { fail("no channel: \(text(error))") }
        self.channel = channel
        before = Measurement()
        for stream in [channel.inputStream as Stream, channel.outputStream as Stream] { stream.delegate = self }
        channel.schedule(on: queue)
        channel.inputStream.open()
        channel.outputStream.open()
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard let channel else { return }
        if sends, event == .hasSpaceAvailable {
            while moved < bytes, channel.outputStream.hasSpaceAvailable {
                count(channel.outputStream.write(chunk, maxLength: min(bytes - moved, 65_536)))
            }
        } else if !sends, event == .hasBytesAvailable {
            while moved < bytes, channel.inputStream.hasBytesAvailable {
                count(channel.inputStream.read(chunk, maxLength: min(bytes - moved, 65_536)))
            }
        }
        if moved == bytes { report(events: bytes >> 20, powered: powered, before: before, first: before) }
    }

    private func count(_ bytes: Int) {
        guard bytes > 0 else { fail("the channel is closed") }
        moved += bytes
    }
}
