import BluezDBus
import Foundation
import Synchronization

/// The control lines of the L2CAP channels of one virtual device, and what they tell it to do. The rig's are the same
/// (`Tests/Rig/channels.py`), except for `hostile` and `flood`, which need a radio.
final class ChannelControl: Sendable {
    private let key: String
    private let simulator: Weak
    private let state = Mutex(State())

    private struct State {
        var orders = Orders()
        /// Open ones, and the one that was opened last, which may have ended.
        var channels: [Traffic] = []
        var last: Traffic?
    }

    /// What applies to all channels.
    private struct Orders {
        var echoes = true
        var isReading = true
        var longestPause = 0
        var refusal: UInt16?
        var closes = false
    }

    /// One channel, and what came through it.
    private final class Traffic: Sendable {
        let channel: VirtualChannel
        let received = Mutex((hash: SHA256(), count: 0, expected: Int?.none))

        init(_ channel: VirtualChannel) { self.channel = channel }

        /// `COUNT SHA256`
        var digest: String { received.withLock { "\($0.count) \(Hex.text($0.hash.digest))" } }
    }

    private final class Weak: Sendable {
        // holds: read only
        nonisolated(unsafe) weak var simulator: Simulator?
        init(_ simulator: Simulator) { self.simulator = simulator }
    }

    init(key: String, simulator: Simulator) { (self.key, self.simulator) = (key, Weak(simulator)) }

    private func event(_ text: String) {
        let (key, simulator) = (key, simulator)
        simulator.simulator?.queue.later { simulator.simulator?.tell("\(key) \(text)") }
    }

    // MARK: Channels

    /// Reads the channel, as ordered, until it ends.
    func take(_ channel: VirtualChannel) {
        let traffic = Traffic(channel)
        let orders = state.withLock { state in
            state.channels.append(traffic)
            state.last = traffic
            return state.orders
        }
        channel.isReading = orders.isReading
        event("channel-open \(Hex.handle(channel.psm))")
        if orders.closes { channel.close() }
        Task {
            await channel.waitForEnd()
            channel.isReading = true  // what had arrived counts
        }
        Task {
            while let bytes = await channel.receive() { await self.handle(bytes, traffic) }
            self.state.withLock { state in state.channels.removeAll { $0 === traffic } }
            self.event("channel-closed \(Hex.handle(channel.psm)) \(traffic.digest)")
        }
    }

    private func handle(_ bytes: [UInt8], _ traffic: Traffic) async {
        let isComplete = traffic.received.withLock { received in
            received.hash.update(bytes)
            received.count += bytes.count
            guard let expected = received.expected, received.count >= expected else { return false }
            received.expected = nil
            return true
        }
        if isComplete { event("channel-received \(traffic.digest)") }
        let orders = state.withLock { $0.orders }
        if orders.echoes { try? await traffic.channel.send(bytes) }
        if orders.longestPause > 0, Int.random(in: 0..<10) == 0 {
            try? await Task.sleep(for: .milliseconds(Int.random(in: 0...orders.longestPause)))
        }
    }

    private func send(_ count: Int, to channel: VirtualChannel) async {
        var hash = SHA256()
        for start in stride(from: 0, to: count, by: 2048) {
            // The sum of the bytes of the number of each.
            let bytes = (start..<min(count, start + 2048)).map { UInt8(truncatingIfNeeded: $0 + $0 >> 8 + $0 >> 16) }
            hash.update(bytes)
            guard (try? await channel.send(bytes)) != nil else { return }
        }
        event("channel-sent \(count) \(Hex.text(hash.digest))")
    }

    /// The result with which channels are refused; nil: they are not.
    var refusal: UInt16? { state.withLock { $0.orders.refusal } }

    // MARK: Lines

    /// `channel VERB…` of a peripheral that serves channels, or of a central:
    ///
    /// - `mode echo|sink`, `pause`, `resume`, `pauses MILLISECONDS`, `send SIZE`, `hash`, `expect COUNT`, `close
    ///   [all]`, `count`, `refuse RESULT|off`, `closing on|off`, `reset`
    /// - of a central: `open PSM [pair]`, `churn PSM COUNT`
    func control(_ arguments: [String], _ line: String, central: VirtualCentral? = nil) async throws -> String {
        let unknown = ControlError("unknown command: \(line)")
        func word(_ index: Int) throws -> String {
            guard arguments.indices.contains(index) else { throw unknown }
            return arguments[index]
        }
        func number(_ index: Int, in range: ClosedRange<Int> = 0...Int.max) throws -> Int {
            try range.number(try word(index))
        }
        func hexadecimal(_ index: Int) throws -> UInt16 {
            let text = try word(index)
            guard let number = UInt16(text.hasPrefix("0x") ? String(text.dropFirst(2)) : text, radix: 16) else {
                throw unknown
            }
            return number
        }
        func open() async throws {
            guard let central else { throw unknown }
            do {
                take(try await central.openChannel(try hexadecimal(1), pairs: arguments.last == "pair"))
            } catch VirtualChannelError.refused(let result) {
                throw ControlError("refused 0x\(Hex.handle(result))")
            }
        }
        switch try word(0) {
        case "open": try await open()
        case "churn":
            for _ in 0..<(try number(2)) {
                try await open()
                try? current.channel.close()  // the other end may have closed it already
            }
        case "mode":
            let mode = try word(1)
            guard mode == "echo" || mode == "sink" else { throw unknown }
            state.withLock { $0.orders.echoes = mode == "echo" }
        case "pause": setReading(false)
        case "resume": setReading(true)
        case "pauses":
            let longest = try number(1, in: 0...60_000)
            state.withLock { $0.orders.longestPause = longest }
        case "send":
            let (count, channel) = (try number(1), try current.channel)
            Task { await self.send(count, to: channel) }
        case "hash": return state.withLock { $0.last }?.digest ?? "0 \(Hex.text(SHA256().digest))"
        case "expect":
            let (count, traffic) = (try number(1), try current)
            let isThere = traffic.received.withLock { received in
                received.expected = received.count < count ? count : nil
                return received.count >= count
            }
            if isThere { event("channel-received \(traffic.digest)") }
        case "close":
            for traffic in arguments.count > 1 ? state.withLock({ $0.channels }) : [try current] {
                traffic.channel.close()
            }
        case "count": return "\(state.withLock { $0.channels.count })"
        case "refuse":
            let result = try word(1) == "off" ? nil : try hexadecimal(1)
            state.withLock { $0.orders.refusal = result }
        case "closing":
            let closes = try word(1) == "on"
            state.withLock { $0.orders.closes = closes }
        case "reset":
            state.withLock { $0.orders = Orders() }
            for traffic in state.withLock({ $0.channels }) { traffic.channel.close() }
        default: throw unknown
        }
        return ""
    }

    /// The channel that was opened last of those that are open.
    private var current: Traffic {
        get throws {
            guard let last = state.withLock({ $0.channels.last }) else { throw ControlError("no channel") }
            return last
        }
    }

    private func setReading(_ isReading: Bool) {
        let channels = state.withLock { state in
            state.orders.isReading = isReading
            return state.channels
        }
        for traffic in channels { traffic.channel.isReading = isReading }
    }
}

extension Simulator {
    /// What the channels of a device do that control lines name.
    func channelControl(_ key: String) -> ChannelControl {
        sync {
            if let known = channelControls[key] { return known }
            let control = ChannelControl(key: key, simulator: self)
            channelControls[key] = control
            return control
        }
    }

    /// Adds the rig's device with channels.
    func addChannelDevice() -> VirtualPeripheral {
        let (device, control) = (VirtualPeripheral.rigCoC(), channelControl("coc"))
        for (psm, security) in [(0x80, VirtualSecurity.none), (0x81, .encrypted), (0x82, .encrypted)] {
            device.channelServers[UInt16(psm)] = ChannelServer(security: security, refusal: { control.refusal }) {
                control.take($0)
            }
        }
        return add(device)
    }
}
