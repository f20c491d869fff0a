import BluezDBus
import Foundation

/// An invalid control line.
package struct ControlError: Error, CustomStringConvertible {
    /// What is wrong with the line.
    package let description: String
    init(_ description: String) { self.description = description }
}

extension ClosedRange where Bound: LosslessStringConvertible {
    /// The number in a word of a control line.
    /// - Throws: ``ControlError`` if it is not a number, or not in this range.
    func number(_ word: String) throws -> Bound {
        guard let number = Bound(word), contains(number) else { throw ControlError("not in \(self): \(word)") }
        return number
    }
}

/// Control by lines of text, the same as for the virtual machine with a real bluetoothd, so that one scenario runs in
/// both worlds.
extension Simulator {
    /// Carries out one line, `TARGET COMMAND [ARGUMENT…]`:
    ///
    /// - `heart`, `sink` or `coc`, which are added when first named, or another peripheral by its address: `advertise
    ///   on|off`, `manufacturer HEX…`, `name TEXT`, `rssi DBM`, `disconnect [REASON]`, `vanish`, `return`, `state`,
    ///   `connections`, `pairing justworks|display|keyboard|numeric|reject [PASSKEY]`, `enter PASSKEY`, `forget`,
    ///   `value NUMBER [HEX]`, `private`, which returns the address from which it now advertises, `identity`, which
    ///   ends that, `notify NUMBER HEX`, `indicate NUMBER HEX`, `burst NUMBER COUNT [SIZE [PER_SECOND]]`; only here:
    ///   `once [DBM]`, one advertisement now
    /// - `coc channel VERB`: L2CAP channels
    /// - `heart beat PER_SECOND`, `heart measure BPM`, `sink services add|remove|replace`
    /// - `crowd set COUNT [INTERVAL_MS [CHANGE]]`; only here: `crowd known COUNT`
    /// - `central` and `central2`: see ``VirtualCentral``, which lists their lines
    /// - `phone`: those of peripherals, and `find [pair]`, `permit on|off`, `battery on|off`, `post UID CATEGORY FLAGS
    ///   APP TEXTS`, `remove UID`, `answers on|off`, `data HEX`, `source HEX`: see ``VirtualPhone``
    /// - `rig sensors COUNT`: adds the peripherals `sensor1`, `sensor2`…
    /// - `rig adapters COUNT`, `rig unplug [N]`, `rig plug [N]`, `rig duplicates address|data|none`, `rig reports`,
    ///   `rig power on|off`, `rig deaf on|off|scan|power`, see ``SimulatorDeafness``, and `rig suspend`, `rig resume`,
    ///   see ``suspend()``
    /// - `bluetoothd kill|stop|start|hang|continue`
    /// - `bluetoothd remove ADDRESS`: it forgets the device; `bluetoothd cache always|yes|no`: which devices' services
    ///   it keeps when a link ends, from its next start on: those of all devices, of bonded ones, of none
    ///
    /// - Returns: The answer; usually empty.
    /// - Throws: ``ControlError``
    @discardableResult
    package func control(_ line: String) async throws -> String {
        let words = line.split(separator: " ").map(String.init)
        guard words.count >= 2 else { throw ControlError("unknown command: \(line)") }
        let arguments = Array(words.dropFirst(2))
        switch words[0] {
        case "bluetoothd": return try await controlDaemon(words[1], arguments)
        case "rig": return try controlRig(words[1], arguments, line)
        case "crowd": return try controlCrowd(words[1], arguments, line)
        case "phone":
            let phone = phone()
            if let answer = try await phone.control(words[1], arguments, line) { return answer }
            return try await control(phone.server, words[1], arguments, line)
        case "central": return try await central().control(words[1], arguments, line)
        case "central2": return try await central(2).control(words[1], arguments, line)
        default:
            guard let peripheral = peripheralNamed(words[0]) else { throw ControlError("unknown target: \(words[0])") }
            return try await control(peripheral, words[1], arguments, line)
        }
    }

    /// `heart`, `sink` and `coc` are added automatically.
    private func peripheralNamed(_ name: String) -> VirtualPeripheral? {
        sync {
            if let known = named[name] ?? peripherals[name.uppercased()] { return known }
            switch name {
            case "heart": return add(.rigHeart())
            case "sink": return add(.rigSink(slowRead: .seconds(5) * timing.scale))
            case "coc": return addChannelDevice()
            default: return nil
            }
        }
    }

    private func controlDaemon(_ command: String, _ arguments: [String]) async throws -> String {
        switch (command, arguments.first) {
        case ("kill", nil): killDaemon()
        case ("stop", nil): stopDaemon()
        case ("start", nil): try await startDaemon()
        case ("hang", nil): hangDaemon()
        case ("continue", nil): continueDaemon()
        case ("remove", let address?):
            guard let peripheral = peripheral(address) else { throw ControlError("no such device: \(address)") }
            forgetDevice(peripheral)
        case ("cache", let mode?):
            guard let cache = SimulatorOptions.ServiceCache(rawValue: mode) else {
                throw ControlError("unknown cache mode: \(mode)")
            }
            sync { optionsState.serviceCache = cache }
        default: throw ControlError("unknown command: bluetoothd \(command)")
        }
        return ""
    }

    private func controlRig(_ command: String, _ arguments: [String], _ line: String) throws -> String {
        let few = 0...9
        switch (command, arguments.first) {
        case ("unplug", let index): unplugAdapter(try few.number(index ?? "0"))
        case ("plug", let index): plugAdapter(try few.number(index ?? "0"))
        case ("adapters", let count?): setAdapters(max(1, try few.number(count)))
        case ("sensors", let count?):
            for number in 1...max(1, try few.number(count)) where sync({ named["sensor\(number)"] }) == nil {
                add(.rigSensor(number))
            }
        case ("reports", nil): return "\(reportsSent)"
        case ("suspend", nil): suspend()
        case ("resume", nil): resume()
        case ("power", let state?) where state == "on" || state == "off": setPowered(state == "on")
        case ("deaf", let kind?):
            guard let deafness = SimulatorDeafness(rawValue: kind) else {
                throw ControlError("unknown command: \(line)")
            }
            setDeaf(deafness)
        case ("duplicates", let kind?):
            guard let filter = SimulatorOptions.DuplicateFilter(rawValue: kind) else {
                throw ControlError("unknown filter: \(kind)")
            }
            sync { optionsState.duplicateFilter = filter }
        default: throw ControlError("unknown command: \(line)")
        }
        return ""
    }

    private func controlCrowd(_ command: String, _ arguments: [String], _ line: String) throws -> String {
        guard let first = arguments.first else { throw ControlError("unknown command: \(line)") }
        // As many as there are addresses.
        let count = try (0...65_536).number(first)
        switch command {
        case "set":
            let interval = arguments.count > 1 ? try (1...3_600_000).number(arguments[1]) : 1000
            setCrowd(
                count, interval: .milliseconds(interval) * timing.scale,
                change: arguments.count > 2 ? try (0...1_000_000).number(arguments[2]) : 1)
        case "known": addKnownDevices(count)
        default: throw ControlError("unknown command: \(line)")
        }
        return ""
    }

    private func control(
        _ peripheral: VirtualPeripheral, _ command: String, _ arguments: [String], _ line: String
    ) async throws -> String {
        let unknown = ControlError("unknown command: \(line)")
        func bytes(_ index: Int) throws -> [UInt8] {
            guard arguments.indices.contains(index) else { return [] }
            guard let bytes = Hex.bytes(arguments[index]) else { throw ControlError("not hexadecimal: \(line)") }
            return bytes
        }
        switch (command, arguments.first) {
        case ("advertise", let state?): peripheral.advertise(state == "on")
        case ("once", let dBm): peripheral.advertiseOnce(rssi: try dBm.map(Self.strengths.number))
        case ("rssi", let dBm?): peripheral.rssi = try Self.strengths.number(dBm)
        case ("name", _?): peripheral.advertisement.localName = arguments.joined(separator: " ")
        case ("manufacturer", _?):
            var entries: AdvertisedEntries<UInt16> = [:]
            for index in arguments.indices {
                let data = try bytes(index)
                guard data.count >= 2 else { throw ControlError("a company identifier has two bytes: \(line)") }
                entries[UInt16(data[0]) | UInt16(data[1]) << 8] = Array(data[2...])
            }
            peripheral.advertisement.manufacturerData = entries
        case ("disconnect", _):
            guard peripheral.isConnected else { throw ControlError("not connected") }
            peripheral.disconnect()
        case ("vanish", nil): peripheral.vanish()
        case ("return", nil): peripheral.comeBack()
        case ("forget", nil): peripheral.forgetBond()
        case ("private", nil): return peripheral.usePrivateAddress()
        case ("identity", nil): peripheral.useIdentityAddress()
        case ("pairing", let kind?):
            guard let pairing = VirtualPairing(rawValue: kind) else { throw unknown }
            peripheral.setPairing(
                pairing, passkey: arguments.count > 1 ? try Self.passkeys.number(arguments[1]) : 123_456)
        case ("enter", let passkey?): peripheral.type(passkey: try Self.passkeys.number(passkey))
        case ("channel", _?): return try await channelControl(peripheral.key).control(arguments, line)
        case ("connections", nil): return "\(sync { peripheral.links.count })"
        case ("state", nil): return state(of: peripheral)
        case ("value", let number?):
            let uuid = try uuid(number, of: peripheral)
            if arguments.count > 1 { peripheral.setValue(try bytes(1), of: uuid) }
            return Hex.text(peripheral.value(of: uuid) ?? [])
        case ("notify", let number?), ("indicate", let number?):
            peripheral.notify(try uuid(number, of: peripheral), try bytes(1))
        case ("burst", let number?):
            guard peripheral.isConnected else { throw ControlError("not connected") }
            try await burst(peripheral, try uuid(number, of: peripheral), Array(arguments.dropFirst()))
        case ("measure", let text?):
            guard let rate = UInt16(text) else { throw unknown }
            peripheral.notify(
                UUIDText.full("2A37"), rate > 255 ? [1, UInt8(rate & 255), UInt8(rate >> 8)] : [0, UInt8(rate)])
        case ("beat", let rate?): beat(peripheral, try Self.rate(rate))
        case ("services", "add"): peripheral.addService(VirtualPeripheral.changingService)
        case ("services", "remove"):
            guard
                peripheral.removeService(VirtualPeripheral.testUUID(0x0003))
                    || peripheral.removeService(VirtualPeripheral.testUUID(0x0004))
            else { throw ControlError("neither service 0003 nor 0004 is there") }
        case ("services", "replace"):
            guard peripheral.removeService(VirtualPeripheral.testUUID(0x0003)) else {
                throw ControlError("no service 0003")
            }
            peripheral.addService(VirtualPeripheral.replacingService)
        default: throw unknown
        }
        return ""
    }

    /// A signal strength in dBm.
    private static var strengths: ClosedRange<Int16> { -127...20 }
    private static var passkeys: ClosedRange<UInt32> { 0...999_999 }

    /// A rate per second; 0: none, or without a limit.
    private static func rate(_ word: String) throws -> Double {
        word == "0" ? 0 : try (0.001...1_000_000).number(word)
    }

    /// A characteristic by its four digits, `2a37` or `0013`.
    private func uuid(_ number: String, of peripheral: VirtualPeripheral) throws -> String {
        let value = UInt16(number, radix: 16) ?? 0
        for uuid in [VirtualPeripheral.testUUID(value), UUIDText.full(Hex.handle(value))]
        where peripheral.value(of: uuid) != nil {
            return uuid
        }
        throw ControlError("no characteristic \(number)")
    }

    private func state(of peripheral: VirtualPeripheral) -> String {
        sync {
            let peers = peripheral.links.map { link in
                "\(link.central?.linkAddress ?? "gone/P")/mtu=\(link.mtu)/encrypted=\(link.isEncrypted ? 1 : 0)"
            }
            return "connections=[\(peers.joined(separator: ","))] advertising=\(peripheral.isOnAir ? 1 : 0)"
        }
    }

    private func beat(_ peripheral: VirtualPeripheral, _ perSecond: Double) {
        peripheral.stopNotifying("2A37")
        guard perSecond > 0 else { return }
        peripheral.notifyRepeatedly("2A37", every: .seconds(1) / perSecond * timing.scale) { index in
            [0, UInt8(60 + (index + 1) % 100)]
        }
    }

    /// Notifications that start with a 4-byte counter. Returns when the last one has been sent.
    private func burst(_ peripheral: VirtualPeripheral, _ uuid: String, _ arguments: [String]) async throws {
        let count = try (0...100_000_000).number(arguments.first ?? "")
        let size = max(arguments.count > 1 ? try (0...512).number(arguments[1]) : 20, 4)
        let rate = arguments.count > 2 ? try Self.rate(arguments[2]) : 0
        let padding = [UInt8](repeating: 0, count: size - 4)
        let start = clock.now
        // 16 at a time, so that a fast burst does not block the queue.
        let batch = rate > 0 ? max(1, Int(rate / 100)) : 16
        var sent = 0
        while sent < count {
            let range = sent..<min(sent + batch, count)
            sync {
                for number in range {
                    peripheral.notify(uuid, (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) } + padding)
                }
            }
            sent = range.upperBound
            if rate > 0 {
                try? await clock.sleep(until: start.advanced(by: .seconds(Double(sent) / rate)))
            } else {
                await Task.yield()
            }
        }
    }
}
