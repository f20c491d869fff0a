import BluezKitSimulator
import Foundation

/// An iPhone that connects to the accessory which asks for its notifications, pairs, and gets some.
enum SimulatedPhone {
    /// Starts, and continues until the process ends.
    static func run(in simulator: Simulator) {
        let phone = simulator.phone()
        phone.name = "Ada's iPhone"
        let (events, continuation) = AsyncStream.makeStream(of: String.self)
        simulator.onEvent { continuation.yield($0) }
        Task {
            phone.post(0, message("The engine weaves algebraic patterns."))  // it has had this one for a while
            _ = try? await phone.find(pairs: true)
            for await event in events where event.hasPrefix("phone command") { break }
            try? await Task.sleep(for: .seconds(1))
            phone.post(
                1,
                .init(
                    app: "com.apple.mobilephone", category: 2, flags: 2, title: "Charles Babbage",
                    message: "Missed call", positive: "Call back", negative: "Clear", date: now))
            try? await Task.sleep(for: .seconds(1))
            phone.post(
                2,
                .init(
                    app: "com.apple.mobilemail", category: 6, title: "Luigi Menabrea",
                    subtitle: "Notions sur la machine", message: "Merci pour la traduction, et surtout pour ses notes.",
                    negative: "Archive", date: now))
            try? await Task.sleep(for: .seconds(1))
            phone.post(0, message("It weaves them as the loom weaves flowers and leaves."))
            try? await Task.sleep(for: .seconds(1))
            phone.remove(1)
            for await _ in events {}
        }
    }

    private static func message(_ text: String) -> VirtualPhone.Notification {
        .init(app: "com.apple.MobileSMS", title: "Ada Lovelace", message: text, negative: "Clear", date: now)
    }

    /// As phones tell it.
    private static var now: String {
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.dateFormat = "yyyyMMdd'T'HHmmss"
        return format.string(from: Date())
    }
}
