import BluezKit
import BluezKitProfiles
import Foundation

/// The messages of a session between an end of a transfer and an L2CAP channel.
final class TransferChannel {
    private let messages: MessageChannel
    private let end: any TransferEnd
    /// A message that there was no room for.
    private var waiting: TransferMessage?
    /// Called when something has moved, or cannot.
    private let moved: (TransferError?) -> Void

    /// Begins a session.
    /// - Parameter ended: Called once.
    init(
        _ channel: CBL2CAPChannel, _ end: any TransferEnd, moved: @escaping (TransferError?) -> Void,
        ended: @escaping () -> Void
    ) {
        (self.end, self.moved) = (end, moved)
        messages = MessageChannel(channel, limit: TransferProtocol.messageLimit)
        messages.onMessage = { [weak self] in self?.take($0) }
        messages.onRoom = { [weak self] in self?.pump() }
        messages.onEnd = { error in
            if let error { moved(.framing(error)) }
            ended()
        }
        end.begin()
        messages.open()
        pump()
    }

    /// Whether everything that this end had to say has been sent.
    var isIdle: Bool { waiting == nil && messages.isIdle }

    func close() { messages.close() }

    private func take(_ bytes: Data) {
        do throws(TransferError) {
            try end.take(try TransferMessage(bytes))
        } catch {
            return moved(error)
        }
        pump()
    }

    /// Sends as long as there is room.
    func pump() {
        do throws(TransferError) {
            while true {
                if waiting == nil { waiting = try end.nextMessage() }
                guard let message = waiting, try send(message) else { break }
                waiting = nil
            }
        } catch {
            return moved(error)
        }
        moved(nil)
    }

    private func send(_ message: TransferMessage) throws(TransferError) -> Bool {
        do throws(MessageError) {
            return try messages.send(message.bytes)
        } catch {
            throw .framing(error)
        }
    }
}
