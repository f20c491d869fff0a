import BluezKitRestore
import Foundation

@testable import BluezKit

/// The core of a manager that has it in this process.
extension CBCentralManager {
    var core: CentralManagerCore {
        guard let core = backend as? CentralManagerCore else { preconditionFailure("the manager has a keeper") }
        return core
    }

    var session: Session { BluezKitTests.session(core.central.bus) }
}

extension CBPeripheral {
    var core: CentralManagerCore {
        guard let core = backend as? CentralManagerCore else { preconditionFailure("its manager has a keeper") }
        return core
    }
}

extension CBPeripheralManager {
    var core: PeripheralManagerCore {
        guard let core = backend as? PeripheralManagerCore else { preconditionFailure("the manager has a keeper") }
        return core
    }

    var session: Session { BluezKitTests.session(core.bus) }
}

/// Managers keep it.
private func session(_ bus: BlueZBus) -> Session {
    guard let session = bus.observer as? Session else { preconditionFailure("the session has ended") }
    return session
}
