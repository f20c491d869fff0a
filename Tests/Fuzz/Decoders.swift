import BluezKitProfiles
import CBluezDBus
import Foundation

@testable import BluezKit
@testable import BluezKitRestore
@testable import BluezDBus

/// Everything that reads bytes of others and decides nothing: no bus, no thread.
enum Decoders {
    static let deviceProperties = [
        "Address", "AddressType", "Name", "RSSI", "TxPower", "UUIDs", "ManufacturerData", "ServiceData",
        "AdvertisingData", "Connected", "Paired", "Bonded", "ServicesResolved",
    ]
    static let advertisedProperties = ["Name", "RSSI", "UUIDs", "ManufacturerData", "ServiceData", "AdvertisingData"]
    static let attributeProperties = ["UUID", "UUID", "Primary", "Includes", "Flags", "Value", "MTU", "Notifying"]

    /// A message as it comes from the socket: accepted if libdbus accepts it, read as libdbus reads it. What was read
    /// can be written.
    static func message(_ bytes: UnsafeBufferPointer<UInt8>) {
        let bytes = UnsafeRawBufferPointer(bytes)
        if let difference = MessageComparison.difference(bytes) { preconditionFailure("not as libdbus: \(difference)") }
        guard let message = Message(bytes: bytes) else { return }
        _ = (message.sender, message.path, message.interface, message.member, message.errorName, message.signature)
        if message.kind == .error { _ = message.remoteError }
        if let values = try? message.values() {
            do throws(BusError) {
                let copy = try written(values)
                precondition(copy.signature == message.signature, "\(values) became \(copy.signature)")
            } catch {
                guard case .limit = error else { preconditionFailure("cannot write what was read: \(error)") }
            }
        }
        readAsDevice(message)
    }

    private static func readAsDevice(_ message: Message) {
        var (device, tree) = (DeviceProperties(), AttributeTable())
        let uuids = UUIDPool()
        var reader = message.reader
        _ = try? device.apply(&reader, of: "/org/bluez/hci0/dev_X", uuids: uuids)
        try? device.invalidate(&reader)
        reader = message.reader
        _ = try? tree.add("/org/bluez/hci0/dev_X/service0001", &reader, uuids: uuids)
    }

    /// What a device advertises, report after report.
    static func advertisement(_ bytes: UnsafeBufferPointer<UInt8>) {
        var choices = Choices(bytes)
        var device = DeviceProperties()
        let uuids = UUIDPool()
        repeat {
            let report = Value.properties(choices.properties(deviceProperties))
            let gone = choices.chance(10) ? choices.value() : .strings(choices.list(3) { $0.pick(deviceProperties) })
            read([choices.chance(2) ? choices.value() : report, gone]) { reader in
                _ = try? device.apply(&reader, of: "/org/bluez/hci0/dev_X", uuids: uuids)
                try? device.invalidate(&reader)
            }
            _ = (device.advertisementData.description, device.kinds, device.identity?.identifier)
        } while !choices.atEnd
    }

    /// The attributes of a peripheral, which come, change and go.
    static func attributes(_ bytes: UnsafeBufferPointer<UInt8>) {
        var choices = Choices(bytes)
        var tree = AttributeTable()
        let uuids = UUIDPool()
        let device = Choices.device(0)
        repeat {
            let text = choices.chance(5) ? choices.path().rawValue : choices.attributePath(of: device)
            guard let path = ObjectPath(text) else { continue }
            let properties = Value.properties(
                [("UUID", choices.property("UUID"))] + choices.properties(attributeProperties))
            switch choices.roll(8) {
            case 0: _ = tree.remove(path)
            case 1: read([properties]) { try? tree.change(text, &$0, uuids: uuids) }
            default:
                let interface = AttributeTable.interface(of: path) ?? choices.pick(Choices.texts)
                let object = Value.dictionary(
                    key: "s", value: "a{sv}", [.init(.string(interface), properties)])
                read([choices.chance(2) ? choices.value() : object]) { _ = try? tree.add(path, &$0, uuids: uuids) }
            }
        } while !choices.atEnd
        for service in tree.visibleServices() {
            let path = service.path.rawValue
            _ = (tree.includedServices(of: path), tree.layout(of: path), tree.mtuBytes)
            for characteristic in tree.characteristics(of: path, isBonded: false) {
                precondition(characteristic.path.isWithin(service.path), "a characteristic in a foreign service")
                _ = tree.hasCCCD(characteristic.path.rawValue)
            }
        }
        tree.forgetMTU()
    }

    /// Messages between an app's objects and the core. One that was read can be written, and is the same then.
    static func border(_ bytes: UnsafeBufferPointer<UInt8>) {
        let data = Data(bytes)
        func check<Message: Codable>(_ type: Message.Type) {
            guard let message = try? BorderFormat.decode(type, from: data) else { return }
            do {
                let again = try BorderFormat.encode(message)
                let copy = try BorderFormat.decode(type, from: again.bytes, again.descriptors)
                precondition("\(copy)".count == "\(message)".count, "\(message) became \(copy)")
            } catch { preconditionFailure("cannot write what was read: \(error) (\(message))") }
        }
        check(CentralMessage.self)
        check(CentralEvent.self)
        check(PublishMessage.self)
        check(PublishEvent.self)
    }

    /// What an app and its keeper send each other, in pieces whose lengths the first byte decides.
    static func keeper(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard let first = bytes.first else { return }
        var reader = FrameReader()
        var rest = bytes.dropFirst()
        while !rest.isEmpty {
            reader.add(UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: rest.prefix(Int(first) + 1))), [])
            rest = rest.dropFirst(Int(first) + 1)
            do {
                while let frame = try reader.next() {
                    _ = frame.version(as: .greeting)
                    _ = try? frame.event(CentralEvent.self)
                    _ = try? frame.event(PublishEvent.self)
                    _ = try? frame.request(CentralRequest.self)
                    _ = try? frame.request(PublishRequest.self)
                    _ = try? BorderFormat.decode([KeeperHello].self, from: frame.body)
                    _ = try? BorderFormat.decode(KeeperHello.self, from: frame.body)
                    _ = try? BorderFormat.decode(HandOver.self, from: frame.body)
                    _ = try? BorderFormat.decode([KeeperStatus].self, from: frame.body)
                }
            } catch { break }
        }
        reader.end()
    }

    /// A trace, in pieces of any length.
    static func trace(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard let first = bytes.first else { return }
        var reader = TraceReader()
        var rest = Data(bytes.dropFirst())[...]
        while !rest.isEmpty {
            for item in reader.read(rest.prefix(Int(first) + 1)) { _ = try? item.get().place.seconds.rounded() }
            rest = rest.dropFirst(Int(first) + 1)
        }
        _ = reader.end()
    }

    /// Values of the standard characteristics. A value that was read, written and read again is the same.
    static func profiles(_ bytes: UnsafeBufferPointer<UInt8>) {
        let data = Data(bytes)
        func check<V: CharacteristicValue>(_ type: V.Type) {
            guard let value = try? V(data) else { return }
            let again = try? V(value.data)
            precondition(again == value, "\(value) became \(String(describing: again))")
        }
        check(HeartRateMeasurement.self)
        if let measurement = try? HeartRateMeasurement(data) { _ = measurement.fitting(20) }
        check(HeartRateControlPoint.self)
        check(BodySensorLocation.self)
        check(BatteryLevel.self)
        check(CurrentTime.self)
        _ = try? CurrentTime(data).date()
        check(LocalTimeInformation.self)
        _ = try? LocalTimeInformation(data).timeZone
        check(ReferenceTimeInformation.self)
        check(SystemID.self)
        check(PnPID.self)
        _ = try? DeviceInformationText.text(of: data)
        check(TemperatureMeasurement.self)
        check(TemperatureType.self)
        check(CSCMeasurement.self)
        check(SensorLocation.self)
        check(SCControlPoint.self)
        check(CyclingPowerMeasurement.self)
        check(CyclingPowerVector.self)
        check(CyclingPowerFeature.self)
        check(RSCMeasurement.self)
        check(WeightMeasurement.self)
        check(BloodPressureMeasurement.self)
        check(GlucoseMeasurement.self)
        check(GlucoseMeasurementContext.self)
        check(RecordAccessControlPoint.self)
        if let request = try? RecordAccessControlPoint(data) { _ = try? request.filter() }
        check(PLXSpotCheckMeasurement.self)
        check(PLXContinuousMeasurement.self)
        check(PLXFeatures.self)
        check(AlertLevel.self)
        check(TxPowerLevel.self)
        check(ANCSEvent.self)
        moreProfiles(bytes)
        for quantity in EnvironmentalQuantity.allCases { _ = try? EnvironmentalReading(quantity, data) }
    }

    /// Those of machines, glucose sensors, scales and batteries.
    private static func moreProfiles(_ bytes: UnsafeBufferPointer<UInt8>) {
        let data = Data(bytes)
        func check<V: StructuredValue>(_ type: V.Type, _ use: (V) -> Void = { _ in }) {
            guard let value = try? V(data) else { return }
            let again = try? V(value.data)
            precondition(again == value, "\(value) became \(String(describing: again))")
            use(value)
        }
        /// A record in notifications, whose length the first byte decides, is the same when they are joined.
        func checkRecord<V: FitnessMachineData>(_ type: V.Type) {
            check(type) { record in
                var records = FitnessMachineRecords<V>()
                let notifications = record.notifications(length: Int(bytes.first ?? 0))
                let joined = notifications.compactMap { try? records.add($0) }
                precondition(joined == (record.hasMoreData ? [] : [record]), "\(record) became \(joined)")
            }
        }
        checkRecord(TreadmillData.self)
        checkRecord(CrossTrainerData.self)
        checkRecord(StepClimberData.self)
        checkRecord(StairClimberData.self)
        checkRecord(RowerData.self)
        checkRecord(IndoorBikeData.self)
        check(FitnessMachineFeature.self)
        check(FitnessMachineAdvertisement.self)
        check(TrainingStatus.self)
        check(SupportedResistanceLevelRange.self)
        check(SupportedInclinationRange.self)
        check(FitnessMachineStatus.self)
        check(FitnessMachineControlPoint.self) { _ = ($0.command, $0.spinDownSpeeds, try? $0.checkSuccess()) }
        check(CGMMeasurement.self)
        check(CGMFeature.self)
        check(CGMStatus.self)
        check(CGMSessionStartTime.self) { _ = $0.date }
        check(CGMSessionRunTime.self)
        check(CGMSpecificOpsControlPoint.self) { _ = ($0.command, try? $0.checkSuccess()) }
        check(BodyCompositionMeasurement.self) { measurement in
            var sum = measurement
            _ = try? sum.add(packet: data)
        }
        check(UserControlPoint.self) { _ = ($0.command, $0.user, try? $0.checkSuccess()) }
        check(UserData.FirstName.self)
        check(UserData.DateOfBirth.self)
        check(UserData.Gender.self)
        check(UserIndex.self)
        check(DatabaseChangeIncrement.self)
        check(BatteryLevelStatus.self)
        check(BatteryCriticalStatus.self)
        check(BatteryTimeStatus.self)
        check(BatteryEnergyStatus.self)
        check(BatteryHealthStatus.self)
        check(BatteryHealthInformation.self)
        check(BatteryInformation.self) { _ = $0.expirationDate?.date }
        check(EstimatedServiceDate.self)
    }

    /// A stream of messages, in pieces. What was found is what the stream begins with, and no more is held than the
    /// limit.
    static func stream(_ bytes: UnsafeBufferPointer<UInt8>) {
        var choices = Choices(bytes)
        let limit = choices.roll(300)
        let encoder = MessageEncoder(limit: limit)
        var decoder = MessageDecoder(limit: limit)
        var (arrived, found) = ([UInt8](), [UInt8]())
        do throws(MessageError) {
            repeat {
                let piece = choices.some(choices.roll(64))
                arrived += piece
                decoder.append(piece)
                while let message = try decoder.next() { found += try encoder.encode(message) }
                precondition(decoder.count < limit + MessageEncoder.headerLength, "\(decoder.count) bytes are held")
                precondition(found.count + decoder.count == arrived.count, "bytes were lost")
            } while !choices.atEnd
        } catch {
            precondition(decoder.count == 0, "bytes are held after an error")
        }
        precondition(arrived.starts(with: found), "\(arrived) became \(found)")
    }

    /// A state file. What it holds can be used, and written again.
    static func state(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard let snapshot = try? Snapshot(fileContent: Data(bytes)) else { return }
        var uuids = (snapshot.scan?.services ?? []) + (snapshot.scan?.solicitedServices ?? [])
        for service in snapshot.peripherals.flatMap({ $0.services ?? [] }) {
            uuids.append(service.uuid)
            for characteristic in service.characteristics ?? [] {
                uuids += [characteristic.uuid] + (characteristic.descriptors ?? []).map(\.uuid)
            }
        }
        for service in snapshot.services {
            uuids.append(service.uuid)
            for characteristic in service.characteristics { uuids.append(characteristic.uuid) }
        }
        for uuid in uuids { _ = CBUUID(string: uuid.text) }
        precondition((try? Snapshot(fileContent: snapshot.fileContent())) != nil, "cannot read what was written")
    }

    /// Texts for UUIDs and addresses.
    static func text(_ bytes: UnsafeBufferPointer<UInt8>) {
        let text = String(decoding: bytes, as: UTF8.self)
        if let uuid = AttributeUUID(text) { _ = CBUUID(string: uuid.text) }
        if let uuid = CBUUID(bluez: text) { precondition(CBUUID(bluez: uuid.bluezString) == uuid, text) }
        if let identity = text.withCString({ DeviceIdentity(address: $0, isRandom: true) }) {
            precondition(DeviceIdentity(identifier: identity.identifier) == identity, text)
        }
        if let path = ObjectPath(text) { _ = (path.parent, path.lastElement, AttributeTable.interface(of: path)) }
        if let element = PathElement(text) { precondition(ObjectPath("/" + element.text) != nil, text) }
    }

    // MARK: Messages

    private static func read(_ values: [Value], _ body: (inout MessageReader) -> Void) {
        // A value of the wrong type that cannot be written cannot be sent either.
        guard let message = try? written(values) else { return }
        var reader = message.reader
        body(&reader)
    }

    private static func written(_ values: [Value]) throws(BusError) -> Message {
        guard let raw = cdbus_message_new_signal(nil, "/", "a.b", "C") else { throw .limit("out of memory") }
        defer { dbus_message_unref(raw) }
        var writer = MessageWriter(raw)
        for value in values { try writer.write(value) }
        return try received(raw)
    }

    /// What libdbus has made, as it is received.
    private static func received(_ raw: OpaquePointer) throws(BusError) -> Message {
        var (bytes, count) = (UnsafeMutablePointer<CChar>?.none, CInt(0))
        dbus_message_set_serial(raw, 1)
        guard dbus_message_marshal(raw, &bytes, &count) != 0 else { throw .limit("out of memory") }
        defer { dbus_free(bytes) }
        guard let message = Message(bytes: UnsafeRawBufferPointer(start: bytes, count: Int(count))) else {
            preconditionFailure("libdbus has made what is refused")
        }
        return message
    }
}
