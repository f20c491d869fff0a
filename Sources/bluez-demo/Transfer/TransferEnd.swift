import Foundation

/// What is sent.
protocol TransferSource: AnyObject {
    var offer: TransferOffer { get }
    /// The bytes from `offset` on, one block at most.
    func block(at offset: Int) throws(TransferError) -> Data
}

/// What is being received.
protocol TransferSink: AnyObject {
    var offer: TransferOffer { get }
    /// The number of bytes that are there.
    var count: Int { get }
    func append(_ bytes: Data) throws(CardFile.Failure)
    /// Everything is there: keeps it, if it is what was offered.
    /// - Returns: False: it is damaged, and nothing of it was kept.
    func finish() throws(CardFile.Failure) -> Bool
}

/// One end of a transfer: what it sends, and what follows from what it receives. It lasts longer than links.
protocol TransferEnd: AnyObject {
    /// The file, once it is known.
    var offer: TransferOffer? { get }
    /// How much the receiver has, as far as this end knows, in bytes.
    var count: Int { get }
    /// How much it had at the start of the session.
    var resumedAt: Int { get }
    /// Both ends have agreed on the file and on where to go on.
    var isMoving: Bool { get }
    /// The receiver has the whole file.
    var isDone: Bool { get }
    /// It is done, and this end has sent what the other end needs to know that, in this session.
    var isSettled: Bool { get }
    /// A session begins. Nothing of an earlier one is under way any more.
    func begin()
    func take(_ message: TransferMessage) throws(TransferError)
    /// The next message, if there is something to say now.
    func nextMessage() throws(TransferError) -> TransferMessage?
}

final class TransferSender: TransferEnd {
    private enum State { case offering, awaitingAnswer, sending, sent, done }

    private let file: any TransferSource
    /// Whether it confirms in the end that it has heard `done`. A receiver that is the central needs no confirmation.
    private let confirmsEnd: Bool
    private var hasToConfirm = false
    private var state = State.awaitingAnswer
    private(set) var count = 0
    private(set) var resumedAt = 0

    init(_ file: any TransferSource, confirmsEnd: Bool) { (self.file, self.confirmsEnd) = (file, confirmsEnd) }

    var offer: TransferOffer? { file.offer }
    var isMoving: Bool { state != .offering && state != .awaitingAnswer }
    var isDone: Bool { state == .done }
    var isSettled: Bool { isDone && !hasToConfirm }

    func begin() { if !isDone { state = .offering } }

    func take(_ message: TransferMessage) throws(TransferError) {
        switch (message, state) {
        case (.again, _): begin()
        case (.accept(let offset), .awaitingAnswer):
            guard (0...file.offer.size).contains(offset) else { throw .unexpected("an offset of \(offset)") }
            (count, resumedAt) = (offset, offset)
            state = offset == file.offer.size ? .sent : .sending
        case (.done, .sent): (state, hasToConfirm) = (.done, confirmsEnd)
        case (.refuse(let reason), _): throw .refused(reason)
        default: throw .unexpected("\(message)")
        }
    }

    func nextMessage() throws(TransferError) -> TransferMessage? {
        switch state {
        case .offering:
            state = .awaitingAnswer
            return .offer(file.offer)
        case .sending:
            let block = try file.block(at: count)
            count += block.count
            if count == file.offer.size { state = .sent }
            return .data(block)
        case .done where hasToConfirm:
            hasToConfirm = false
            return .confirm
        case .awaitingAnswer, .sent, .done: return nil
        }
    }
}

final class TransferReceiver: TransferEnd {
    private let makeSink: (TransferOffer) throws(CardFile.Failure) -> any TransferSink
    /// The largest file that is accepted, in bytes.
    private let limit: Int
    private(set) var file: (any TransferSink)?
    private var answers: [TransferMessage] = []
    private var isReceiving = false
    /// Whether this end asks for an offer when a session begins.
    private let asks: Bool
    private(set) var offer: TransferOffer?
    private(set) var resumedAt = 0
    private(set) var isDone = false
    private(set) var isSettled = false
    /// The sender has confirmed that it knows.
    private(set) var isConfirmed = false
    /// Why it refused the file, which the other end hears first.
    private(set) var failure: TransferError?

    /// - Parameter sink: Makes what receives an offer.
    init(
        limit: Int, asks: Bool, into sink: @escaping (TransferOffer) throws(CardFile.Failure) -> any TransferSink
    ) {
        (makeSink, self.limit, self.asks) = (sink, limit, asks)
    }

    convenience init(_ path: String, limit: Int, asks: Bool) {
        self.init(limit: limit, asks: asks) { (offer) throws(CardFile.Failure) in try PartialFile(path, offer) }
    }

    var isMoving: Bool { isReceiving || isDone }
    var count: Int { isDone ? offer?.size ?? 0 : file?.count ?? 0 }

    func begin() {
        (isReceiving, isSettled) = (false, false)
        answers = asks ? [.again] : []
    }

    /// The other end seems to believe that a session is under way.
    func askAgain() { answers = [.again] }

    func take(_ message: TransferMessage) throws(TransferError) {
        switch message {
        case .offer(let new): take(new)
        case .data(let block):
            // What was under way when it was refused.
            if !isReceiving, failure != nil { return }
            guard isReceiving, let file, let offer else { throw .unexpected("data") }
            guard block.count <= offer.size - file.count else { throw .unexpected("more than was offered") }
            do throws(CardFile.Failure) {
                try file.append(block)
                try finishIfComplete()
            } catch {
                refuse(.file(error.message), "it cannot be stored")
            }
        case .confirm where isDone: isConfirmed = true
        case .again, .accept, .done, .refuse, .confirm: throw .unexpected("\(message)")
        }
    }

    private func take(_ new: TransferOffer) {
        guard new.size <= limit else {
            let reason = "it has \(new.size) bytes, more than the \(limit) that --max-size permits"
            return refuse(.file("a file was offered, but \(reason)"), reason)
        }
        if isDone {
            // The answer may have been lost with the link.
            let isSame = offer?.digest == new.digest
            answers = isSame ? [.accept(offset: new.size), .done] : [.refuse("another file was received already")]
            return
        }
        do throws(CardFile.Failure) {
            if file?.offer.isSameFile(as: new) != true { file = try makeSink(new) }
            offer = new
            resumedAt = file?.count ?? 0
            answers = [.accept(offset: resumedAt)]
            isReceiving = true
            try finishIfComplete()
        } catch {
            refuse(.file(error.message), "it cannot be stored")
        }
    }

    private func finishIfComplete() throws(CardFile.Failure) {
        guard let file, let offer, file.count == offer.size else { return }
        guard try file.finish() else {
            self.file = nil
            return refuse(.damaged, "it was damaged on the way; start again")
        }
        isDone = true
        answers.append(.done)
    }

    private func refuse(_ failure: TransferError, _ reason: String) {
        self.failure = failure
        isReceiving = false
        answers = [.refuse(reason)]
    }

    func nextMessage() -> TransferMessage? {
        guard !answers.isEmpty else { return nil }
        let answer = answers.removeFirst()
        if answer == .done { isSettled = true }
        return answer
    }
}
