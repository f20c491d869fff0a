import CBluezDBus
import Foundation

/// The value of an environment variable; nil if there is none or it is empty, and in a program that has more rights than
/// who started it (set-user-ID, file capabilities): whoever started it must not choose what it connects to, runs and
/// believes.
///
/// Not `ProcessInfo`: a program may have changed it for itself with `setenv`.
/// - SeeAlso: secure_getenv(3).
package func environment(_ name: String) -> String? {
    guard let value = cdbus_getenv(name), value.pointee != 0 else { return nil }
    return String(cString: value)
}
