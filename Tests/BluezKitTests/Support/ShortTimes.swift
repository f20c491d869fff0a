import BluezDBus
import BluezKitSimulator
import Foundation

@testable import BluezKit

/// Gives the sessions that come to be on a bus the times of ``BlueZTiming/short``, for as long as this is held.
/// `BLUEZKIT_REAL_TIMES=1` keeps BluezKit's own times everywhere.
final class ShortTimes: Sendable {
    static let areUsed = ProcessInfo.processInfo.environment["BLUEZKIT_REAL_TIMES"] != "1"

    private let address: BusAddress

    /// - Parameter change: What a test needs otherwise.
    init(on address: BusAddress, _ change: (inout BlueZTiming) -> Void = { _ in }) {
        self.address = address
        var timing = Self.areUsed ? BlueZTiming.short : BlueZTiming()
        change(&timing)
        Session.setTiming(timing, on: address)
    }

    deinit { Session.setTiming(nil, on: address) }
}

/// How long BluezKit waits in a simulated world.
enum WaitingTimes {
    /// ``BlueZTiming/short``.
    case short
    /// As in apps: for a test of such a time. It says why.
    case real
    /// As in apps, and bluetoothd's as well, by a clock of their own (``PassingTime``): for a test that would sit
    /// through such times. Where it looks again and again (``eventually``), they pass meanwhile.
    case virtual
}

/// A simulator's clock that passes whenever everything waits, for as long as this is held: what is awaited comes at
/// once.
final class PassingTime: Sendable {
    let clock = SimulatorClock()
    private let task = ProtectedBox<Task<Void, Never>?>(nil)

    init() { pass() }

    deinit { task.withLock { $0?.cancel() } }

    func pass() {
        task.withLock { task in
            task = Task { [clock] in
                // A run also ends when nothing is due for a while.
                while !Task.isCancelled {
                    try? await clock.run(within: .seconds(1e9)) { try await Task.sleep(for: .seconds(3600)) }
                }
            }
        }
    }

    /// Stands still until ``pass()``.
    func stop() async {
        let passing = task.withLock { $0 }
        passing?.cancel()
        await passing?.value
    }
}

extension BlueZTiming {
    /// A tenth of what a test would only sit through, as a simulated bluetoothd takes a tenth or less of its time
    /// (`SimulatorTiming.fast`). Whatever means a failure when it is over is as long as in apps, however busy the
    /// machine is: those are the deadlines, and the times that are not named here.
    static let short: BlueZTiming = {
        var times = BlueZTiming()
        times.daemon.reconnect = times.daemon.reconnect / 10
        times.daemon.longestReconnect = times.daemon.longestReconnect / 10
        // For a daemon that a test restarts at once, on a busy machine.
        times.adapter.grace = .milliseconds(500)
        times.adapter.staleLinks = times.adapter.staleLinks / 10
        times.adapter.poweredRetry = times.adapter.poweredRetry / 10
        times.scan.retry = times.scan.retry / 10
        times.scan.longestRetry = times.scan.longestRetry / 10
        times.connect.listening = times.connect.listening / 10
        times.connect.heardAttempt = times.connect.heardAttempt / 10
        // As in reality, shorter than the attempts of bluetoothd (`SimulatorTiming.connectTimeout`).
        times.connect.unheardAttempt = times.connect.unheardAttempt / 20
        times.connect.inRange = times.connect.inRange / 10
        times.connect.discoveryPause = times.connect.discoveryPause / 10
        times.connect.bondedPause = times.connect.bondedPause / 10
        times.link.settling = times.link.settling / 10
        times.link.backOff = times.link.backOff / 10
        times.link.longestBackOff = times.link.longestBackOff / 10
        // The simulated daemon says in one turn that links have ended and that Bluetooth is off. The bus may pause.
        times.link.heldLoss = .milliseconds(100)
        times.link.leaseRetry = times.link.leaseRetry / 10
        times.link.secondAttempt = times.link.secondAttempt / 10
        times.gatt.tableChange = times.gatt.tableChange / 5
        times.gatt.idleWriter = times.gatt.idleWriter / 10
        times.unanswered.pause = times.unanswered.pause / 60
        // It always comes, and later than 2 s where a machine stands still.
        times.pairing.bond = .seconds(10)
        // As long as the simulated daemon waits (``SimulatedWorld``). An app that answers takes milliseconds.
        times.server.request = .seconds(10)
        times.server.advertisingRetry = times.server.advertisingRetry / 10
        times.channel.acceptRetry = times.channel.acceptRetry / 10
        return times
    }()
}
