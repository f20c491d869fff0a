import Testing

@testable import BluezKit

@Suite struct UpdateWindowTests {
    @Test("UP-2 UP-3 O-37 updateValue is false while the window is full, and readiness follows once each time")
    func window() {
        var window = UpdateWindow()
        for _ in 0..<UpdateWindow.limit { #expect(window.admit() == true) }
        #expect(window.admit() == false)
        #expect(window.admit() == false)
        #expect(window.inFlight == UpdateWindow.limit)
        var told = 0
        for _ in 0..<UpdateWindow.limit where window.release() { told += 1 }
        #expect(told == 1)
        #expect(window.inFlight == 0)
        #expect(window.release() == false)
        #expect(window.inFlight == 0)
    }

    @Test("UP-3 no readiness without a refusal before, nor after Bluetooth was off")
    func unasked() {
        var windows = UpdateWindows<String>()
        for _ in 0..<UpdateWindow.limit { _ = windows.admit("A") }
        for _ in 0..<UpdateWindow.limit { #expect(windows.release("A") == false) }
        for _ in 0...UpdateWindow.limit { _ = windows.admit("A") }
        windows.reset()
        #expect(windows.admit("A") == true)
        #expect(windows.release("A") == false)
    }

    @Test("UP-2 UP-3 a characteristic whose window is full does not delay others, and becomes ready on its own")
    func several() {
        var windows = UpdateWindows<String>()
        for _ in 0..<UpdateWindow.limit { #expect(windows.admit("A") == true) }
        #expect(windows.admit("A") == false)
        #expect(windows.admit("B") == true)
        #expect(windows.inFlight == UpdateWindow.limit + 1)
        #expect(windows.release("B") == false)
        var told = 0
        for _ in 0..<UpdateWindow.limit where windows.release("A") { told += 1 }
        #expect(told == 1)
        #expect(windows.inFlight == 0)
        #expect(windows.release("A") == false)
        #expect(windows.release("C") == false)
    }
}
