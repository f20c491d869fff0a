import BluezDBus
import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

// Faults found by fuzzing, each with the input that showed it.
@Suite("Invented input") struct InventedInputTests {
    // A state file is anybody's text. UUID(uuidString:) reads bytes with signs, and stops at a NUL; CBUUID(string:)
    // traps on what it let through. Now one is checked by the rule of the other.
    @Test(
        "a UUID in a state file on which CBUUID would trap is refused",
        arguments: [
            "0000180d-0000-1000-8000-0000-1004fb", "0000180D-0000-1000-8000-00805F9B34FB\u{0}junk",
            "+000180D-0000-1000-8000-00805F9B34FB", "0000180D+0000-1000-8000-00805F9B34FB", "", "180", "180G", "-80D",
            "0000180D-0000-1000-8000-00805F9B34F", "{000180D-0000-1000-8000-00805F9B34FB",
        ])
    func textThatIsNearlyAUUID(_ text: String) {
        #expect(AttributeUUID(text) == nil)
        #expect(CBUUID(bluez: text) == nil)
    }

    @Test("a UUID in a state file that CBUUID accepts is accepted")
    func textThatIsAUUID() {
        for text in ["180d", "0000180D", "0000180d-0000-1000-8000-00805F9B34FB"] {
            #expect(AttributeUUID(text)?.text == text)
            #expect(CBUUID(string: text) == CBUUID(string: "180D"))
        }
    }

    // BlueZ says what the MTU is, in three places. Of 0 came a payload of -3 bytes, and Data.prefix(-3) traps; so would
    // an app that cuts its writes by maximumWriteValueLength. No link has less than 23.
    @Test("an MTU below 23 counts as 23", arguments: [0, 1, 3, 22, 23])
    func smallMTU(_ mtuBytes: Int) {
        let descriptor = open("/dev/null", O_WRONLY | O_CLOEXEC)
        let socket = CommandSocket(descriptor: descriptor, mtuBytes: mtuBytes)
        #expect(socket.capacity == 20)
        socket.close()
    }
}
