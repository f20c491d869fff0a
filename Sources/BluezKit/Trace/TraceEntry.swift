#if compiler(<6.1)
package import Foundation  // later compilers see that the module exports it, and warn
#else
import Foundation
#endif

/// What one line of a trace tells, in the words of the API. Names and texts may come from other devices.
package struct TraceEntry: Equatable, Sendable {
    package enum Role: String, Sendable { case central, peripheral }

    package enum Direction: String, Sendable {
        /// A call of the app.
        case toCore
        /// A callback, or a change of what the app can see.
        case toApp
    }

    /// Where and when.
    package struct Place: Equatable, Sendable {
        /// Since the first line.
        package let seconds: Double
        /// Since 1970.
        package let wall: Double
        package let process: Int32
        /// By their order in the trace, from 1; nil: it is about the process.
        package let manager: Int?
        package let role: Role?
    }

    package struct Value: Equatable, Sendable {
        package let bytes: Data
        /// How many there were: more than there are here, of a channel.
        package let count: Int
        /// The bytes are zeros, whatever they were.
        package let isHidden: Bool
    }

    /// What an answer has in common with its question.
    package struct Question: Hashable, Sendable {
        package let manager: Int?
        package let peripheral: UUID?
        let text: String
        /// Whether a link is asked for.
        package var isConnect: Bool { text.hasPrefix("didConnect") }
    }

    /// What becomes of links.
    package enum Link: Equatable, Sendable {
        case up
        /// - reason: In words; nil: no callback tells of it.
        case down(reason: String?)
        /// Bluetooth is not on, or the manager is released: there are none.
        case off
    }

    package let place: Place
    package var direction: Direction?
    /// That of a method of the API, or a few words.
    package var name = ""
    /// Of the peripheral or central that it is about.
    package var peripheral: UUID?
    /// The name of that, otherwise its address.
    package var device: String?
    /// The UUID of an attribute, or a number where that is not known.
    package var attribute: String?
    package var value: Value?
    package var facts: [String] = []
    /// In words.
    package var error: String?
    /// An answer is due to it.
    package var asks: Question?
    package var answers: Question?
    package var link: Link?

    init(at place: Place) { self.place = place }
}
