import BluezDBus

/// Apps in this process, which the simulator can end.
extension Simulator {
    /// Ends the app in this process as SIGKILL ends a process, so that a test can start it again and see what is
    /// restored:
    ///
    /// ```swift
    /// var app = MyApp(options: options)  // with restore identifiers
    /// // … it connects and subscribes …
    /// simulator.killApp()
    /// app = MyApp(options: options)  // its first callback is willRestoreState
    /// ```
    /// That means all managers on this simulator's bus, of CoreBluetooth and of CoreBluetoothAsync, for they share a
    /// connection:
    /// - BlueZ sees what it sees when a process dies: its connection to the bus closes, and its sockets. Links stay up,
    ///   and what was published or advertised is withdrawn.
    /// - What was preserved stays as it is on the disk, and the next manager with the restore identifier gets it.
    /// - No callback follows; one that is running continues. Streams of L2CAP channels end.
    /// - The objects remain, and calls of their methods do nothing but log an API MISUSE. Tasks that wait for something
    ///   of a manager of CoreBluetoothAsync end when it is released.
    ///
    /// A manager with a keeper loses its connection to that, which continues: links, subscriptions and what was
    /// published stay, and the next manager with the restore identifier gets them.
    ///
    /// May be called on any thread, in a callback as well.
    /// - Parameter index: Ends the managers that have asked for this adapter with `BluezManagerOptionAdapterKey`, and
    ///   no others: two apps on two adapters are two processes. Nil: all managers.
    public func killApp(adapter index: Int? = nil) {
        let adapters = index.map { index in
            ["hci\(index)"] + sync { controllers.filter { $0.index == index }.map(\.address) }
        }
        LocalApps.kill(on: busAddress, adapters: adapters)
    }
}
