import Foundation
import Testing

@testable import BluezKit
@testable import bluez_demo

@Suite("Demo: transfer")
struct TransferTests {
    private let folder: TemporaryDirectory
    private let source: String
    private let target: String
    private let content: Data

    init() throws {
        folder = try TemporaryDirectory()
        (source, target) = (folder.path + "/a", folder.path + "/b")
        content = Data((0..<50_000).map { _ in UInt8.random(in: 0 ... .max) })
        try content.write(to: URL(fileURLWithPath: source))
    }

    private var received: Data? { FileManager.default.contents(atPath: target) }

    /// A sender and a receiver, each at the central or the peripheral.
    /// - Parameter file: Its digest takes a while; nil: it is read.
    private func ends(
        _ sendingIsCentral: Bool, limit: Int = 1_000_000, of file: SentFile? = nil
    ) throws -> (TransferSender, TransferReceiver) {
        (
            TransferSender(try file ?? SentFile(source), confirmsEnd: sendingIsCentral),
            TransferReceiver(target, limit: limit, asks: !sendingIsCentral)
        )
    }

    /// Carries values both ways until nothing moves any more, `length` bytes each.
    /// - Parameter pass: What becomes of a value; nil: it is lost.
    private func run(
        _ central: inout TransferPipe, _ peripheral: inout TransferPipe, length: Int = 100,
        pass: (Data) -> [Data] = { [$0] }
    ) throws {
        var isMoving = true
        while isMoving {
            isMoving = false
            var (up, down): ([Data], [Data]) = ([], [])
            try central.sendValues(upTo: length) {
                guard up.count < 7 else { return false }
                #expect($0.count <= length)
                up.append($0)
                return true
            }
            for value in up.flatMap(pass) {
                isMoving = true
                do throws(TransferError) { try peripheral.take(value: value) } catch {
                    guard !error.isFinal else { throw error }
                    peripheral.askAgain()
                }
            }
            try peripheral.sendValues(upTo: length) {
                guard down.count < 7 else { return false }
                down.append($0)
                return true
            }
            for value in down.flatMap(pass) {
                isMoving = true
                do throws(TransferError) { try central.take(value: value) } catch {
                    guard !error.isFinal else { throw error }
                    central.begin()
                }
            }
            guard !isMoving else { continue }
            // As the commands do after a while.
            isMoving = central.hasGap || peripheral.hasGap
            if peripheral.hasGap { peripheral.askAgain() } else if central.hasGap { central.begin() }
        }
    }

    @Test("a file arrives byte for byte, in both directions and with values of any length", arguments: [true, false])
    func arrives(_ sendingIsCentral: Bool) throws {
        for length in [20, 21, 182, 495] {
            let (sender, receiver) = try ends(sendingIsCentral)
            var central = TransferPipe(sendingIsCentral ? sender : receiver, isPeripheral: false)
            var peripheral = TransferPipe(sendingIsCentral ? receiver : sender, isPeripheral: true)
            central.begin()
            try run(&central, &peripheral, length: length)
            #expect(sender.isDone)
            #expect(receiver.isDone)
            #expect(receiver.isConfirmed == sendingIsCentral)
            #expect(received == content)
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() == ["a", "b"])
            try FileManager.default.removeItem(atPath: target)
        }
    }

    @Test("values that overtake each other are put in order", arguments: [true, false])
    func overtaking(_ sendingIsCentral: Bool) throws {
        let (sender, receiver) = try ends(sendingIsCentral)
        var central = TransferPipe(sendingIsCentral ? sender : receiver, isPeripheral: false)
        var peripheral = TransferPipe(sendingIsCentral ? receiver : sender, isPeripheral: true)
        var held: Data?
        central.begin()
        try run(&central, &peripheral) { value in
            if let waiting = held {
                held = nil
                return [value, waiting, value]  // the first one comes after the second, which comes twice
            }
            // A session's first value is overtaken by none: nothing is sent before it is answered.
            guard !ValueNumbering.Order.beginsSession(value), value.count == 100, Bool.random() else { return [value] }
            held = value
            return []
        }
        // Only the last one can still be held, which is noticed at the next session.
        #expect(receiver.count >= content.count - TransferProtocol.blockSize)
        central.begin()
        try run(&central, &peripheral)
        #expect(sender.isDone)
        #expect(received == content)
    }

    @Test("values of one bearer may wait for long while those of another one pass, but not without a limit")
    func window() throws {
        var numbering = ValueNumbering()
        var order = ValueNumbering.Order()
        #expect(throws: TransferError.gap) { try order.take(Data([1, 0, 7])) }
        #expect(try order.take(numbering.number([0])) == [Data([0])])
        let late = numbering.number([1])
        for _ in 2..<4096 { #expect(try order.take(numbering.number([2])).isEmpty) }
        #expect(try order.take(late).count == 4095)
        #expect(try order.take(late).isEmpty, "it came twice")
        _ = numbering.number([3])
        for _ in 0..<4095 { #expect(try order.take(numbering.number([2])).isEmpty) }
        #expect(throws: TransferError.gap) { try order.take(numbering.number([2])) }
        // A session may have any number of values.
        order = ValueNumbering.Order()
        numbering = ValueNumbering()
        for _ in 0..<70_000 { #expect(try order.take(numbering.number([])).count == 1) }
    }

    @Test("a stranger's offer of another file does not delete a part; its first bytes do")
    func stranger() throws {
        var receiver = TransferReceiver(target, limit: 1_000_000, asks: false)
        let offer = try SentFile(source).offer
        func begin(_ offer: TransferOffer) throws -> TransferMessage? {
            receiver.begin()
            try receiver.take(.offer(offer))
            return receiver.nextMessage()
        }
        #expect(try begin(offer) == .accept(offset: 0))
        try receiver.take(.data(content.prefix(4096)))
        let other = TransferOffer(name: "b", size: 10, digest: [UInt8](repeating: 7, count: 32))
        #expect(try begin(other) == .accept(offset: 0))
        #expect(try begin(offer) == .accept(offset: 4096))
        // Also if the command was started again in the meantime.
        #expect(try begin(other) == .accept(offset: 0))
        receiver = TransferReceiver(target, limit: 1_000_000, asks: false)
        #expect(try begin(offer) == .accept(offset: 4096))
        #expect(try begin(other) == .accept(offset: 0))
        try receiver.take(.data(Data([1])))
        #expect(try begin(offer) == .accept(offset: 0))
    }

    @Test("a sender that missed the end of a transfer learns of it over the next link", arguments: [true, false])
    func unheardEnd(_ sendingIsCentral: Bool) throws {
        let (sender, receiver) = try ends(sendingIsCentral)
        var central = TransferPipe(sendingIsCentral ? sender : receiver, isPeripheral: false)
        var peripheral = TransferPipe(sendingIsCentral ? receiver : sender, isPeripheral: true)
        central.begin()
        try run(&central, &peripheral) { receiver.isDone ? [] : [$0] }
        #expect(receiver.isDone && !sender.isDone)
        central.begin()
        // The first thing that a receiver sends over the new link is a request for the offer; it cannot end after that.
        _ = try central.end.nextMessage()
        #expect(!central.end.isSettled)
        central.begin()
        try run(&central, &peripheral)
        #expect(sender.isDone)
        #expect(central.end.isSettled)
        #expect(received == content)
    }

    @Test("a transfer continues after a loss from the data that has arrived", arguments: [true, false])
    func loss(_ sendingIsCentral: Bool) throws {
        let (sender, receiver) = try ends(sendingIsCentral)
        var central = TransferPipe(sendingIsCentral ? sender : receiver, isPeripheral: false)
        var peripheral = TransferPipe(sendingIsCentral ? receiver : sender, isPeripheral: true)
        central.begin()
        var count = 0
        try run(&central, &peripheral) { value in
            count += 1
            return count == 200 ? [] : [value]
        }
        #expect(sender.isDone)
        #expect(receiver.resumedAt > 10_000)
        #expect(sender.resumedAt == receiver.resumedAt)
        #expect(received == content)
    }

    @Test("another process continues a part, of the same file only")
    func parts() throws {
        func begin(_ bytes: Int) throws {
            let (sender, receiver) = try ends(true)
            var (central, peripheral) = (
                TransferPipe(sender, isPeripheral: false), TransferPipe(receiver, isPeripheral: true)
            )
            central.begin()
            var moved = 0
            try run(&central, &peripheral) { value in
                moved += value.count
                return moved < bytes ? [value] : []
            }
            #expect(!receiver.isDone)
        }
        try begin(20_000)
        #expect(FileManager.default.fileExists(atPath: target + ".part"))
        let (sender, receiver) = try ends(true)
        var (central, peripheral) = (
            TransferPipe(sender, isPeripheral: false), TransferPipe(receiver, isPeripheral: true)
        )
        central.begin()
        try run(&central, &peripheral)
        #expect(receiver.resumedAt > 10_000)
        #expect(received == content)

        try begin(20_000)
        try Data("another".utf8).write(to: URL(fileURLWithPath: source))
        let (second, new) = try ends(true)
        (central, peripheral) = (TransferPipe(second, isPeripheral: false), TransferPipe(new, isPeripheral: true))
        central.begin()
        try run(&central, &peripheral)
        #expect(new.resumedAt == 0)
        #expect(received == Data("another".utf8))
    }

    // Each gave its own part the name of what the other one was receiving, and said that all was well.
    @Test("a file that another program is receiving is neither replaced, written to nor named")
    func inUse() throws {
        let offer = try SentFile(source).offer
        let file = try PartialFile(target, offer)
        try file.append(content.prefix(4096))
        let other = TransferOffer(name: "b", size: 10, digest: [UInt8](repeating: 7, count: 32))
        #expect(throws: CardFile.Failure.self) { try PartialFile(target, offer) }
        #expect(throws: CardFile.Failure.self) { try PartialFile(target, other).append(Data(count: 10)) }
        try file.append(content.dropFirst(4096))
        #expect(try file.finish())
        #expect(received == content)
    }

    @Test("blocks sent before a file is refused cause no error: both ends get the reason")
    func refusedMeanwhile() throws {
        let missing = folder.path + "/missing"
        try FileManager.default.createDirectory(atPath: missing, withIntermediateDirectories: false)
        let receiver = TransferReceiver(missing + "/b", limit: 1_000_000, asks: false)
        receiver.begin()
        try receiver.take(.offer(SentFile(source).offer))
        #expect(receiver.nextMessage() == .accept(offset: 0))
        try FileManager.default.removeItem(atPath: missing)
        for _ in 0..<3 { try receiver.take(.data(content.prefix(4096))) }
        #expect(receiver.nextMessage() == .refuse("it cannot be stored"))
        #expect(receiver.failure.map { "\($0)".contains("cannot be written") } == true)
        // Another session starts from the beginning.
        try FileManager.default.createDirectory(atPath: missing, withIntermediateDirectories: false)
        receiver.begin()
        try receiver.take(.offer(SentFile(source).offer))
        try receiver.take(.data(content.prefix(4096)))
        #expect(receiver.count == 4096)
    }

    @Test("a damaged part ends with an error that says so, and nothing of it is kept")
    func damaged() throws {
        do { try PartialFile(target, SentFile(source).offer).append(Data(count: 1000)) }
        let (sender, receiver) = try ends(true)
        var (central, peripheral) = (
            TransferPipe(sender, isPeripheral: false), TransferPipe(receiver, isPeripheral: true)
        )
        central.begin()
        #expect(throws: TransferError.self) { try run(&central, &peripheral) }
        #expect(receiver.failure == .damaged)
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["a"])
    }

    // It was "Unlikely error", or with a rival on the same machine "Unknown error".
    @Test("a write that has to wait for another one names who is in the way")
    func rivals() {
        func rival(_ error: any Error) -> String? { TransferProtocol.rival(error, isSending: true) }
        func failed(_ name: String, _ message: String) -> any Error {
            coreBluetoothError(
                name: "org.bluez.Error." + name, message: message, context: .attributeWrite, isBonded: false)
        }
        let busy = "the receiver is busy with another "
        #expect(rival(failed("Failed", "Operation failed with ATT error: 0x80")) == busy + "sender")
        #expect(rival(failed("InProgress", "In Progress")) == busy + "program on this machine")
        #expect(rival(failed("Failed", "Operation failed with ATT error: 0x0e")) == nil)
        #expect(
            TransferProtocol.rival(CBATTError(TransferProtocol.busy), isSending: false)?.hasSuffix("receiver") == true)
    }

    @Test("a file that is too large is refused, in words at both ends")
    func refuses() throws {
        let (sender, receiver) = try ends(true, limit: 49_999)
        var (central, peripheral) = (
            TransferPipe(sender, isPeripheral: false), TransferPipe(receiver, isPeripheral: true)
        )
        central.begin()
        do {
            try run(&central, &peripheral)
            Issue.record("it was not refused")
        } catch let error as TransferError {
            #expect(error.sentence.contains("more than the 49999"))
        }
        #expect(receiver.failure?.sentence.contains("50000") == true)
        #expect(received == nil)
    }

    @Test("an empty file arrives, and again after the answer was lost")
    func empty() throws {
        try Data().write(to: URL(fileURLWithPath: source))
        let (sender, receiver) = try ends(true)
        var (central, peripheral) = (
            TransferPipe(sender, isPeripheral: false), TransferPipe(receiver, isPeripheral: true)
        )
        central.begin()
        var count = 0
        try run(&central, &peripheral) { value in
            count += 1
            return count == 2 ? [] : [value]  // the answer
        }
        #expect(receiver.isDone)
        #expect(!sender.isDone)
        central.begin()
        try run(&central, &peripheral)
        #expect(sender.isDone)
        #expect(received == Data())
    }

    @Test("a path that is not a regular file is neither sent nor replaced")
    func files() throws {
        for path in ["/dev/null", folder.path, folder.path + "/missing"] {
            #expect(throws: CardFile.Failure.self) { try SentFile(path) }
        }
        for path in ["/dev/null", folder.path, folder.path + "/missing/b"] {
            #expect(throws: CardFile.Failure.self) { try PartialFile.checkWritable(path) }
        }
        // A link that another user has put there.
        try FileManager.default.createSymbolicLink(atPath: target + ".part", withDestinationPath: source)
        try Data("bluez-demo transfer\n".utf8).write(to: URL(fileURLWithPath: target + ".part.info"))
        let offer = try SentFile(source).offer
        _ = try PartialFile(target, offer)
        #expect(FileManager.default.contents(atPath: source) == content)
    }

    // A folder that was called like the part was removed, with all that was in it, and a file of the user was replaced.
    @Test("a foreign file or folder named like a part is neither replaced nor removed")
    func foreignParts() throws {
        let offer = try SentFile(source).offer
        for name in [target + ".part", target + ".part.info"] {
            try FileManager.default.createDirectory(atPath: name, withIntermediateDirectories: false)
            try content.write(to: URL(fileURLWithPath: name + "/kept"))
            #expect(throws: CardFile.Failure.self) { try PartialFile.checkWritable(target) }
            // Also if it was not there before.
            let file = try PartialFile(target, offer)
            #expect(throws: CardFile.Failure.self) { try file.append(content.prefix(10)) }
            #expect(FileManager.default.contents(atPath: name + "/kept") == content)
            try FileManager.default.removeItem(atPath: name)
        }
        try content.write(to: URL(fileURLWithPath: target + ".part"))
        #expect(throws: CardFile.Failure.self) { try PartialFile.checkWritable(target) }
        try Data("my notes\n".utf8).write(to: URL(fileURLWithPath: target + ".part.info"))
        #expect(throws: CardFile.Failure.self) { try PartialFile.checkWritable(target) }
        try Data("bluez-demo transfer\nsize 7\n".utf8).write(to: URL(fileURLWithPath: target + ".part.info"))
        #expect(throws: Never.self) { try PartialFile.checkWritable(target) }
    }

    @Test("arbitrary bytes decode as a transfer message or throw")
    func hostile() throws {
        let messages: [TransferMessage] = [
            .again, .offer(try SentFile(source).offer), .accept(offset: 7), .data(Data([1, 2])), .done, .refuse("no"),
            .confirm,
        ]
        for message in messages { #expect(try TransferMessage(message.bytes) == message) }
        for message in messages {
            for length in 0..<message.bytes.count { _ = try? TransferMessage(message.bytes.prefix(length)) }
        }
        #expect(throws: TransferError.unknownMessage(9)) { try TransferMessage(Data([9])) }
        #expect(throws: TransferError.unknownMessage(nil)) { try TransferMessage(Data()) }
        #expect(throws: TransferError.malformedMessage(3)) {
            try TransferMessage(Data([3] + [UInt8](repeating: 0xFF, count: 8)))
        }
        #expect(throws: TransferError.otherVersion(2)) { try TransferMessage(Data([2, 2])) }
        let file = try SentFile(source)
        for _ in 0..<300 {
            let (sender, receiver) = try ends(Bool.random(), of: file)
            for end in [sender as any TransferEnd, receiver] {
                var pipe = TransferPipe(end, isPeripheral: Bool.random())
                if Bool.random() { pipe.begin() }
                for _ in 0..<5 {
                    let value = Data(
                        [.random(in: 0...2), .random(in: 0x7E...0x82)]
                            + (0..<Int.random(in: 0...12)).map { _ in .random(in: 0...6) })
                    try? pipe.take(value: value)
                    _ = try? pipe.nextBytes(upTo: 50)
                }
            }
        }
    }

    // The whole file was divided by the time of what was left of it.
    @Test("the rate of a continued transfer counts only the data that this process has moved")
    func rateOfRest() {
        var display = TransferDisplay()
        display.begin(30_000)
        display.begin(40_000)  // the link was lost
        #expect(display.summary(of: 50_000, in: 4).text == "the last 20,000 of 50,000 bytes in 4 s, 5.0 kB/s")
        display.begin(0)  // another file has replaced the part
        #expect(display.summary(of: 50_000, in: 4).text == "50,000 bytes in 4 s, 12.5 kB/s")
        display = TransferDisplay()
        display.begin(50_000)
        #expect(display.summary(of: 50_000, in: 4).text == "50,000 bytes, all of them earlier")
    }

    @Test("the bar, rate and time of a transfer fit into a line")
    func display() {
        #expect(TransferDisplay.rate(999) == "999 B/s")
        #expect(TransferDisplay.rate(38_250) == "38.2 kB/s")
        #expect(TransferDisplay.rate(386_000) == "386 kB/s")
        #expect(TransferDisplay.rate(1_250_000) == "1.2 MB/s")
        #expect(TransferDisplay.time(0.4) == "< 1 s")
        #expect(TransferDisplay.time(62) == "1:02")
        #expect(TransferDisplay.time(3723) == "1:02:03")
        #expect(TransferDisplay.time(.infinity) == "> 99 h")
        var display = TransferDisplay()
        display.begin(0)
        for width in [20, 40, 79, 200] {
            let line = display.line(4_300_000, of: 10_000_000, width: width)
            #expect(line.text.contains("43 %"))
            if width >= 79 { #expect(line.width <= width) }
        }
    }
}
