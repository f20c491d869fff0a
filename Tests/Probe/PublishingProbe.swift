import CoreBluetooth
import Foundation

/// The app as a peripheral. Its services are 0100, which includes 0101, with characteristics 0110 (fixed value), 0111
/// (read, write, notify, with a description) and 0112 (in 0101); all of them `bb1eNNNN-5d3b-4c6f-9a5e-000000000000`.
final class PublishingProbe: NSObject, CBPeripheralManagerDelegate {
    let arguments = Arguments()
    var manager: CBPeripheralManager?
    var services: [CBMutableService] = []
    /// Those that take the place of restored ones of an earlier version.
    private var new: [CBMutableService] = []
    private var channels: [CBL2CAPChannel] = []

    func start() {
        var options = probeOptions(arguments)
        options[CBPeripheralManagerOptionRestoreIdentifierKey] = arguments["--publish"]
        manager = CBPeripheralManager(delegate: self, queue: nil, options: options)
    }

    func perform(_ line: String) {
        tell("begin", line)
        let words = line.split(separator: " ").map(String.init)
        switch words[0] {
        case "publish":
            services = Self.makeServices(isRevised)
            services.forEach { manager?.add($0) }
        case "add":
            if services.isEmpty { services = Self.makeServices(isRevised) }
            manager?.add(services[Int(words[1]) ?? 0])
        case "again": services.first.map { manager?.add($0) }
        case "unpublish": manager?.removeAllServices()
        case "advertise":
            manager?.startAdvertising([
                CBAdvertisementDataLocalNameKey: words[1], CBAdvertisementDataServiceUUIDsKey: [Self.uuid("0100")],
            ])
        case "channel": manager?.publishL2CAPChannel(withEncryption: false)
        case "stopadvertise": manager?.stopAdvertising()
        case "update":
            let isSent = dynamic.map {
                manager?.updateValue(Self.data(words[1]), for: $0, onSubscribedCentrals: nil) ?? false
            }
            tell("updated", isSent ?? false)
        case "quit": exit(0)
        case "release": (manager, services) = (nil, [])
        case "log":
            tell("report", (manager?.restoration?.description ?? "-").replacingOccurrences(of: "\n", with: " | "))
        case "tell": tell("now", summary())
        default: tell("unknown", line)
        }
        tell("end", line)
    }

    private var isRevised: Bool { arguments.has("--revised") }

    /// - Parameter state: What was restored, with which the app continues where it is the same.
    static func makeServices(_ isRevised: Bool, _ state: [String: Any] = [:]) -> [CBMutableService] {
        let description = CBMutableDescriptor(type: CBUUID(string: "2901"), value: "Level")
        let dynamic = CBMutableCharacteristic(
            type: uuid("0111"), properties: [.read, .write, .notify], value: nil,
            permissions: [.readable, isRevised ? .writeEncryptionRequired : .writeable])
        dynamic.descriptors = [description]
        func fixed(_ number: String) -> CBMutableCharacteristic {
            CBMutableCharacteristic(
                type: uuid(number), properties: .read, value: Data(number.utf8), permissions: .readable)
        }
        var included = CBMutableService(type: uuid("0101"), primary: false)
        included.characteristics = [fixed("0112")]
        included = included.restored(from: state) ?? included
        let main = CBMutableService(type: uuid("0100"), primary: true)
        (main.characteristics, main.includedServices) = ([fixed("0110"), dynamic], [included])
        return [included, main.restored(from: state) ?? main]
    }

    private var dynamic: CBMutableCharacteristic? {
        services.flatMap { $0.characteristics ?? [] }.first { $0.uuid == Self.uuid("0111") } as? CBMutableCharacteristic
    }

    static func uuid(_ number: String) -> CBUUID { CBUUID(string: "BB1E\(number)-5D3B-4C6F-9A5E-000000000000") }

    static func data(_ hexadecimal: String) -> Data {
        Data(
            stride(from: 0, to: hexadecimal.count, by: 2).compactMap {
                UInt8(hexadecimal.dropFirst($0).prefix(2), radix: 16)
            })
    }

    // MARK: Output

    /// `advertising=true 0101[0112:2:1=30313132];0100+0101[…,0111:26:3/2901=Level(0)]`: properties, permissions, fixed
    /// value, description, how many are subscribed.
    private func summary() -> String {
        "advertising=\(manager?.isAdvertising == true) "
            + (services.isEmpty ? "-" : services.map(text).joined(separator: ";"))
    }

    private func text(_ service: CBMutableService) -> String {
        let included = (service.includedServices ?? []).map { "+" + number($0.uuid) }.joined()
        let characteristics = (service.characteristics ?? []).compactMap { $0 as? CBMutableCharacteristic }.map(text)
        return number(service.uuid) + included + "[\(characteristics.joined(separator: ","))]"
    }

    private func text(_ characteristic: CBMutableCharacteristic) -> String {
        let value = characteristic.value.map { "=" + hexadecimal($0) } ?? ""
        let descriptors = (characteristic.descriptors ?? []).map { "/\($0.uuid.uuidString)=\($0.value ?? "nil")" }
        return "\(number(characteristic.uuid)):\(characteristic.properties.rawValue)"
            + ":\(characteristic.permissions.rawValue)\(value)\(descriptors.joined())"
            + "(\(characteristic.subscribedCentrals?.count ?? 0))"
    }

    private func number(_ uuid: CBUUID) -> String { String(uuid.uuidString.dropFirst(4).prefix(4)) }

    private func hexadecimal(_ data: Data) -> String { data.map { String(format: "%02x", $0) }.joined() }

    private func code(_ error: (any Error)?) -> String { error.map { "error=\(($0 as NSError).code)" } ?? "error=none" }

    // MARK: Callbacks

    func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {
        services = dict[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService] ?? []
        let advertisement = dict[CBPeripheralManagerRestoredStateAdvertisementDataKey] as? [String: Any]
        let name = advertisement?[CBAdvertisementDataLocalNameKey] as? String
        let uuids = advertisement?[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID]
        tell(
            "restored", "state=\(peripheral.state)", "name=\(name ?? "-")",
            "uuids=\(uuids?.map(number).joined(separator: ",") ?? "-")", summary())
        if let psms = dict[BluezPeripheralManagerRestoredStateChannelsKey] as? [NSNumber] {
            tell("restoredchannels", psms.map(\.stringValue).joined(separator: ","))
        }
        if isRevised { revise(peripheral, dict) }
    }

    /// Continues what is the same, and withdraws channels that anyone can open.
    private func revise(_ peripheral: CBPeripheralManager, _ dict: [String: Any]) {
        let restored = services
        services = Self.makeServices(isRevised, dict)
        new = services.filter { service in !restored.contains { $0 === service } }
        for channel in peripheral.publishedChannels where !channel.isEncryptionRequired {
            peripheral.unpublishL2CAPChannel(channel.psm)
        }
        peripheral.stopAdvertising()
    }

    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
        tell("state", peripheral.state, summary())
        guard peripheral.state == .poweredOn else { return }
        new.forEach { peripheral.add($0) }
        new = []
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
        tell("added", number(service.uuid), code(error))
    }

    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
        tell("advertising", code(error))
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) { tell("published", "psm=\(PSM)", code(error)) }

    func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        tell("channel", "psm=\(channel?.psm ?? 0)", code(error))
        channel.map { channels.append($0) }
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
        tell("read", number(request.characteristic.uuid), "same=\(request.characteristic === dynamic)")
        request.value = Data("read".utf8).dropFirst(request.offset)
        peripheral.respond(to: request, withResult: .success)
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
        for request in requests {
            tell(
                "wrote", number(request.characteristic.uuid), hexadecimal(request.value ?? Data()),
                "same=\(request.characteristic === dynamic)")
        }
        requests.first.map { peripheral.respond(to: $0, withResult: .success) }
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) { tell("subscribed", number(characteristic.uuid), central.identifier, "same=\(characteristic === dynamic)") }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) { tell("unsubscribed", number(characteristic.uuid), central.identifier) }
}
