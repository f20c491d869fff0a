import Foundation

/// What an app asked of a peripheral, in the order of the calls (RW-1).
struct AttributeOperation {
    enum Kind {
        case discoverServices([CBUUID]?)
        case discoverIncludedServices([CBUUID]?, CBService)
        case discoverCharacteristics([CBUUID]?, CBService)
        case discoverDescriptors(CBCharacteristic)
        case read(CBCharacteristic)
        case readDescriptor(CBDescriptor)
        case write([UInt8], CBCharacteristic)
        case writeWithoutResponse([UInt8], CBCharacteristic)
        case writeDescriptor([UInt8], CBDescriptor)
        case setNotify(Bool, CBCharacteristic)
        /// As an earlier process had it; success is not reported.
        case resubscribe(CBCharacteristic)
        case readRSSI
    }

    let core: PeripheralCore
    let connectionID: UInt64
    let kind: Kind

    /// What it is about; nil: the peripheral.
    var attribute: CBAttribute? {
        switch kind {
        case .discoverServices, .readRSSI: nil
        case .discoverIncludedServices(_, let service), .discoverCharacteristics(_, let service): service
        case .readDescriptor(let descriptor), .writeDescriptor(_, let descriptor): descriptor
        case .discoverDescriptors(let characteristic), .read(let characteristic), .write(_, let characteristic),
            .writeWithoutResponse(_, let characteristic), .setNotify(_, let characteristic),
            .resubscribe(let characteristic):
            characteristic
        }
    }

    /// Posts an answer to it, unless the app has begun another connection meanwhile.
    func answer(_ body: @escaping (CBPeripheral, (any CBPeripheralDelegate)?) -> Void) {
        if core.request?.connectionID == connectionID { core.post(body) }
    }
}

extension AttributeOperation {
    /// Whether it needs the whole table.
    var waitsForServices: Bool {
        switch kind {
        case .discoverServices, .discoverIncludedServices, .discoverCharacteristics, .discoverDescriptors: true
        default: false
        }
    }

    /// Answers it with an error.
    func fail(_ error: any Error) {
        switch kind {
        case .discoverServices: answer { $1?.peripheral($0, didDiscoverServices: error) }
        case .discoverIncludedServices(_, let service):
            answer { $1?.peripheral($0, didDiscoverIncludedServicesFor: service, error: error) }
        case .discoverCharacteristics(_, let service):
            answer { $1?.peripheral($0, didDiscoverCharacteristicsFor: service, error: error) }
        case .discoverDescriptors(let characteristic):
            answer { $1?.peripheral($0, didDiscoverDescriptorsFor: characteristic, error: error) }
        case .read(let characteristic):
            answer { $1?.peripheral($0, didUpdateValueFor: characteristic, error: error) }
        case .readDescriptor(let descriptor):
            answer { $1?.peripheral($0, didUpdateValueFor: descriptor, error: error) }
        case .write(_, let characteristic):
            answer { $1?.peripheral($0, didWriteValueFor: characteristic, error: error) }
        case .writeDescriptor(_, let descriptor):
            answer { $1?.peripheral($0, didWriteValueFor: descriptor, error: error) }
        case .writeWithoutResponse(let data, let characteristic):
            let path = characteristic.objectPath
            Log.warning(from: path, "dropped a write without response: \(error.localizedDescription)")
            core.peripheral?.commandDone(data.count, connectionID: connectionID, isDropped: true)
        case .setNotify(_, let characteristic), .resubscribe(let characteristic):
            answer { peripheral, delegate in
                peripheral.updateSubscription(false, to: characteristic)
                characteristic.setNotifying(false)
                delegate?.peripheral(peripheral, didUpdateNotificationStateFor: characteristic, error: error)
            }
        case .readRSSI: break  // asks for nothing that can fail so
        }
    }
}
