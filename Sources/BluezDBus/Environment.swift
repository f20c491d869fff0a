import CBluezDBus
import Foundation

/// The value of an environment variable. Nil if there is none or it is empty, and in a program that has more privileges
/// than the user who started it (set-user-ID, file capabilities), because that user must not choose what it connects
/// to, runs and trusts.
///
/// Not `ProcessInfo`, because a program may have changed the variable with `setenv`.
/// - SeeAlso: secure_getenv(3).
package func environment(_ name: String) -> String? {
    guard let value = cdbus_getenv(name), value.pointee != 0 else { return nil }
    return String(cString: value)
}

/// All variables of this process. Nothing is decided by them: they are passed on.
package var ownEnvironment: [String: String] {
    var variables: [String: String] = [:]
    var next = environ
    while let text = next.pointee {
        let parts = String(cString: text).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        if parts.count == 2 { variables[String(parts[0])] = String(parts[1]) }
        next += 1
    }
    return variables
}

/// Where the programs of this user note what they share on a bus; each file begins with the GUID of its bus.
/// With set-user-ID that is the user with whose rights it runs: one who may not read or remove what it notes has
/// started it.
/// - Parameter runtimeDirectory: `XDG_RUNTIME_DIR`: one that is not absolute is to be ignored, says its specification.
package func sharedDirectory(runtimeDirectory: String? = environment("XDG_RUNTIME_DIR")) -> String {
    if let runtimeDirectory, runtimeDirectory.hasPrefix("/") { return runtimeDirectory + "/bluezkit" }
    return "/tmp/bluezkit-\(geteuid())"
}

/// Whether this was compiled with `DEBUG`. Tests ask: they are compiled once, and linked with what was and what was not
/// (scripts/link-tests).
package var isDebugBuild: Bool {
    #if DEBUG
    true
    #else
    false
    #endif
}
