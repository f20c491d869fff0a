import Dispatch
import Testing

@testable import BluezDBus

// Nanoseconds overflow a 32-bit `Int`, as on armhf, after 2.1 s, and the deadline of the first call was 30 s: it would
// have trapped. Now times are computed in 64 bits, and numbers from the bus are converted only if they fit.
@Suite struct NarrowIntegerTests {
    @Test(
        "any duration can be added to a time, without using Int",
        arguments: [
            (.zero, 0), (.milliseconds(2147), 2_147_000_000), (.seconds(30), 30_000_000_000),
            (.seconds(86_400), 86_400_000_000_000), (.nanoseconds(1), 1), (.seconds(-1), 0), (.seconds(-9e18), 0),
        ] as [(Duration, UInt64)])
    func times(duration: Duration, nanoseconds: UInt64) {
        let time = DispatchTime(uptimeNanoseconds: 1_000_000)
        #expect(time.later(by: duration).uptimeNanoseconds == 1_000_000 + nanoseconds)
    }

    @Test(
        "a time that is too late to represent is the distant future",
        arguments: [Duration.seconds(1e10), .seconds(9e18)])
    func never(duration: Duration) {
        #expect(DispatchTime.now().later(by: duration) == .distantFuture)
        #expect(DispatchTime.distantFuture.later(by: .seconds(1)) == .distantFuture)
    }

    @Test("an integer from the bus becomes an Int only if it fits")
    func integers() {
        #expect(Value.uint32(.max).intValue == Int(exactly: UInt32.max))
        #expect(Value.uint64(.max).intValue == nil && Value.int64(.min).intValue == Int(exactly: Int64.min))
    }
}
