import Testing

@testable import BluezKit

@Suite struct UUIDPoolTests {
    @Test("equal texts give one object, which is the UUID in its shortest form")
    func shares() throws {
        let pool = UUIDPool()
        let text = "0000180d-0000-1000-8000-00805f9b34fb"
        let first = try #require(pool[text])
        #expect(first == CBUUID(string: "180D") && first.uuidString == "180D")
        #expect(pool[text] === first && pool.count == 1)
        #expect(pool["0000180a-0000-1000-8000-00805f9b34fb"] == CBUUID(string: "180A"))
        #expect(pool.count == 2)
    }

    @Test("text that is not a UUID gives no object, and is not kept")
    func wrong() {
        let pool = UUIDPool()
        for text in [
            "", "180D ", "heart rate", "0000180d-0000-1000-8000-00805f9b34f", "0000180g-0000-1000-8000-00805f9b34fb",
        ] {
            #expect(pool[text] == nil, "\(text)")
        }
        #expect(pool.count == 0)
    }
}
