public import BluezKit

extension CBCentralManager {
    /// **BluezKit addition.** Creates a manager whose callbacks are made by the thread that runs a `GMainContext`, one
    /// at a time and in order, never inside a call by the app.
    ///
    /// The loop of the context may start later, end and start again, or the context may be run by hand; in the meantime
    /// events wait. If a callback runs a loop of the same context, no further callback of this manager is made until
    /// that callback has returned.
    /// - Parameters:
    ///   - delegate: Held weakly.
    ///   - context: A `GMainContext *`, which the manager keeps; nil: the default context, by whichever thread it is
    ///     run. For the default context of the main thread, ``GLibMainLoop/attach(priority:)`` and `queue: nil` do the
    ///     same and more.
    ///   - priority: As for every source of GLib: negative is earlier, `G_PRIORITY_DEFAULT` is 0.
    ///   - options: As for `CBCentralManager.init(delegate:queue:options:)`.
    public convenience init(
        delegate: (any CBCentralManagerDelegate)?, context: OpaquePointer?, priority: Int32 = 0,
        options: [String: Any]? = nil
    ) {
        self.init(delegate: delegate, queue: nil, options: withContext(context, priority, options))
    }
}

extension CBPeripheralManager {
    /// **BluezKit addition.** Creates a manager whose callbacks are made by the thread that runs a `GMainContext`; see
    /// `CBCentralManager.init(delegate:context:priority:options:)`.
    /// - Parameters:
    ///   - delegate: Held weakly.
    ///   - context: A `GMainContext *`, which the manager keeps; nil: the default context, by whichever thread it is
    ///     run.
    ///   - priority: As for every source of GLib: negative is earlier, `G_PRIORITY_DEFAULT` is 0.
    ///   - options: As for `CBPeripheralManager.init(delegate:queue:options:)`.
    public convenience init(
        delegate: (any CBPeripheralManagerDelegate)?, context: OpaquePointer?, priority: Int32 = 0,
        options: [String: Any]? = nil
    ) {
        self.init(delegate: delegate, queue: nil, options: withContext(context, priority, options))
    }
}

private func withContext(_ context: OpaquePointer?, _ priority: Int32, _ options: [String: Any]?) -> [String: Any] {
    var options = options ?? [:]
    options[callbackPlaceOption] = ContextPlace(context, priority: priority)
    return options
}
