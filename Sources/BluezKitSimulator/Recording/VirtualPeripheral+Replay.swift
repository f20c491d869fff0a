/// A peripheral that does what a real device was recorded to do.
extension VirtualPeripheral {
    /// The recorded device: it advertises what it advertised, has its table and values, and sends its notifications.
    ///
    /// Its advertisements are repeated, in their order and, with their signal strengths, at their times; if there is
    /// none, it advertises its name and its primary services. The notifications of a characteristic begin with the
    /// first, when a central has subscribed; later ones follow as they did. One that came after a recorded write waits
    /// until the app has written to the same characteristic. When all were sent, a new subscription repeats them.
    ///
    /// Reads return the recorded values, or what has been written since; what the device refused, it refuses again.
    /// Everything else is answered by a rule, and counted in ``deviations``.
    /// - Parameters:
    ///   - recording: What to replay.
    ///   - address: Another address than the recorded one, such as `F0:00:00:00:00:01`.
    ///   - pace: How fast.
    ///   - key: The name with which its events begin; nil: made of its address.
    public convenience init(
        recording: Recording, address: String? = nil, pace: ReplayPace = .recorded, key: String? = nil
    ) {
        let replay = RecordingReplay(recording, pace)
        let names = recording.characteristicNames
        let order = recording.serviceOrder
        var services = order.map { recording.services[$0].virtual(names[$0], replay) }
        if let name = recording.name, !services.contains(where: { $0.uuid == UUIDText.full("1800") }) {
            services.append(VirtualService("1800", [VirtualCharacteristic("2A00", .read, value: Array(name.utf8))]))
        }
        self.init(
            address ?? recording.address ?? "F0:5E:00:00:00:01",
            recording.advertisements.first?.content ?? recording.likelyAdvertisement,
            services: services, addressType: recording.addressType, key: key)
        self.replay = replay
        if let mtu = recording.mtu { offeredMTU = mtu }
        // The table may begin with a service of its own.
        let made = table.services.suffix(services.count)
        var characteristics: [String: GATTTable.Characteristic] = [:]
        for (place, service) in zip(order, made) {
            for (name, characteristic) in zip(names[place], service.characteristics) {
                characteristics[name] = characteristic
            }
        }
        replay.start(self, characteristics)
    }

    /// Sends the next notification of the recording now, if the pace is ``ReplayPace/stepwise``. It does not wait for
    /// recorded writes.
    /// - Returns: Whether it was sent. It was not if none is left, or no central is subscribed to its characteristic.
    @discardableResult
    public func replayNext() -> Bool { sync { replay?.step() ?? false } }

    /// What the app has asked that the recording does not have, in order: the first 1,000. Each is also an event, such
    /// as `KEY deviates write 180D/2A39 01`.
    public var deviations: [ReplayDeviation] { sync { replay?.deviations ?? [] } }

    /// The number of all deviations.
    public var deviationCount: Int { sync { replay?.deviationCount ?? 0 } }
}

extension Recording {
    /// The services, so that each comes after those that it includes; otherwise in their order.
    fileprivate var serviceOrder: [Int] {
        var order: [Int] = [], seen: Set<Int> = []
        let places = Dictionary(services.enumerated().map { ($1.uuid, $0) }, uniquingKeysWith: { first, _ in first })
        // Each with whether those that it includes have been visited. A list, as a chain of them may be long.
        for start in services.indices {
            var open = [(start, false)]
            while let (index, isReady) = open.popLast() {
                if isReady {
                    order.append(index)
                } else if seen.insert(index).inserted {
                    open.append((index, true))
                    open += services[index].includes.reversed().compactMap { places[$0] }.map { ($0, false) }
                }
            }
        }
        return order
    }

    /// What the device may have advertised, if that is not known.
    fileprivate var likelyAdvertisement: VirtualAdvertisement {
        let hidden: Set = [UUIDText.full("1800"), UUIDText.full("1801")]
        let primary = services.filter { $0.isPrimary && !hidden.contains($0.uuid) }.map(\.uuid)
        // A list of UUIDs has at most 254 bytes.
        return VirtualAdvertisement(localName: name, serviceUUIDs: Array(primary.prefix(15)))
    }
}

extension Recording.Service {
    fileprivate func virtual(_ names: [String], _ replay: RecordingReplay) -> VirtualService {
        let characteristics = zip(characteristics, names).map { recorded, name in
            var characteristic = VirtualCharacteristic(recorded.uuid, recorded.flags, value: recorded.value ?? [])
            // Weak, because it refers to what is made of them.
            characteristic.write = { [weak replay] in replay?.write($0, name) }
            if recorded.value == nil {
                characteristic.read = { [weak replay, error = recorded.error] in
                    try replay?.unknownValue(name, error) ?? []
                }
            }
            characteristic.descriptors = recorded.descriptors.map { recorded in
                // Nothing is subscribed to at first.
                if recorded.uuid == UUIDText.full("2902") {
                    return VirtualDescriptor("2902", value: [0, 0], isWritable: true)
                }
                var descriptor = VirtualDescriptor(recorded.uuid, value: recorded.value ?? [])
                if recorded.value == nil {
                    let name = name + "/" + UUIDText.shortest(recorded.uuid)
                    descriptor.refusal = { [weak replay, error = recorded.error] in
                        replay?.refusal(of: name, error) ?? .unlikely
                    }
                }
                return descriptor
            }
            return characteristic
        }
        return VirtualService(uuid, isPrimary: isPrimary, includes: includes, characteristics)
    }
}
