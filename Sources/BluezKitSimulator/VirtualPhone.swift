import Foundation

/// A simulated iPhone, as far as accessories know one: it connects to what solicits the Apple Notification Center
/// Service, pairs, and offers that service over its own link.
///
/// ```swift
/// let phone = simulator.phone()
/// try await phone.find()
/// phone.post(1, VirtualPhone.Notification(app: "com.apple.MobileSMS", title: "Ada", message: "Hello"))
/// ```
/// Events for ``Simulator/onEvent(_:)``: `phone command HEX`, `phone refused HEX 0xNN`, `phone performed UID positive`,
/// and those of a ``VirtualCentral``.
/// - SeeAlso: Apple, Apple Notification Center Service (ANCS) Specification.
public final class VirtualPhone: @unchecked Sendable {  // holds: all state is touched on the simulator's queue
    /// A notification.
    public struct Notification: Sendable {
        /// The identifier of an app.
        public var app: String
        /// As ANCS numbers categories.
        public var category: UInt8
        /// As in events.
        public var flags: UInt8
        /// Texts, in the order of the attributes' numbers.
        var texts: [String]

        /// A notification; with a label, it has that action.
        public init(
            app: String, category: UInt8 = 4, flags: UInt8 = 0, title: String, subtitle: String = "",
            message: String = "", positive: String? = nil, negative: String? = nil, date: String = "20260102T030405"
        ) {
            (self.app, self.category) = (app, category)
            self.flags = flags | (positive == nil ? 0 : 8) | (negative == nil ? 0 : 16)
            texts = [
                app, title, subtitle, message, String(message.utf8.count), date, positive ?? "", negative ?? "",
            ]
        }
    }

    /// The names of its apps.
    public static let apps = [
        "com.apple.MobileSMS": "Messages", "com.apple.mobilephone": "Phone", "com.apple.mobilemail": "Mail",
    ]
    private static let service = "7905f431-b5ce-4e99-a40f-4b1e122d00d0"
    private static let source = "9fbf120d-6301-42d9-8c58-25e699a21dbd"
    private static let data = "22eac6e9-24d6-4bb5-be44-b36ace7c7bfb"
    private static let controlPoint = "69d1d8f3-45e1-49a8-9821-9bbdfdaad9d9"

    /// Its end of the links that it makes, which keeps it.
    private weak var central: VirtualCentral?
    let server: VirtualPeripheral
    private var notifications: [UInt32: Notification] = [:]
    private var isAnswering = true

    fileprivate init(_ central: VirtualCentral, _ simulator: Simulator) {
        self.central = central
        server = VirtualPeripheral(central.address, VirtualAdvertisement(localName: "Phone"), key: central.key)
        server.isAdvertisingEnabled = false
        server.offeredMTU = 185
        simulator.add(server)
        simulator.onEvent { [weak self, weak simulator] event in
            guard let simulator, event == "phone subscribed 120d 10" else { return }
            simulator.after(simulator.timing.attRoundTrip) { self?.announceAll() }
        }
        server.addService(definition)
    }

    private var definition: VirtualService {
        VirtualService(
            Self.service,
            [
                VirtualCharacteristic(
                    Self.controlPoint, .write, write: { [weak self] in try self?.command($0) }, security: .encrypted),
                VirtualCharacteristic(Self.source, .notify, security: .encrypted),
                VirtualCharacteristic(Self.data, .notify, security: .encrypted),
            ])
    }

    // MARK: What its user does

    /// Connects to the next accessory that solicits the service, as if it had been chosen in the settings.
    /// - Parameter pairs: Pairs at once; else when the accessory asks for it.
    /// - Returns: The address of the accessory.
    @discardableResult
    public func find(pairs: Bool = false) async throws -> String {
        guard let central else { throw VirtualCentralError.simulatorReleased }
        let simulator = try central.simulator
        return try await simulator.clock.run { [self] in try await find(simulator, central, pairs) }
    }

    private func find(_ simulator: Simulator, _ central: VirtualCentral, _ pairs: Bool) async throws -> String {
        let deadline = simulator.clock.now.advanced(by: .seconds(30))
        while true {
            let accessory = simulator.sync {
                simulator.peripherals.values.first { $0.isOnAir && $0.solicits(Self.service) }?.address
            }
            if let accessory {
                try await central.connect(to: accessory, mtu: 185)
                if pairs, !server.sync({ server.holdsBond }) { try await central.pair() }
                return accessory
            }
            guard simulator.clock.now < deadline else {
                throw VirtualCentralError.nothingHeard(address: "an accessory")
            }
            try await simulator.clock.sleep(for: .milliseconds(5))
        }
    }

    /// Whether accessories may see the notifications: the service comes or goes.
    public func permit(_ on: Bool) {
        server.sync {
            let isShown = server.table.services.contains { $0.definition.uuid == Self.service }
            if on, !isShown { server.addService(definition) }
            if !on, isShown { server.removeService(Self.service) }
        }
    }

    /// Whether its battery level is for paired accessories only, as an iPhone's is: bluetoothd reads it when it is
    /// connected, and pairs.
    public func protectBattery(_ on: Bool) {
        server.sync {
            _ = server.table.remove(UUIDText.full("180F"))
            if on {
                let level = VirtualCharacteristic("2A19", .read, value: [80], security: .encrypted)
                server.addService(VirtualService("180F", [level]))
            }
        }
    }

    /// Posts a notification, or changes the one with this number.
    public func post(_ uid: UInt32, _ notification: Notification) {
        server.sync {
            let isKnown = notifications.updateValue(notification, forKey: uid) != nil
            tell(isKnown ? 1 : 0, uid, notification)
        }
    }

    /// Removes a notification.
    public func remove(_ uid: UInt32) {
        server.sync { if let notification = notifications.removeValue(forKey: uid) { tell(2, uid, notification) } }
    }

    /// Whether commands that are accepted are answered.
    public func answerCommands(_ on: Bool) { server.sync { isAnswering = on } }

    /// Its name.
    public var name: String {
        get { server.sync { server.content.localName ?? "" } }
        set { server.sync { server.content.localName = newValue } }
    }

    // MARK: Notifications

    private func tell(_ event: UInt8, _ uid: UInt32, _ notification: Notification) {
        let count = notifications.values.count { $0.category == notification.category }
        server.notify(
            Self.source, [event, notification.flags, notification.category, UInt8(clamping: count)] + Self.bytes(uid))
    }

    /// Who subscribes hears of those that are there already.
    private func announceAll() {
        server.sync {
            for uid in notifications.keys.sorted() {
                notifications[uid]?.flags |= 4
                if let notification = notifications[uid] { tell(0, uid, notification) }
            }
        }
    }

    // MARK: Commands

    private func command(_ value: [UInt8]) throws(ATTFailure) {
        let answer: [UInt8]
        do throws(ATTFailure) { answer = try self.answer(value) } catch {
            server.event("refused \(Hex.text(value)) 0x\(Hex.byte(error.code))")
            throw error
        }
        server.event("command \(Hex.text(value))")
        guard isAnswering, !answer.isEmpty, let simulator = server.simulator, let link = server.links.first else {
            return
        }
        let size = Int(link.mtu) - 3
        simulator.after(simulator.timing.attRoundTrip) { [server] in
            for start in stride(from: 0, to: answer.count, by: size) {
                server.notify(Self.data, Array(answer[start..<min(start + size, answer.count)]))
            }
        }
    }

    private static let unknownCommand = ATTFailure(0xA0), invalidCommand = ATTFailure(0xA1)
    private static let invalidParameter = ATTFailure(0xA2), actionFailed = ATTFailure(0xA3)

    /// What the data source answers.
    private func answer(_ value: [UInt8]) throws(ATTFailure) -> [UInt8] {
        guard let kind = value.first, kind <= 2 else { throw Self.unknownCommand }
        if kind == 1 { return try appAnswer(value) }
        guard value.count >= 6 else { throw Self.invalidCommand }
        let uid = value[1...4].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        guard let notification = notifications[uid] else { throw Self.invalidParameter }
        guard kind == 0 else {
            guard value.count == 6 else { throw Self.invalidCommand }
            guard value[5] <= 1 else { throw Self.invalidParameter }
            guard notification.flags >> (3 + value[5]) & 1 == 1 else { throw Self.actionFailed }
            server.event("performed \(uid) \(value[5] == 0 ? "positive" : "negative")")
            return []
        }
        var answer = Array(value[..<5]), rest = value[5...]
        while let number = rest.popFirst() {
            guard Int(number) < notification.texts.count else { throw Self.invalidParameter }
            var limit = Int(UInt16.max)
            if (1...3).contains(number) {
                guard let low = rest.popFirst(), let high = rest.popFirst() else { throw Self.invalidCommand }
                limit = Int(low) | Int(high) << 8
            }
            answer += Self.attribute(number, notification.texts[Int(number)], limit)
        }
        return answer
    }

    private func appAnswer(_ value: [UInt8]) throws(ATTFailure) -> [UInt8] {
        guard let end = value.firstIndex(of: 0), end > 1, end + 1 < value.count else { throw Self.invalidCommand }
        let name = Self.apps[String(decoding: value[1..<end], as: UTF8.self)]
        guard let name, value[(end + 1)...].allSatisfy({ $0 == 0 }) else { throw Self.invalidParameter }
        return Array(value[...end]) + value[(end + 1)...].flatMap { Self.attribute($0, name) }
    }

    private static func attribute(_ number: UInt8, _ text: String, _ limit: Int = Int(UInt16.max)) -> [UInt8] {
        let bytes = Array(text.utf8.prefix(limit))
        return [number, UInt8(bytes.count & 0xFF), UInt8(bytes.count >> 8)] + bytes
    }

    private static func bytes(_ number: UInt32) -> [UInt8] { (0..<4).map { UInt8(number >> (8 * $0) & 0xFF) } }

    // MARK: Control lines

    /// The rig's are the same: `find [pair]`, `permit on|off`, `battery on|off`, `post UID CATEGORY FLAGS APP
    /// TITLE|SUBTITLE|MESSAGE[|POSITIVE|NEGATIVE]` (%1B is a byte), `remove UID`, `answers on|off`; `data HEX` and
    /// `source HEX`, values of any kind.
    /// - Returns: The answer; nil: it is a line for every peripheral.
    func control(_ command: String, _ arguments: [String], _ line: String) async throws -> String? {
        func number<T: FixedWidthInteger & LosslessStringConvertible>(_ index: Int) throws -> T {
            guard arguments.indices.contains(index), let number = T(arguments[index]) else {
                throw ControlError("not a number: \(line)")
            }
            return number
        }
        switch (command, arguments.first) {
        case ("find", let word): return try await find(pairs: word == "pair")
        case ("permit", let state?): permit(state == "on")
        case ("battery", let state?): protectBattery(state == "on")
        case ("answers", let state?): answerCommands(state == "on")
        case ("remove", _): remove(try number(0))
        case ("data", let hex?): server.notify(Self.data, Hex.bytes(hex) ?? [])
        case ("source", let hex?): server.notify(Self.source, Hex.bytes(hex) ?? [])
        case ("post", _) where arguments.count > 4:
            let texts = arguments.dropFirst(4).joined(separator: " ")
                .split(separator: "|", omittingEmptySubsequences: false).map {
                    $0.removingPercentEncoding ?? String($0)
                }
            guard texts.count >= 3 else { throw ControlError("unknown command: \(line)") }
            var notification = Notification(
                app: arguments[3], category: try number(1), flags: try number(2), title: texts[0], subtitle: texts[1],
                message: texts[2])
            notification.texts.replaceSubrange(6..<8, with: (texts.dropFirst(3) + ["", ""]).prefix(2))
            post(try number(0), notification)
        default: return nil
        }
        return ""
    }
}

extension VirtualPeripheral {
    /// Whether it advertises that it wants to use this service of who connects.
    fileprivate func solicits(_ uuid: String) -> Bool {
        (rotation.isEmpty ? [content] : rotation).contains {
            $0.isConnectable && $0.solicitedServiceUUIDs.contains(uuid)
        }
    }
}

extension Simulator {
    /// A phone, F0:F1:F2:00:00:06, always the same one.
    public func phone() -> VirtualPhone {
        sync {
            if let known = centrals["phone"]?.phone { return known }
            let central = VirtualCentral("F0:F1:F2:00:00:06", key: "phone", simulator: self)
            let phone = VirtualPhone(central, self)
            (centrals[central.key], central.phone) = (central, phone)
            return phone
        }
    }
}
