// An L2CAP channel's streams on a run loop.
import CoreBluetooth

final class ChannelConnection: NSObject, StreamDelegate {
    private let channel: CBL2CAPChannel
    private var toSend = Data()

    init(channel: CBL2CAPChannel) {
        self.channel = channel
        super.init()
        channel.inputStream.delegate = self
        channel.outputStream.delegate = self
        channel.inputStream.schedule(in: RunLoop.main, forMode: .default)
        channel.outputStream.schedule(in: .main, forMode: .default)
        channel.inputStream.open()
        channel.outputStream.open()
    }

    deinit {
        channel.inputStream?.close()
        channel.outputStream?.close()
        channel.inputStream?.remove(from: .main, forMode: .default)
        channel.outputStream?.remove(from: .main, forMode: .default)
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .openCompleted: print("open to \(channel.peer.identifier) at \(channel.psm)")
        case .hasBytesAvailable: receive(aStream as! InputStream)
        case .hasSpaceAvailable: send()
        case .endEncountered, .errorOccurred: aStream.close()
        default: break
        }
    }

    private func receive(_ stream: InputStream) {
        var buffer = [UInt8](repeating: 0, count: 1024)
        while stream.hasBytesAvailable {
            let count = stream.read(&buffer, maxLength: buffer.count)
            guard count > 0 else { return }
            toSend.append(contentsOf: buffer.prefix(count))
        }
    }

    private func send() {
        guard let stream = channel.outputStream, stream.hasSpaceAvailable, !toSend.isEmpty else { return }
        let sent = toSend.withUnsafeBytes {
            stream.write($0.bindMemory(to: UInt8.self).baseAddress!, maxLength: $0.count)
        }
        if sent > 0 { toSend.removeFirst(sent) }
    }
}
