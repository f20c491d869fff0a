import Dispatch

extension DispatchQueue {
    /// For reading and writing files. Not one of the global queues: once they are used, libdispatch looks after their
    /// threads every second for as long as the process lives, which wakes an app that is otherwise idle.
    static let files = DispatchQueue(label: "bluezkit.files", qos: .utility)
}
