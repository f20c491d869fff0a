import BluezKitRestore
import Foundation
import Testing

@testable import BluezKit

/// Whether each manager has a keeper, in the same process.
let isHosted = ProcessInfo.processInfo.environment["BLUEZKIT_BORDER"] == "keeper"

/// Of a test that looks into the core of a manager.
let seesCore: ConditionTrait = .enabled(if: !isHosted, "the core is in a keeper")

/// The core of a manager that has it in this process.
extension CBCentralManager {
    var core: CentralManagerCore {
        guard let core = backend as? CentralManagerCore else { preconditionFailure("the manager has a keeper") }
        return core
    }

    var session: Session {
        if let kept = backend as? KeptManager<CentralSide> { return .shared(kept.hello.session) }
        return BluezKitTests.session(core.central.bus)
    }
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
