import DBus
import Dispatch
import Foundation

/// An advertisement on the bus, for one attempt to get it on air. Confined to the bus queue.
final class PublishedAdvertisement {
    let content: Advertisement
    let path: ObjectPath
    let adapter: ObjectPath
    let attempt: Int
    /// Whose it is. Calls about it, which BlueZ may never answer, keep nothing of the app.
    private(set) weak var core: PublisherCore?

    init(_ content: Advertisement, _ path: ObjectPath, _ adapter: ObjectPath, attempt: Int, core: PublisherCore) {
        (self.content, self.path, self.adapter, self.attempt, self.core) = (content, path, adapter, attempt, core)
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
                advertisement.core?.session.released(advertisement)
            }
        ])
}

/// Advertisements of this process.
extension Session {
    /// - Parameter isResumed: The app did not ask, and is told nothing.
    func startAdvertising(_ content: Advertisement, _ core: PublisherCore, token: UInt64, isResumed: Bool) {
        guard adapter.state == .poweredOn, core.manager?.isCurrent(token) == true else { return }
        if core.advertiser.phase == .off {
            (core.advertisement, core.advertisingToken) = (content, token)
            core.isResumingAdvertising = isResumed
        }
        if !content.omittedServices.isEmpty, core.advertiser.phase == .off {
            let names = content.omittedServices.map(\.uuidString).joined(separator: ", ")
            Log.warning(
                "not advertised, for want of room: \(names) (\(content.size) of \(Advertisement.room) bytes are used)")
        }
        apply(core.advertiser.start(), to: core)
    }

    func stopAdvertising(_ core: PublisherCore) { apply(core.advertiser.stop(), to: core) }

    private func apply(_ actions: [AdvertiserStateMachine.Action], to core: PublisherCore, error: (any Error)? = nil) {
        for action in actions {
            switch action {
            case .register(let attempt): register(attempt, of: core)
            case .unregister(let attempt): unregister(attempt, of: core)
            case .confirm: answer(core, nil, isOnAir: true)
            case .fail: answer(core, error, isOnAir: false)
            case .refuse: answer(core, CBError(.alreadyAdvertising), isOnAir: true)
            }
        }
    }

    private func answer(_ core: PublisherCore, _ error: (any Error)?, isOnAir: Bool) {
        let token = core.advertisingToken
        let isResumed = core.isResumingAdvertising
        core.isResumingAdvertising = false
        if isResumed, let error { Log.warning("what was advertised cannot be advertised again: \(error)") }
        core.post { manager in
            guard manager.setAdvertising(isOnAir, token), !isResumed else { return }
            manager.delegate?.peripheralManagerDidStartAdvertising(manager, error: error)
        }
    }

    // MARK: BlueZ

    private func register(_ attempt: Int, of core: PublisherCore) {
        guard let bus, let server = blueZ.exportObjects(), let adapterPath, let content = core.advertisement else {
            return
        }
        let published = PublishedAdvertisement(content, blueZ.newPath("adv"), adapterPath, attempt: attempt, core: core)
        core.onAir[attempt] = published
        server.add(PublishedAdvertisement.interface, to: published.path, owner: published)
        submit(published, BlueZProxy(bus: bus, path: adapterPath, interface: BlueZ.advertisingManager))
    }

    /// BlueZ gives a new adapter its advertising manager some time after it has said that it is powered: until `deadline`,
    /// none is one that is yet to come.
    private func submit(
        _ published: PublishedAdvertisement, _ proxy: BlueZProxy, until deadline: DispatchTime = .now() + 3
    ) {
        proxy.getAll { [weak self] result in
            if let error = Self.lackOfInstances(in: result) {
                self?.finish(published, error)
                return
            }
            proxy.registerAdvertisement(published.path) { [weak self] result in
                guard let self else { return }
                if let name = result.failure?.name, BlueZErrorName.meansUnknownObject(name), .now() < deadline,
                    published.core?.advertiser.isStarting(published.attempt) == true
                {
                    return blueZ.after(blueZ.timing.advertisingRetry) { [weak self] in
                        self?.submit(published, proxy, until: deadline)
                    }
                }
                let error = result.failure.map {
                    coreBluetoothError(name: $0.name, message: $0.message, context: .advertise, isBonded: false)
                }
                finish(published, error)
            }
        }
    }

    private func finish(_ published: PublishedAdvertisement, _ error: (any Error)?) {
        if error != nil { unexport(published) }
        guard let core = published.core else { return withdraw(published) }  // nobody wants it any more
        apply(core.advertiser.replied(published.attempt, error == nil), to: core, error: error)
    }

    /// An error that says how many there can be. Should BlueZ not tell, it refuses by itself.
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

    private func unregister(_ attempt: Int, of core: PublisherCore) {
        if let published = core.onAir[attempt] { withdraw(published) }
    }

    private func withdraw(_ published: PublishedAdvertisement) {
        guard let bus, bus.owner(of: BlueZ.busName) != nil else { return unexport(published) }
        let proxy = BlueZProxy(bus: bus, path: published.adapter, interface: BlueZ.advertisingManager)
        proxy.unregisterAdvertisement(published.path) { [weak self] _ in self?.unexport(published) }
    }

    private func unexport(_ published: PublishedAdvertisement) {
        published.core?.onAir[published.attempt] = nil
        server?.remove(published.path)
    }

    /// BlueZ has taken it off the air by itself: the adapter goes, or the daemon ends.
    func released(_ published: PublishedAdvertisement) {
        guard let core = published.core else { return }
        unexport(published)
        guard published.attempt == core.advertiser.attempt, core.advertiser.phase == .on else { return }
        core.advertiser.lost()
        let token = core.advertisingToken
        core.post { manager in manager.advertisingReleased(token) }
    }
}
