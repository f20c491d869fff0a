import Dispatch
import Foundation

/// Runs an actor on the serial queue on which a manager calls its delegate, so that what the actor owns may be used in
/// both: in the actor's methods, and in callbacks. CoreBluetooth's objects, which are not `Sendable`, never leave it.
final class QueueExecutor: SerialExecutor {
    let queue: DispatchQueue

    init(label: String) { queue = DispatchQueue(label: label) }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    /// Asked where no job of the actor runs, but a block of the queue does.
    func checkIsolated() { dispatchPrecondition(condition: .onQueue(queue)) }
}

/// What was asked of actors, and is not done.
private let posted = DispatchGroup()

/// `exit` in the line after a release: CoreBluetooth learns of it first. To be set up after a manager, whose own
/// handler sends what that asks of BlueZ: handlers run in the reverse order. A child of `fork` has none of the threads
/// that would do it.
let postsAtExit: Void = {
    _ = process
    atexit { if getpid() == process { _ = posted.wait(timeout: .now() + .milliseconds(200)) } }
}()

private let process = getpid()

/// An actor that owns CoreBluetooth's objects.
protocol QueueActor: Actor {
    nonisolated var executor: QueueExecutor { get }
}

extension QueueActor {
    /// Has `body` run in the actor, after everything that was asked of it before.
    nonisolated func post(_ body: @escaping @Sendable (isolated Self) -> Void) {
        executor.queue.async(group: posted) { self.assumeIsolated { body($0) } }
    }
}
