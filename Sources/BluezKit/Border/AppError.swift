import Foundation

/// An error for the app, a ``CBError`` or a ``CBATTError``, in a message.
struct AppError: Codable, Sendable {
    let error: any Error

    init(_ error: any Error) { self.error = error }

    init(from decoder: any Decoder) throws {
        let coded = try CodedError(from: decoder).error
        switch coded.domain {
        case CBErrorDomain: error = CBError(_nsError: coded)
        case CBATTErrorDomain: error = CBATTError(_nsError: coded)
        default: error = coded
        }
    }

    func encode(to encoder: any Encoder) throws { try CodedError(error as NSError).encode(to: encoder) }
}

/// What this library puts into an `NSError`: texts, another error as the underlying one, and BlueZ's attempts.
private struct CodedError: Codable {
    private struct Attempt: Codable {
        let date: Date
        let name, message: String
    }

    private let domain: String
    private let code: Int
    private var texts: [String: String] = [:]
    private var attempts: [Attempt]?
    /// At most one: a struct cannot contain itself.
    private var underlying: [CodedError] = []

    init(_ error: NSError) {
        (domain, code) = (error.domain, error.code)
        for (key, value) in error.userInfo {
            switch value {
            case let text as String: texts[key] = text
            case let list as [BluezConnectAttempt]:
                attempts = list.map { Attempt(date: $0.date, name: $0.name, message: $0.message) }
            case let error as NSError where key == NSUnderlyingErrorKey: underlying = [CodedError(error)]
            default: break
            }
        }
    }

    var error: NSError {
        var info: [String: Any] = texts
        if let attempts {
            info[BluezErrorAttemptsKey] = attempts.map {
                BluezConnectAttempt(date: $0.date, name: $0.name, message: $0.message)
            }
        }
        if let first = underlying.first { info[NSUnderlyingErrorKey] = first.error }
        return NSError(domain: domain, code: code, userInfo: info)
    }
}
