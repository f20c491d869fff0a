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
