import Foundation

/// A moment: seconds since 2001-01-01 00:00:00 UTC, as `Date.timeIntervalSinceReferenceDate`.
///
/// Core Foundation's type, which Foundation does not show on Linux; the disconnect callback has it in its signature.
public typealias CFAbsoluteTime = Double

/// A length of time in seconds. Core Foundation's type, which Foundation does not show on Linux.
public typealias CFTimeInterval = Double

/// Now, in seconds since 2001-01-01 00:00:00 UTC, by the system's clock: it jumps when that is set.
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { Date().timeIntervalSinceReferenceDate }
