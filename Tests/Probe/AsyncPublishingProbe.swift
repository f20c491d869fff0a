import CoreBluetooth
import CoreBluetoothAsync
import Foundation

/// The app as a peripheral (PublishingProbe.swift), with CoreBluetoothAsync.
@MainActor final class AsyncPublishingProbe {
    private let arguments = Arguments()
    private var manager: PeripheralManager?
    private var services: [PublishedService] = []
    /// Those that take the place of restored ones of an earlier version.
    private var new: [CBMutableService] = []
    private var following: Task<Void, Never>?
    private var channels: [CoreBluetoothAsync.L2CAPChannel] = []
    private var isRevised: Bool { arguments.has("--revised") }

    func run(_ commands: AsyncStream<String>) {
        var options = probeOptions(arguments)
        options[CBPeripheralManagerOptionRestoreIdentifierKey] = arguments["--publish"]
        let manager = PeripheralManager(
            options: options, restoring: isRevised ? PublishingProbe.makeServices(true) : [])
        self.manager = manager
        var states = manager.states.makeAsyncIterator()
        let (restored, requests) = (manager.restoredState, manager.requests)
        let (subscriptions, opened) = (manager.subscriptions, manager.openedChannels)
        following = Task {
            for await state in restored { await restore(state) }
            while let state = await states.next() {
                guard state != .unknown else { continue }
                tell("state", state, await summary())
                guard state == .poweredOn else { continue }
                for service in new { await add(service) }
                new = []
            }
        }
        Task { for await request in requests { answer(request) } }
        Task {
            for await change in subscriptions {
                tell(
                    change.isSubscribed ? "subscribed" : "unsubscribed", number(change.characteristic.uuid),
                    change.central.identifier, "same=\(change.characteristic == dynamic)")
            }
        }
        Task {
            for await channel in opened {
                tell("channel", "psm=\(channel.psm)", "error=none")
                channels.append(channel)
            }
        }
        Task { for await line in commands { await perform(line) } }
    }

    private func perform(_ line: String) async {
        tell("begin", line)
        let words = line.split(separator: " ").map(String.init)
        switch words[0] {
        case "publish": for service in PublishingProbe.makeServices(isRevised) { await add(service) }
        case "unpublish":
            await manager?.removeAllServices()
            services = []
        case "advertise":
            let result = await attempt {
                try await self.manager?.startAdvertising([
                    CBAdvertisementDataLocalNameKey: words[1],
                    CBAdvertisementDataServiceUUIDsKey: [PublishingProbe.uuid("0100")],
                ])
            }
            tell("advertising", result)
        case "stopadvertise": await manager?.stopAdvertising()
        case "channel":
            var psm: CBL2CAPPSM = 0
            let result = await attempt { psm = try await self.manager?.publishL2CAPChannel(withEncryption: false) ?? 0 }
            tell("published", "psm=\(psm)", result)
        case "update":
            guard let dynamic else { break }
            let result = await attempt {
                try await self.manager?.updateValue(PublishingProbe.data(words[1]), for: dynamic)
            }
            tell("updated", result == "error=none")
        case "quit": exit(0)
        case "release":
            (manager, services) = (nil, [])
            await following?.value  // it has ended with it
        case "tell": tell("now", await summary())
        default: tell("unknown", line)
        }
        tell("end", line)
    }

    private func add(_ service: sending CBMutableService) async {
        let number = number(service.uuid)
        do {
            guard let published = try await manager?.add(service) else { return }
            services.append(published)
            tell("added", number, "error=none")
        } catch { tell("added", number, "error=\((error as NSError).code)") }
    }

    private func attempt(_ body: () async throws -> Void) async -> String {
        do {
            try await body()
            return "error=none"
        } catch { return "error=\((error as NSError).code)" }
    }

    private var dynamic: PublishedCharacteristic? {
        services.flatMap(\.characteristics).first { $0.uuid == PublishingProbe.uuid("0111") }
    }

    // MARK: Output

    /// `advertising=true 0101[0112(0)];0100[0110(0),0111(1)]`: how many are subscribed.
    private func summary() async -> String {
        var texts: [String] = []
        for service in services {
            var characteristics: [String] = []
            for characteristic in service.characteristics {
                let count = await manager?.subscribedCentrals(of: characteristic).count ?? 0
                characteristics.append("\(number(characteristic.uuid))(\(count))")
            }
            texts.append("\(number(service.uuid))[\(characteristics.joined(separator: ","))]")
        }
        return "advertising=\(await manager?.isAdvertising == true) "
            + (texts.isEmpty ? "-" : texts.joined(separator: ";"))
    }

    private func number(_ uuid: CBUUID) -> String { String(uuid.uuidString.dropFirst(4).prefix(4)) }

    // MARK: What happens

    private func restore(_ state: RestoredPeripheralState) async {
        services = state.services
        let uuids = state.advertisementData?.serviceUUIDs.map(number).joined(separator: ",")
        tell("restored", "name=\(state.advertisementData?.localName ?? "-")", "uuids=\(uuids ?? "-")", await summary())
        if !state.channels.isEmpty {
            tell("restoredchannels", state.channels.map { String($0.psm) }.joined(separator: ","))
        }
        guard !isRevised else { return await revise(state) }
        for channel in state.channels {
            Task {
                guard let psm = try? await manager?.psm(of: channel) else { return }
                tell("published", "psm=\(psm)", "error=none")
            }
        }
    }

    /// Publishes what was not restored because it was another, and withdraws channels that anyone can open.
    private func revise(_ state: RestoredPeripheralState) async {
        for channel in state.channels where !channel.isEncryptionRequired {
            try? await manager?.unpublishL2CAPChannel(channel.psm)
        }
        await manager?.stopAdvertising()
        new = PublishingProbe.makeServices(true).filter { service in !services.contains { $0.uuid == service.uuid } }
    }

    private func answer(_ request: ATTRequest) {
        switch request.kind {
        case .read:
            tell("read", number(request.characteristic.uuid), "same=\(request.characteristic == dynamic)")
            request.respond(with: Data("read".utf8))
        case .write(let parts):
            for part in parts {
                tell(
                    "wrote", number(part.characteristic.uuid), part.value.map { String(format: "%02x", $0) }.joined(),
                    "same=\(part.characteristic == dynamic)")
            }
            request.respond()
        }
    }
}
