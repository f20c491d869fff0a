/// One prepared write as bluetoothd stores it: a write that continues it is joined to it.
struct PreparedWrite {
    let attribute: Link.Attribute
    let offset: Int
    var value: [UInt8]
}

/// A pending indication. Only one at a time is sent.
struct Indication {
    let characteristic: GATTTable.Characteristic
    let value: [UInt8]
    /// The central has confirmed it, or no longer can.
    let confirmed: () -> Void
}

/// The individual steps of the Attribute Protocol, each one packet and its answer, as a central performs them.
extension Link {
    /// An attribute with a value.
    enum Attribute {
        case value(GATTTable.Characteristic)
        /// A descriptor, with the handle of its characteristic's value.
        case descriptor(GATTTable.Descriptor, UInt16)

        var served: ServedAttribute? {
            switch self {
            case .value(let characteristic): characteristic.served
            case .descriptor(let descriptor, _): descriptor.served
            }
        }

        func isSame(as other: Attribute) -> Bool {
            switch (self, other) {
            case (.value(let one), .value(let two)): one === two
            case (.descriptor(let one, _), .descriptor(let two, _)): one === two
            default: false
            }
        }

        var object: AnyObject {
            switch self {
            case .value(let characteristic): characteristic
            case .descriptor(let descriptor, _): descriptor
            }
        }
    }

    typealias Answer<T> = (Result<T, ATTFailure>) -> Void

    /// A Read or Read Blob Request.
    func readPart(_ attribute: Attribute, offset: Int, _ completion: @escaping Answer<[UInt8]>) {
        let most = Int(mtu) - 1
        guard isThere(attribute) else { return completion(.failure(ATTFailure(0x01))) }
        let cut: Answer<[UInt8]> = { completion($0.map { Array($0.prefix(most)) }) }
        guard let served = attribute.served else {
            switch attribute {
            case .value(let characteristic):
                guard isSecure(characteristic.definition.security, cut) else { return }
                return read(characteristic, offset: offset, completion: cut)
            case .descriptor(let descriptor, let handle):
                return read(descriptor, of: handle) { cut($0.map { Array($0.dropFirst(offset)) }) }
            }
        }
        request(
            serve: { [weak self] answer in
                guard let self else { return }
                served.read(on: self, offset: offset) { [weak self] result in
                    let length = (try? result.get().count) ?? 0
                    self?.model?.request(offset == 0 ? 3 : 5, response: 1 + min(length, most))
                    answer(result)
                }
            }, completion: cut)
    }

    /// A Write Request of any length.
    func writePart(_ value: [UInt8], to attribute: Attribute, _ completion: @escaping Answer<Void>) {
        guard isThere(attribute) else { return completion(.failure(ATTFailure(0x01))) }
        if case .descriptor(let descriptor, let handle) = attribute, descriptor.isConfiguration {
            return writeConfiguration(value, handle, completion)
        }
        guard let served = attribute.served else {
            switch attribute {
            case .value(let characteristic):
                guard isSecure(characteristic.definition.security, completion) else { return }
                return write(value, to: characteristic, offset: nil, completion: completion)
            case .descriptor(let descriptor, _): return write(value, to: descriptor, completion: completion)
            }
        }
        request(
            serve: { [weak self] answer in
                guard let self else { return }
                model?.write(value.count)
                guard forwardsAny || value.count <= served.longestWrite else {
                    return answer(.failure(.invalidLength))
                }
                served.write(value, on: self, offset: 0, completion: answer)
            }, completion: completion)
    }

    private func writeConfiguration(_ value: [UInt8], _ handle: UInt16, _ completion: @escaping Answer<Void>) {
        let characteristic = peripheral.table.services.lazy.flatMap(\.characteristics).first { $0.handle + 1 == handle }
        guard let characteristic else { return completion(.failure(ATTFailure(0x01))) }
        guard value.count == 2 else { return completion(.failure(.invalidLength)) }
        configure(characteristic, UInt16(value[0]) | UInt16(value[1]) << 8, completion: completion)
    }

    /// A Write Command.
    func commandServed(_ value: [UInt8], _ characteristic: GATTTable.Characteristic) {
        guard isThere(.value(characteristic)), let served = characteristic.served,
            forwardsAny || value.count <= served.longestWrite
        else { return }
        served.write(value, on: self, offset: 0) { _ in }
    }

    /// A Prepare Write Request. The limits are those of bluetoothd 5.66.
    func prepare(_ value: [UInt8], for attribute: Attribute, offset: Int, _ completion: @escaping Answer<Void>) {
        guard isThere(attribute) else { return completion(.failure(ATTFailure(0x01))) }
        request(
            serve: { [weak self] answer in
                guard let self else { return }
                model?.request(value.count + 5, response: value.count + 5)
                guard forwardsAny || offset <= 512 else { return answer(.failure(.invalidOffset)) }
                guard forwardsAny || value.count + offset <= attribute.served?.longestPreparedWrite ?? 512 else {
                    return answer(.failure(.invalidLength))
                }
                guard prepared.count < 30 else { return answer(.failure(ATTFailure(0x09))) }  // Prepare Queue Full
                let keep: Answer<Void> = { [weak self] result in
                    if case .success = result {
                        self?.keep(PreparedWrite(attribute: attribute, offset: offset, value: value))
                    }
                    answer(result)
                }
                guard let served = attribute.served else { return keep(.success(())) }
                served.authorize(on: self, completion: keep)
            }, completion: completion)
    }

    private func keep(_ write: PreparedWrite) {
        if let last = prepared.last, last.attribute.isSame(as: write.attribute),
            last.offset + last.value.count == write.offset
        {
            prepared[prepared.count - 1].value += write.value
        } else {
            prepared.append(write)
        }
    }

    /// An Execute Write Request.
    func execute(_ isCommit: Bool, _ completion: @escaping Answer<Void>) {
        request(
            serve: { [weak self] answer in
                guard let self else { return }
                model?.request(2, response: 1)
                let writes = prepared
                prepared = []
                guard isCommit else { return answer(.success(())) }
                // More than one is a reliable session, which every attribute in it must allow.
                if writes.count > 1, !writes.allSatisfy({ $0.attribute.served?.isReliable ?? true }) {
                    return answer(.failure(.requestNotSupported))
                }
                executeNext(writes[...], answer)
            }, completion: completion)
    }

    private func executeNext(_ writes: ArraySlice<PreparedWrite>, _ answer: @escaping Answer<Void>) {
        guard let write = writes.first else { return answer(.success(())) }
        let next: Answer<Void> = { [weak self] result in
            guard case .success = result else { return answer(result) }
            self?.executeNext(writes.dropFirst(), answer)
        }
        guard isThere(write.attribute) else { return next(.failure(ATTFailure(0x01))) }
        if let served = write.attribute.served {
            return served.write(write.value, on: self, offset: write.offset, completion: next)
        }
        switch write.attribute {
        case .value(let characteristic):
            next(Self.answerWrite(write.value, characteristic, offset: write.offset, peripheral, flag: .write))
        case .descriptor(let descriptor, _): next(Self.answerWrite(write.value, descriptor))
        }
    }

    private var forwardsAny: Bool { peripheral.simulator?.optionsState.forwardsOutOfRangeWrites == true }

    private func isThere(_ attribute: Attribute) -> Bool {
        peripheral.table.services.contains { service in
            service.characteristics.contains { characteristic in
                characteristic === attribute.object || characteristic.descriptors.contains { $0 === attribute.object }
            }
        }
    }

    private func isSecure<T>(_ security: VirtualSecurity, _ completion: @escaping Answer<T>) -> Bool {
        switch security {
        case .encrypted where !isEncrypted: completion(.failure(.insufficientEncryption))
        case .authenticated where !isEncrypted: completion(.failure(.insufficientAuthentication))
        default: return true
        }
        return false
    }

    // MARK: Client procedures of bluetoothd

    /// Continues reading with Read Blob Requests as long as answers are full.
    func readServed(
        _ attribute: Attribute, _ offset: Int, _ before: [UInt8], _ completion: @escaping Answer<[UInt8]>
    ) {
        readPart(attribute, offset: offset + before.count) { [weak self] result in
            switch result {
            case .success(let part) where part.count == Int(self?.mtu ?? 0) - 1 && before.count + part.count < 512:
                self?.readServed(attribute, offset, before + part, completion)
            case .success(let part): completion(.success(Array((before + part).prefix(512))))
            // The value ended with the last full answer.
            case .failure(let failure) where !before.isEmpty && [0x07, 0x0B].contains(failure.code):
                completion(.success(before))
            case .failure(let failure): completion(.failure(failure))
            }
        }
    }

    /// Writes a value; if it does not fit into one request, or has an offset, with prepared writes.
    func writeServed(
        _ value: [UInt8], _ attribute: Attribute, _ offset: Int?, _ completion: @escaping Answer<Void>
    ) {
        if offset == nil, value.count <= Int(mtu) - 3 { return writePart(value, to: attribute, completion) }
        prepareNext(value[...], attribute, offset ?? 0, completion)
    }

    private func prepareNext(
        _ rest: ArraySlice<UInt8>, _ attribute: Attribute, _ offset: Int, _ completion: @escaping Answer<Void>
    ) {
        let part = rest.prefix(Int(mtu) - 5)
        prepare(Array(part), for: attribute, offset: offset) { [weak self] result in
            guard let self else { return }
            if case .failure(let failure) = result {
                return execute(false) { _ in completion(.failure(failure)) }
            }
            guard part.count < rest.count else { return execute(true, completion) }
            prepareNext(rest.dropFirst(part.count), attribute, offset + part.count, completion)
        }
    }

    // MARK: Indications

    /// Sends an indication when the previous ones have been confirmed.
    func indicate(_ indication: Indication) {
        indications.append(indication)
        if indications.count == 1 { indicateNext() }
    }

    private func indicateNext() {
        guard isUp, let indication = indications.first else { return }
        model?.indicate(indication.value.count)
        central?.received(indication.value, of: indication.characteristic) { [weak self] in
            guard let self, isUp, !indications.isEmpty else { return }
            indications.removeFirst()
            indication.confirmed()
            indicateNext()
        }
    }
}
