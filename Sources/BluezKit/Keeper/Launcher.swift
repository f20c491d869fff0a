import BluezDBus
import Dispatch
import Foundation

/// Starts an app.
enum Launcher {
    /// - Parameters:
    ///   - last: The process that this has started before. While it runs, the app may still come, and no further one is
    ///     started: all of them would do the app's work at a time.
    ///   - failed: Gets why it could not be started, on any thread. What becomes of it after that is not known here.
    /// - Returns: Its process; nil: it is started by another program.
    static func start(
        _ relaunch: BluezRelaunch, after last: AppProcess? = nil, failed: @escaping @Sendable (String) -> Void
    ) -> AppProcess? {
        switch relaunch.way {
        case .never: break
        case .command(let words, let directory, let environment):
            if let last, last.isKnownToRun {
                Log.debug("process \(last.number), which was started for an app, runs and has not asked for the keeper")
                return last
            }
            do throws(POSIXError) {
                // A keeper ignores SIGCHLD, which is why no one has to wait for its end.
                return AppProcess(number: try spawn(words, directory: directory, environment: environment))
            } catch { failed("\(words.first ?? "no program"): \(error.localizedDescription)") }
        case .unit(let name):
            call(
                MethodCall(
                    destination: "org.freedesktop.systemd1", path: "/org/freedesktop/systemd1",
                    interface: "org.freedesktop.systemd1.Manager", member: "StartUnit", mayStartDestination: true
                ) { (writer) throws(BusError) in
                    try writer.write(name)
                    try writer.write("replace")
                }, failed)
        case .busName(let name):
            call(
                MethodCall(
                    destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus", member: "StartServiceByName"
                ) { (writer) throws(BusError) in
                    try writer.write(name)
                    try writer.write(UInt32(0))
                }, failed)
        }
        return nil
    }

    /// On the user's bus.
    private static func call(
        _ call: @autoclosure @escaping @Sendable () -> MethodCall, _ failed: @escaping @Sendable (String) -> Void
    ) {
        // A queue of its own: a bus that hangs is not to hold up anything else.
        let queue = DispatchQueue(label: "bluezkit.session-bus")
        queue.async {
            do throws(BusError) {
                let bus = try Connection(address: .session, queue: queue)
                bus.call(call(), deadline: .seconds(30)) { result in
                    if let error = result.failure { failed("\(error.message) (\(error.name))") }
                    bus.close()
                }
            } catch { failed("no session bus: \(error.message) (\(error.name))") }
        }
    }
}
