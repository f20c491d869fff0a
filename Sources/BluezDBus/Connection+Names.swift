import CBluezDBus
import Glibc

/// The owner of a well-known name, as the bus reports it.
final class WatchedName {
    /// The owner's unique name, with its terminating zero, for comparing without creating a string; nil: no owner.
    var owner: ContiguousArray<CChar>?
    let rule: MatchRule
    let onChange: (_ owner: String?) -> Void

    init(rule: MatchRule, onChange: @escaping (String?) -> Void) {
        (self.rule, self.onChange) = (rule, onChange)
    }
}

extension Connection {
    /// Follows the owner of a well-known name: `onChange` gets the present owner first, then each change; nil means
    /// that the name has no owner. One watcher for each name.
    /// - Parameter deadline: For the bus to tell the present owner; then it is asked again.
    public func watchName(
        _ name: String, deadline: Duration = .seconds(30), onChange: @escaping (_ owner: String?) -> Void
    ) {
        assertOnQueue()
        let rule = MatchRule(
            sender: "org.freedesktop.DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged",
            path: "/org/freedesktop/DBus", argument0: name)
        let watched = WatchedName(rule: rule, onChange: onChange)
        watchedNames[name] = watched
        addMatch(rule)  // before the query, so that no change is missed
        askOwner(of: name, for: watched, deadline)
    }

    private func askOwner(of name: String, for watched: WatchedName, _ deadline: Duration) {
        let question = MethodCall.bus("GetNameOwner") { (writer) throws(BusError) in try writer.write(name) }
        call(question, deadline: deadline) { [weak self, weak watched] result in
            guard let self, let watched, watchedNames[name] === watched, watched.owner == nil else {
                return  // a signal was first
            }
            // A bus that is too busy has not said that there is none: an owner that stays is signalled by nothing.
            if case .failure(.timedOut) = result { return askOwner(of: name, for: watched, deadline) }
            var reader = (try? result.get())?.reader
            let owner = try? reader?.readString()
            watched.owner = owner.map { ContiguousArray($0.utf8CString) }
            watched.onChange(owner)
        }
    }

    /// Ends ``watchName(_:deadline:onChange:)``. Harmless if the name is not watched.
    public func unwatchName(_ name: String) {
        if let watched = watchedNames.removeValue(forKey: name) { removeMatch(watched.rule) }
    }

    /// The unique name of the present owner of a watched name.
    public func owner(of name: String) -> String? {
        watchedNames[name]?.owner.map { $0.withUnsafeBufferPointer { String(cString: $0.baseAddress ?? emptyCString) } }
    }

    /// Whether the owner of a watched name sent this message. Any program on the bus can send a signal that looks like
    /// the owner's, so check before trusting one.
    public func isFromOwner(_ message: Message, of name: String) -> Bool {
        guard let owner = watchedNames[name]?.owner, let sender = message.senderC else { return false }
        return owner.withUnsafeBufferPointer { strcmp($0.baseAddress ?? emptyCString, sender) } == 0
    }

    /// Calls `RequestName`: this process becomes the owner of `name` on the bus, or the error says why not.
    public func requestName(_ name: String, completion: @escaping (Result<Void, BusError>) -> Void) {
        let doNotQueue = UInt32(DBUS_NAME_FLAG_DO_NOT_QUEUE)
        let request = MethodCall.bus("RequestName") { (writer) throws(BusError) in
            try writer.write(name)
            try writer.write(doNotQueue)
        }
        call(request, deadline: .seconds(30)) { result in
            completion(
                result.flatMap { reply in
                    var reader = reply.reader
                    let answer = (try? reader.readUInt32()) ?? 0
                    return answer == UInt32(DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER)
                        ? .success(())
                        : .failure(.remote(name: "org.freedesktop.DBus.Error.Failed", message: "\(name) is taken"))
                })
        }
    }

    /// Releases a name.
    public func releaseName(_ name: String, completion: @escaping (Result<Message, BusError>) -> Void) {
        call(
            .bus("ReleaseName") { (writer) throws(BusError) in try writer.write(name) }, deadline: .seconds(30),
            completion: completion)
    }

    func updateOwner(_ message: Message) {
        guard message.isSignal("org.freedesktop.DBus", "NameOwnerChanged"),
            message.senderC.matches("org.freedesktop.DBus")
        else { return }
        var reader = message.reader
        guard let name = try? reader.readString(), let watched = watchedNames[name],
            (try? reader.readCString()) != nil, let owner = try? reader.readString()
        else { return }
        // The owner can change without a gap; watchers are informed of the loss first.
        if watched.owner != nil, !owner.isEmpty {
            watched.owner = nil
            watched.onChange(nil)
        }
        watched.owner = owner.isEmpty ? nil : ContiguousArray(owner.utf8CString)
        watched.onChange(owner.isEmpty ? nil : owner)
    }
}

private nonisolated(unsafe) let emptyCString: UnsafePointer<CChar> = {
    // holds: written once, never freed, only read
    let empty = UnsafeMutablePointer<CChar>.allocate(capacity: 1)
    empty.pointee = 0
    return UnsafePointer(empty)
}()
