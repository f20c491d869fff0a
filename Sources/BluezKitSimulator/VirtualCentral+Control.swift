import Foundation

/// The control lines of a central. The rig's are the same (`Tests/Rig/central.py`).
extension VirtualCentral {
    /// - `advertisement ADDRESS`: the next one received from it, on one line
    /// - `connect ADDRESS[/P] [MTU]`: `mtu=N UUID…`; `disconnect`, `pair`, `forget`, `connections`, `state`
    /// - `services`, `discover`: what was discovered; discovers again
    /// - `read UUID`, `readlong UUID`, `readat UUID OFFSET`, `readdescriptor UUID UUID`
    /// - `write UUID HEX [0]`, `writelong UUID HEX`, `preparewrite UUID OFFSET HEX`, `execute 0|1`,
    ///   `writedescriptor UUID UUID HEX`; `-` is an empty value
    /// - `subscribe UUID`, `indications UUID`, `unsubscribe UUID`, `configure UUID NUMBER`, `confirm on|off`
    /// - `channel VERB`: L2CAP channels, see ``ChannelControl``
    /// - `storm COUNT [SEED]`: this many invalid or random requests: see ``storm(_:seed:)``
    /// - `churn ADDRESS[/P] UUID COUNT`: connect, subscribe, disconnect, this many times
    ///
    /// An ATT error is thrown as `att 0xNN`.
    func control(_ command: String, _ arguments: [String], _ line: String) async throws -> String {
        do {
            return try await perform(command, arguments, line)
        } catch let failure as ATTFailure {
            throw ControlError("att 0x\(Hex.byte(failure.code))")
        }
    }

    private func perform(_ command: String, _ arguments: [String], _ line: String) async throws -> String {
        let unknown = ControlError("unknown command: \(line)")
        func word(_ index: Int) throws -> String {
            guard arguments.indices.contains(index) else { throw unknown }
            return arguments[index]
        }
        func number(_ index: Int, in range: ClosedRange<Int> = 0...65_535) throws -> Int {
            try range.number(try word(index))
        }
        func bytes(_ index: Int) throws -> [UInt8] {
            guard arguments.indices.contains(index), arguments[index] != "-" else { return [] }
            guard let bytes = Hex.bytes(arguments[index]) else { throw ControlError("not hexadecimal: \(line)") }
            return bytes
        }
        func address() throws -> String { try word(0).split(separator: "/").first.map(String.init) ?? "" }
        switch command {
        case "advertisement": return try await simulator.advertisement(of: try address())
        case "connect":
            let mtu = arguments.count > 1 ? UInt16(try number(1, in: 23...517)) : 517
            let found = try await connect(to: try address(), mtu: mtu)
            return (["mtu=\(found.mtu)"] + found.services).joined(separator: " ")
        case "disconnect": try disconnect()
        case "connections": return isConnected ? "1" : "0"
        case "state": return try state()
        case "pair": try await pair()
        case "forget": forgetBonds()
        case "discover":
            try discover()
            return try table()
        case "services": return try table()
        case "read": return Hex.text(try await read(try word(0)))
        case "readlong": return Hex.text(try await read(try word(0)))
        case "readat": return Hex.text(try await readPart(try word(0), offset: try number(1)))
        case "readdescriptor": return Hex.text(try await read(try word(0), descriptor: try word(1)))
        case "write" where arguments.count > 2 && arguments[2] == "0":
            try await self.command(try bytes(1), to: try word(0))
        case "write": try await write(try bytes(1), to: try word(0))
        case "writelong": try await writeLong(try bytes(1), to: try word(0))
        case "writedescriptor": try await write(try bytes(2), to: try word(0), descriptor: try word(1))
        case "preparewrite":
            try await prepare(try bytes(2), for: try word(0), offset: try number(1))
            return "\(try number(1)) \(Hex.text(try bytes(2)))"
        case "execute": try await execute(try number(0) != 0)
        case "subscribe": try await subscribeOnly(try word(0))
        case "indications": try await configure(try word(0), 2)
        case "unsubscribe": try await configure(try word(0), 0)
        case "configure": try await configure(try word(0), UInt16(try number(1)))
        case "confirm": setConfirming(try word(0) == "on")
        case "channel": return try await simulator.channelControl(key).control(arguments, line, central: self)
        case "storm":
            let seed = arguments.count > 1 ? try number(1, in: 0...Int.max) : 1
            let counts = try await storm(try number(0, in: 0...1_000_000), seed: UInt64(seed))
            return "answers=\(counts.answers) errors=\(counts.errors)"
        case "churn":
            for _ in 0..<(try number(2)) {
                try await connect(to: try address())
                try await subscribeOnly(try word(1))
                try disconnect()
            }
        default: throw unknown
        }
        return ""
    }

    private func state() throws -> String {
        try simulator.sync {
            let links = link.map {
                "\($0.peripheral.address)/P/mtu=\($0.mtu)/encrypted=\($0.isEncrypted ? 1 : 0)"
            }
            return "connections=[\(links ?? "")] advertising=0"
        }
    }

    /// `primary:UUID@HANDLE` or `secondary:…`, each followed by `include:UUID`,
    /// `characteristic:UUID@HANDLE:PROPERTY,…` and `descriptor:UUID@HANDLE`.
    private func table() throws -> String {
        try simulator.sync {
            var words: [String] = []
            for service in services {
                let kind = service.definition.isPrimary ? "primary" : "secondary"
                words.append("\(kind):\(UUIDText.short(service.definition.uuid))@\(Hex.handle(service.handle))")
                words += service.includes.map { "include:\(UUIDText.short($0.definition.uuid))" }
                for characteristic in service.characteristics {
                    let definition = characteristic.definition
                    words.append(
                        "characteristic:\(UUIDText.short(definition.uuid))@\(Hex.handle(characteristic.handle + 1)):"
                            + definition.flags.texts.joined(separator: ","))
                    words += characteristic.descriptors.map {
                        "descriptor:\(UUIDText.short($0.uuid))@\(Hex.handle($0.handle))"
                    }
                }
            }
            return words.joined(separator: " ")
        }
    }
}

extension Simulator {
    /// Waits for the next advertisement of an address, and returns it as one line.
    /// - Throws: ``VirtualCentralError/nothingHeard(address:)`` if none arrives within five seconds of simulated time.
    public func advertisement(of address: String) async throws -> String {
        try await clock.run { [self] in try await hear(address) }
    }

    private func hear(_ address: String) async throws -> String {
        try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<String, any Error>) in
            sync {
                let listener = AirListener(address: address.uppercased())
                listener.heard = { [weak self] report in
                    self?.stopListening(listener)
                    continuation.resume(returning: report.content.line)
                }
                listeners.append(listener)
                listenersChanged()
                afterAlways(max(.seconds(5) * timingState.scale, timingState.advertisingInterval * 20)) { [weak self] in
                    guard self?.listeners.contains(where: { $0 === listener }) == true else { return }
                    self?.stopListening(listener)
                    continuation.resume(throwing: VirtualCentralError.nothingHeard(address: address))
                }
            }
        }
    }

    private func stopListening(_ listener: AirListener) {
        listeners.removeAll { $0 === listener }
        listenersChanged()
    }

    /// A peripheral that a listener waits for advertises even if no adapter scans.
    func listenersChanged() { for peripheral in peripherals.values { updateAdvertising(of: peripheral) } }
}

/// A central that listens for advertisements.
final class AirListener {
    let address: String
    var heard: (AdvertisingReport) -> Void = { _ in }

    init(address: String) { self.address = address }
}
