/// Which adapter is used and what state that makes. Pure.
struct AdapterStateMachine {
    enum Event: Equatable {
        /// The connection to the bus is gone, or could not be made.
        case busLost
        /// `org.bluez` has an owner, or has lost it.
        case owner(present: Bool)
        /// The owner is there, and does not answer any more.
        case hung
        /// `Powered` of an adapter; nil: it does not exist, or is not the one that the app chose.
        case powered(String, Bool?)
        /// All adapters that BlueZ has.
        case listed([String])
        case denied
        /// The daemon is not there and cannot be started.
        case noDaemon
        case graceOver
        /// It did not go off, or not on again.
        case powerCycleFailed
    }

    /// Until another adapter will do; then, where one was lost, until there is none.
    enum Grace { case short, long }

    enum Action: Equatable {
        case setState(CBManagerState)
        /// Ask for `Powered` of this adapter.
        case askPowered(String)
        /// Ask for the names of all adapters.
        case list
        case use(String?)
        /// Time for an adapter or a daemon to come back, before another one will do, or there is none.
        case startGrace(Grace), stopGrace
        /// bluetoothd was away. For a moment it may report links as its own that its predecessor has left behind.
        case ignoreStaleLinks
        /// We have switched it off, and it was to be switched on again.
        case switchOn(String)
    }

    private(set) var state = CBManagerState.unknown
    private(set) var used: String?
    private var adapters: [String: Bool] = [:]
    private var unanswered: Set<String> = []
    private var isOwned = false
    private var hasWorked = false
    private var hasListed = false
    /// The one that was used last. After a loss it has the period of grace to come back: bonds, links and what is
    /// published were on it.
    private var last: String?
    private var awaitsLast = false
    /// Whether it has gone with its daemon or its bus.
    private var isLost = false

    private var isShortGraceOver = false

    /// This process has switched it off, and will switch it on again: a reset, not a choice of the user.
    var isPowerCycling = false
    /// What waited for it to be off, to switch it on again, is gone: BlueZ hung, or bus or daemon were lost.
    private var mustSwitchOn = false
    /// BlueZ is the same one, and may come to the switching off only now.
    private var mayGoOff = false
    private var off: CBManagerState { isPowerCycling ? .resetting : .poweredOff }

    /// The one that is asked before others have been heard of.
    var usual = "hci0"
    /// Only the adapter that the app has chosen is ever reported, whatever its name.
    var isOnly = false
    /// The one to ask first.
    var first: String { last ?? usual }

    mutating func handle(_ event: Event) -> [Action] {
        switch event {
        case .busLost:
            forget()
            return lost()
        case .owner(true):
            let ignore: [Action] = state == .resetting || state == .unsupported ? [.ignoreStaleLinks] : []
            guard !isOwned else { return ignore }
            isOwned = true
            // The usual case first: one question, whose cost does not depend on how many devices there are.
            unanswered = [first]
            // A daemon that has been started shows its adapters one by one; one that was only hung has them all.
            awaitsLast = isLost
            isShortGraceOver = false
            return ignore + (awaitsLast ? [.stopGrace, .startGrace(.short)] : []) + [.askPowered(first)]
        case .owner(false):
            let wasOwned = isOwned
            forget()
            mayGoOff = false
            return wasOwned || hasWorked ? lost() : []
        case .hung:
            forget()
            isLost = false
            // No period of grace: the owner is there, and will go on or end.
            return become(.resetting) + [.use(nil), .stopGrace]
        case .powered(let name, let isPowered): return updatePowered(name, isPowered)
        case .listed(let names):
            let relevant = names.filter { $0.hasPrefix("hci") }
            for gone in adapters.keys where !relevant.contains(gone) { adapters[gone] = nil }
            let new = relevant.filter { adapters[$0] == nil }
            unanswered.formUnion(new)
            return new.isEmpty ? useFirst() : new.sorted().map { .askPowered($0) }
        case .denied: return become(.unauthorized)
        case .noDaemon: return isOwned ? [] : become(.unsupported)
        case .graceOver:
            awaitsLast = false
            let actions = useFirst(mayWait: false)
            guard used == nil else { return actions }
            defer { isShortGraceOver.toggle() }
            return isShortGraceOver || !hasWorked
                ? become(.unsupported) : [.startGrace(.long)]
        case .powerCycleFailed where mustSwitchOn: return []  // of before the reset
        case .powerCycleFailed:
            isPowerCycling = false
            return used.flatMap { adapters[$0] } == false ? become(.poweredOff) : []
        }
    }

    private mutating func updatePowered(_ name: String, _ isPowered: Bool?) -> [Action] {
        guard isOwned else { return [] }
        guard mustSwitchOn, name == last, let isPowered else { return changed(name, isPowered) }
        if isPowered {
            mustSwitchOn = mayGoOff
            return changed(name, isPowered)
        }
        mustSwitchOn = false
        return changed(name, isPowered) + [.switchOn(name)]
    }

    private mutating func changed(_ name: String, _ isPowered: Bool?) -> [Action] {
        let wasAsked = unanswered.remove(name) != nil
        adapters[name] = isPowered
        if name == used, isPowered == nil {
            used = nil
            awaitsLast = true
            return become(.resetting) + [.use(nil), .startGrace(.short), .list]
        }
        if let used {
            let isBetter = isPowered == true && adapters[used] != true
            if isPowered == true { isPowerCycling = mustSwitchOn }
            return name == used ? become(isPowered == true ? .poweredOn : off) : isBetter ? use(name) : []
        }
        if isPowered == true, mayUse(name) { return use(name) }
        // The usual one is off or not there: is there another?
        if wasAsked, unanswered.isEmpty, adapters.count <= 1, !hasListed {
            hasListed = true
            return [.list]
        }
        return unanswered.isEmpty ? useFirst() : []
    }

    private func mayUse(_ name: String) -> Bool { !awaitsLast || isOnly || name == last }

    private mutating func use(_ name: String) -> [Action] {
        // Everything known belongs to the old adapter.
        let reset = used == nil ? [] : become(.resetting)
        (used, last, hasWorked, awaitsLast, isLost) = (name, name, true, false, false)
        isShortGraceOver = false
        if adapters[name] == true { isPowerCycling = mustSwitchOn }
        return reset + [.stopGrace, .use(name)] + become(adapters[name] == true ? .poweredOn : off)
    }

    /// hci2 comes before hci10.
    private mutating func useFirst(mayWait: Bool = true) -> [Action] {
        let names = adapters.keys.sorted { ($0.count, $0) < ($1.count, $1) }
        let candidates = names.filter(mayUse)
        guard let first = candidates.first(where: { adapters[$0] == true }) ?? candidates.first else {
            return used == nil && mayWait ? [.startGrace(.short)] : []
        }
        return used == nil ? use(first) : []
    }

    private mutating func lost() -> [Action] {
        isLost = last != nil
        awaitsLast = isLost
        return (hasWorked || state != .unknown ? become(.resetting) : []) + [.use(nil), .startGrace(.short)]
    }

    private mutating func forget() {
        (adapters, unanswered, used, isOwned, hasListed) = ([:], [], nil, false, false)
        (mustSwitchOn, mayGoOff) = (isPowerCycling, true)
    }

    private mutating func become(_ next: CBManagerState) -> [Action] {
        guard next != state else { return [] }
        // Nothing to reset where nothing ever worked.
        if next == .resetting, state == .unsupported || state == .unauthorized { return [] }
        state = next
        return [.setState(next)]
    }
}
