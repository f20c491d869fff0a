import CoreBluetooth

/// What is asked of a peripheral. Attributes are named by their numbers.
enum Operation: Sendable {
    case discoverServices([Data]?)
    case discoverIncludedServices([Data]?, UInt64)
    case discoverCharacteristics([Data]?, UInt64)
    case discoverDescriptors(UInt64)
    case read(UInt64)
    case write(Data, UInt64)
    case writeWithoutResponse(Data, UInt64)
    case readDescriptor(UInt64)
    case writeDescriptor(Data, UInt64)
    case setNotify(Bool, UInt64)
    /// Subscribes or unsubscribes, if consumers of values have come or gone.
    case followConsumers(UInt64)
    case readRSSI
    case openChannel(CBL2CAPPSM)

    /// The attribute that it is about.
    var attribute: UInt64? {
        switch self {
        case .discoverIncludedServices(_, let number), .discoverCharacteristics(_, let number),
            .discoverDescriptors(let number), .read(let number), .write(_, let number),
            .writeWithoutResponse(_, let number), .readDescriptor(let number), .writeDescriptor(_, let number),
            .setNotify(_, let number), .followConsumers(let number):
            number
        case .discoverServices, .readRSSI, .openChannel: nil
        }
    }

    /// Which callback answers it.
    var callback: Callback {
        switch self {
        case .discoverServices: .services
        case .discoverIncludedServices: .includedServices
        case .discoverCharacteristics: .characteristics
        case .discoverDescriptors: .descriptors
        case .read: .value
        case .readDescriptor: .descriptorValue
        case .write: .written
        case .writeWithoutResponse: .none
        case .writeDescriptor: .descriptorWritten
        case .setNotify, .followConsumers: .notificationState
        case .readRSSI: .rssi
        case .openChannel: .channel
        }
    }

    enum Callback {
        case none, services, includedServices, characteristics, descriptors, value, descriptorValue
        case written, descriptorWritten, notificationState, rssi, channel
    }
}

/// What an operation returns.
enum Answer: Sendable {
    case done
    case services([Service])
    case characteristics([Characteristic])
    case descriptors([Descriptor])
    case data(Data)
    case value(Descriptor.Value)
    case rssi(Int)
    case channel(L2CAPChannel)
}
