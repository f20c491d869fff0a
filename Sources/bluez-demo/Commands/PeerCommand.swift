import BluezKit
import Foundation

/// Shared by the commands that look for one peer, and look again when its link ends.
class PeerCommand: CentralCommand {
    /// How long nothing may happen on a link, in seconds.
    private static let silenceLimit = ManagerCommand.silence(30)

    /// Kept, because a peripheral that is released is disconnected.
    var peer: CBPeripheral?
    /// Incremented with every event, so that a time limit can detect progress.
    var events = 0

    /// Why this command ends the link.
    var ownReason: String?
    /// The number of the last watch over a silent peer: only that one continues.
    private var watch = 0

    // MARK: Overridden by subclasses

    /// What is discovered on a peer.
    var service: CBUUID { preconditionFailure("a subclass says which") }
    /// Why a silent link is left.
    var silence: String { "Nothing has moved" }
    /// How long it waits before it looks again, in seconds.
    var pause: Double { 1 }
    func scan(_ central: CBCentralManager) { central.scanForPeripherals(withServices: [service]) }
    /// The link has ended: nothing of it is true any more.
    func forget() { peer = nil }
    /// The link has ended.
    /// - Returns: Whether to look for a peer again.
    func peerIsGone() -> Bool { true }

    // MARK: Connecting

    /// - Parameter peripheral: Its delegate is the subclass.
    func connect(_ peripheral: CBPeripheral, _ advertisement: Advertisement) {
        central?.stopScan()
        output.report(.discovered(advertisement))
        peer = peripheral
        output.report(.connecting(peripheral.identifier, name: peripheral.name))
        central?.connect(peripheral)
        limitSilence()
    }

    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        guard ending == nil else { return }
        events += 1
        output.report(.connected(peripheral.identifier, name: peripheral.name))
        // Not only in `connect(_:_:)`: a peer that was restored was connected to by an earlier process.
        limitSilence()
        guard ending == nil else { return }  // the output is not read any longer
        peripheral.discoverServices([service])
    }

    override func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        guard ending == nil else { return quit() }
        output.report(.disconnected(peripheral.identifier, reason: error?.sentence ?? "no reason given"))
        lookAgain("The connection failed", error)
    }

    override func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        output.report(.disconnected(peripheral.identifier, reason: error?.sentence ?? ownReason))
        ownReason = nil
        guard ending == nil else { return quit() }
        if peerIsGone() { lookAgain("The link was lost", error) }
    }

    private func lookAgain(_ what: String, _ error: (any Error)?) {
        output.say(Line(what + (error.map { " (\($0.sentence))" } ?? "") + ". Looking again.", .yellow))
        forget()
        after(pause) { [self] _ in
            if ending == nil, peer == nil, let central, central.state == .poweredOn { scan(central) }
        }
    }

    /// Leaves a peer that is silent from now on.
    func limitSilence() {
        watch += 1
        look(watch)
    }

    private func look(_ number: Int) {
        let (before, peripheral) = (events, peer)
        after(Self.silenceLimit) { [self] _ in
            guard ending == nil, number == watch, let peripheral, peer === peripheral else { return }
            guard events == before else { return look(number) }
            let reason = "\(silence) for \(Int(Self.silenceLimit)) s"
            output.say(Line(reason + ".", .yellow))
            ownReason = reason
            central?.cancelPeripheralConnection(peripheral)
        }
    }
}
