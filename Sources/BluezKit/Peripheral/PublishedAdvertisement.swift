import BluezDBus
import Dispatch
import Foundation

/// An advertisement on the bus, for one attempt to get it on air. Confined to the bus queue.
final class PublishedAdvertisement {
    private let content: Advertisement
    private let attempt: Int
    private let path: ObjectPath
    private let adapter: ObjectPath
    /// Whose it is. Calls about it, which BlueZ may never answer, keep nothing of the app, nor the bus.
    private weak var core: PeripheralManagerCore?
    private weak var bus: BlueZBus?

    init(_ content: Advertisement, attempt: Int, of core: PeripheralManagerCore, on adapter: ObjectPath) {
        (self.content, self.attempt, self.core, self.adapter) = (content, attempt, core, adapter)
        (bus, path) = (core.bus, core.bus.newPath("adv"))
    }

    /// Exports it, and asks BlueZ to take it.
    func submit() {
        guard let bus, let server = bus.exportObjects(), let proxy = bus.proxy(adapter, BlueZ.advertisingManager) else {
            return
        }
        server.add(Self.interface, to: path, owner: self)
        submit(proxy, until: DispatchQueue.now.later(by: bus.timing.server.advertisingManager))
    }

    /// BlueZ gives a new adapter its advertising manager some time after it has said that it is powered: until
    /// `deadline`, none is one that is yet to come.
    private func submit(_ proxy: BlueZProxy, until deadline: DispatchTime) {
        proxy.getAll { [self] result in
            if let error = Self.lackOfInstances(in: result) { return finish(error) }
            proxy.registerAdvertisement(path) { [self] result in
                guard let bus else { return }
                if let name = result.failure?.name, BlueZErrorName.meansUnknownObject(name),
                    DispatchQueue.now < deadline,
                    core?.advertiser.isStarting(attempt) == true
                {
                    return bus.after(bus.timing.server.advertisingRetry) { [self] in submit(proxy, until: deadline) }
                }
                let error = result.failure.map {
                    coreBluetoothError(name: $0.name, message: $0.message, context: .advertise, isBonded: false)
                }
                finish(error, isUnanswered: result.failure == .timedOut)
            }
        }
    }

    /// An error that says how many there can be. If BlueZ does not say, its own refusal is what counts.
    private static func lackOfInstances(in result: Result<Message, BusError>) -> CBError? {
        guard case .success(let reply) = result else { return nil }
        var reader = reply.reader
        var counts: (active: UInt8, free: UInt8?) = (0, nil)
        try? reader.readProperties { (key, value) throws(BusError) in
            if key.matches("ActiveInstances") { counts.active = try value.readByte() }
            if key.matches("SupportedInstances") { counts.free = try value.readByte() }
        }
        guard counts.free == 0 else { return nil }
        return CBError(
            .outOfSpace,
            reason: "the adapter has \(counts.active) advertisements on air, from all programs, and can have no more")
    }

    /// - Parameter isUnanswered: BlueZ has it, and may come to it yet. Where it got no answer about the object in time,
    ///   it waits without end (src/advertising.c, `client_proxy_added`), and one of its few instances is taken.
    private func finish(_ error: (any Error)?, isUnanswered: Bool = false) {
        // Or its manager has gone.
        if isUnanswered || core == nil { withdraw() } else if error != nil { unexport() }
        core?.advertiser.replied(attempt, error)
    }

    func withdraw() {
        guard let bus, bus.owner != nil, let proxy = bus.proxy(adapter, BlueZ.advertisingManager) else {
            return unexport()
        }
        proxy.unregisterAdvertisement(path) { [self] _ in unexport() }
    }

    private func unexport() {
        core?.advertiser.unexported(attempt)
        bus?.exportedObjects?.remove(path)
    }

    private func released() {
        guard let core else { return }
        unexport()
        core.advertiser.released(attempt)
    }

    /// - SeeAlso: BlueZ doc/org.bluez.LEAdvertisement.rst.
    static let interface = ExportedInterface(
        BlueZ.advertisement, of: PublishedAdvertisement.self,
        properties: [
            ExportedProperty("Type", "s") { _ in .string("peripheral") },
            // Without it general discovery, as other systems do it, may pass us over.
            ExportedProperty("Discoverable", "b") { _ in .bool(true) },
            ExportedProperty("ServiceUUIDs", "as") {
                $0.content.services.isEmpty ? nil : .strings($0.content.services.map(\.bluezString))
            },
            ExportedProperty("SolicitUUIDs", "as") {
                $0.content.solicitedServices.isEmpty ? nil : .strings($0.content.solicitedServices.map(\.bluezString))
            },
            ExportedProperty("LocalName", "s") { $0.content.nameOnAir.map { .string($0) } },
            ExportedProperty("ManufacturerData", "a{qv}") { $0.content.manufacturerDataValue },
            ExportedProperty("ServiceData", "a{sv}") { $0.content.serviceDataValue },
            ExportedProperty("Includes", "as") { $0.content.txPowerDBm == nil ? nil : .strings(["tx-power"]) },
            ExportedProperty("MinInterval", "u") { $0.content.intervalMilliseconds.map { .uint32($0.lowerBound) } },
            ExportedProperty("MaxInterval", "u") { $0.content.intervalMilliseconds.map { .uint32($0.upperBound) } },
            // BlueZ writes back what the controller has chosen.
            ExportedProperty(
                "TxPower", "n", get: { $0.content.txPowerDBm.map { .int16($0) } }, set: { $1.accept() }),
        ],
        methods: [
            ExportedMethod("Release") { advertisement, call, server in
                server.reply(to: call)
                advertisement.released()
            }
        ])
}
