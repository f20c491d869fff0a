import BluezDBus
import Dispatch
import Foundation

/// Makes the sockets of L2CAP channels: the kernel's, or those of a simulator, which passes them over the bus (its
/// adapters have the property `SimulatedSockets`). Confined to the bus queue.
final class L2CAPSockets {
    private let bus: BlueZBus
    private let adapter: AdapterController

    init(_ bus: BlueZBus, _ adapter: AdapterController) { (self.bus, self.adapter) = (bus, adapter) }

    /// The interface of a simulator's adapters.
    private static let simulator = "org.bluezkit.Simulator.L2CAP1"

    /// How many channels may wait to be accepted: those of two centrals, which have 64 each at most.
    private static let backlog: Int32 = 128

    // MARK: Connecting

    /// A channel that is being opened; ``cancel()`` ends that without an answer.
    final class Opening {
        fileprivate var source: (any DispatchSourceWrite)?
        fileprivate var answer: ((Result<ChannelSocket, SocketFailure>) -> Void)?

        fileprivate func finish(_ result: Result<ChannelSocket, SocketFailure>) {
            let answer = answer
            cancel()
            answer?(result)
        }

        func cancel() {
            answer = nil
            source?.cancel()
            source = nil
        }
    }

    /// Opens a channel on a link that is up. Without one the kernel would make a link of its own.
    /// - Parameters:
    ///   - device: The device as BlueZ has it now.
    ///   - answer: Called later, once.
    func open(
        to device: DeviceIdentity, at path: ObjectPath, psm: CBL2CAPPSM,
        answer: @escaping (Result<ChannelSocket, SocketFailure>) -> Void
    ) -> Opening {
        bus.assertOnQueue()
        let opening = Opening()
        opening.answer = answer
        if adapter.hasSimulatedSockets {
            openSimulated(opening, path, psm)
        } else {
            do throws(SocketFailure) { try open(opening, device, psm) } catch {
                fail(opening, error)
            }
        }
        return opening
    }

    private func fail(_ opening: Opening, _ failure: SocketFailure) {
        bus.run { [opening = Confined(opening)] in opening.value.finish(.failure(failure)) }
    }

    private func open(
        _ opening: Opening, _ device: DeviceIdentity, _ psm: CBL2CAPPSM
    ) throws(SocketFailure) {
        guard let own = adapter.identity else { throw SocketFailure(.connect, EHOSTDOWN) }
        let descriptor = try BluetoothSocket.make(at: own)
        do throws(SocketFailure) {
            try BluetoothSocket.connect(descriptor, to: device, psm: psm)
        } catch {
            close(descriptor)
            throw error
        }
        let source = DispatchSource.makeWriteSource(fileDescriptor: descriptor, queue: bus.queue)
        source.setEventHandler { [weak self, weak opening] in
            guard let self, let opening else { return }
            let code = BluetoothSocket.pendingError(descriptor)
            guard code == 0 else {
                opening.finish(.failure(SocketFailure(.connect, code)))
                return bus.flush()
            }
            // The source must let go of the descriptor before any other code may close it: it gets another one.
            let own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
            opening.finish(
                own >= 0
                    ? .success(ChannelSocket(descriptor: own))
                    : .failure(SocketFailure(.make, errno)))
            bus.flush()
        }
        source.setCancelHandler { close(descriptor) }
        opening.source = source
        source.activate()
    }

    private func openSimulated(_ opening: Opening, _ path: ObjectPath, _ psm: CBL2CAPPSM) {
        guard let adapterPath = adapter.path, let proxy = bus.proxy(adapterPath, Self.simulator) else {
            return fail(opening, SocketFailure(.connect, EHOSTDOWN))
        }
        proxy.connectChannel(to: path, psm: psm) { [weak opening] result in
            opening?.finish(
                Self.descriptor(in: result, .connect).map { ChannelSocket(descriptor: $0.descriptor) })
        }
    }

    private static func descriptor(
        in result: Result<Message, BusError>, _ step: SocketFailure.Step
    ) -> Result<(descriptor: Int32, psm: CBL2CAPPSM?), SocketFailure> {
        do throws(BusError) {
            var reader = try result.get().reader
            let descriptor = try reader.readFileDescriptor()
            return .success((descriptor, try? reader.readUInt16()))
        } catch { return .failure(SocketFailure(step, error)) }
    }

    // MARK: Listening

    /// Listens for channels.
    /// - Parameters:
    ///   - psm: The wanted one; nil: any that is free.
    ///   - answer: Called later, once.
    func listen(
        psm: CBL2CAPPSM?, isEncrypted: Bool,
        answer: @escaping (Result<ChannelListener, SocketFailure>) -> Void
    ) {
        bus.assertOnQueue()
        guard adapter.hasSimulatedSockets else {
            // Two of them: a tuple crashes the compiler of Swift 6.0.3.
            let result = Confined(Result { () throws(SocketFailure) in try listen(psm, isEncrypted) })
            let confined = Confined(answer)
            return bus.run { confined.value(result.value) }
        }
        guard let adapterPath = adapter.path, let proxy = bus.proxy(adapterPath, Self.simulator) else {
            let confined = Confined(answer)
            return bus.run { confined.value(.failure(SocketFailure(.listen, EHOSTDOWN))) }
        }
        proxy.listenForChannels(psm: psm ?? 0, isEncrypted: isEncrypted) { [bus] result in
            switch Self.descriptor(in: result, .listen) {
            case .success(let listening):  // a tuple pattern crashes the compiler of Swift 6.0.3
                let (descriptor, psm) = listening
                answer(
                    .success(
                        ChannelListener(descriptor: descriptor, psm: psm ?? 0, isEncrypted: isEncrypted, on: bus)))
            case .failure(let failure): answer(.failure(failure))
            }
        }
    }

    private func listen(_ psm: CBL2CAPPSM?, _ isEncrypted: Bool) throws(SocketFailure) -> ChannelListener {
        guard let own = adapter.identity else { throw SocketFailure(.listen, EHOSTDOWN) }
        let descriptor = try BluetoothSocket.make(at: own, psm: psm ?? 0)
        do throws(SocketFailure) {
            let chosen = try BluetoothSocket.listen(descriptor, isEncrypted: isEncrypted, backlog: Self.backlog)
            return ChannelListener(descriptor: descriptor, psm: chosen, isEncrypted: isEncrypted, on: bus)
        } catch {
            close(descriptor)
            throw error
        }
    }
}

// holds: it is made and used on the bus queue
private struct Confined<Value>: @unchecked Sendable {
    let value: Value

    init(_ value: Value) { self.value = value }
}
