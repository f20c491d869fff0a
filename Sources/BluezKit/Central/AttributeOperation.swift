import Foundation

/// What an app asked of a peripheral, in the order of the calls (RW-1).
struct AttributeOperation {
    let core: PeripheralCore
    let connectionID: ConnectionID
    let request: AttributeRequest
    /// Where BlueZ has what it is about; nil: that is the peripheral, or an attribute that is not valid any longer.
    let place: AttributeNumbers.Place?

    init(_ request: AttributeRequest, of core: PeripheralCore, connectionID: ConnectionID) {
        (self.request, self.core, self.connectionID) = (request, core, connectionID)
        place = request.attribute.flatMap { core.attributes[$0] }
    }

    /// BlueZ's path of what it is about; empty: that is the peripheral.
    var path: String { place?.path ?? "" }

    /// Posts an answer to it, unless the app has begun another connection meanwhile.
    func answer(_ answer: AttributeAnswer) {
        if core.request?.connectionID == connectionID { core.post(.answer(answer, connectionID)) }
    }

    /// Answers it with an error.
    func fail(_ error: any Error) {
        switch request {
        case .writeWithoutResponse(let data, _):
            Log.warning(from: path, "dropped a write without response: \(error.localizedDescription)")
            core.commandDone(data.count, connectionID: connectionID, isDropped: true)
        case .readRSSI: break  // asks for nothing that can fail so
        default: answer(.failed(request, AppError(error)))
        }
    }
}

extension AttributeRequest {
    /// Whether it needs the whole table.
    var waitsForServices: Bool {
        switch self {
        case .discoverServices, .discoverIncludedServices, .discoverCharacteristics, .discoverDescriptors: true
        default: false
        }
    }
}
