import Foundation

/// A point in time: seconds since 2001-01-01 00:00:00 UTC, like `Date.timeIntervalSinceReferenceDate`.
///
/// Core Foundation's type, which Foundation does not export on Linux; the disconnect callback uses it.
public typealias CFAbsoluteTime = Double

/// A duration in seconds. Core Foundation's type, which Foundation does not export on Linux.
public typealias CFTimeInterval = Double

/// Now, in seconds since 2001-01-01 00:00:00 UTC, by the system clock, which may be adjusted at any time.
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { Date().timeIntervalSinceReferenceDate }
